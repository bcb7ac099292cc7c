"""The demo's own configuration file, which works for every command too."""

from __future__ import annotations

import json
from pathlib import Path

from compose.stack import StackInfo

FILE = "tailrace.toml"


def write(directory: Path, info: StackInfo) -> Path:
    """Write the configuration for a stack that is up; the passwords in it are the stack's, and public."""
    sections: dict[str, dict[str, object]] = {
        "source": {"url": info.upstream, "server-id": 7001},
        "relay": {"dir": "relay"},
        "kafka": {"bootstrap-servers": info.kafka, "prefix": "demo", "partitions": 2},
        "target": {"url": info.downstream},
        "consumer": {"checkpoint-dir": "checkpoint"},
    }
    lines = []
    for name, fields in sections.items():
        lines.append(f"[{name}]")
        lines += [f"{field} = {json.dumps(value)}" for field, value in fields.items()]
        lines.append("")
    path = directory / FILE
    path.write_text("\n".join(lines))
    return path

"""Reads the channel of a folder of change files, in the form of a server's channels."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def files_channels(root: Path) -> list[dict[str, Any]]:
    """Return the channel of a folder, or an empty list before its first run. Raises DownstreamError."""
    from spark_consumer.sinks.parquet.folder import METADATA_DIR, paused_since, read
    from spark_consumer.sinks.parquet.sink import position_of

    content = read(root)
    if content is None:
        return []
    position = position_of(content)
    written = (root / METADATA_DIR / "position.json").stat().st_mtime
    stored = {
        "Relay_log_name": position.relay_log,
        "Relay_log_pos": position.relay_pos,
        "Master_log_name": position.source_log,
        "Master_log_pos": position.source_pos,
        "Channel_name": content["channel"],
        "Executed_Gtid_Set": position.executed_gtids,
    }
    return [
        {
            "channel": content["channel"],
            "prefix": content["prefix"],
            "log_id": position.log_id,
            "target": f"parquet:{root}",
            "epoch": position.epoch,
            "epoch_rows": position.epoch_rows,
            "epochs_offset": position.epochs_offset,
            "gtids": position.executed_gtids,
            "consistent": content["consistent"],
            "rewound_from": None,
            "began_at": content["began_at"],
            "began_behind": content["began_behind"],
            "began_whole": content["began_whole"],
            "copying": position.copying,
            "is_new": position.is_new,
            "decided": 0,
            "fencing_token": position.fencing_token,
            "structures_version": position.structures_version,
            "ddl_in_doubt": None,
            "updated": datetime.fromtimestamp(written, UTC).isoformat(timespec="milliseconds"),
            "last_commit": None,
            "counters": None,
            "stored": stored,
            "paused": paused_since(root),
            "workers": [],
            "error": None,
            "validation": None,
        }
    ]

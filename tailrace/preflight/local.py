"""Findings about this machine: files and folders, disk space, and Java."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from schemas.access.private_files import others_may
from tailrace.config.model import Config
from tailrace.config.secret_files import readable_by_others
from tailrace.preflight.finding import Finding, Level, Part, Result, verdict

_GIB = 1 << 30
_TOO_LITTLE = 256 << 20


def secret_findings(file: Path, config: Config) -> list[Result]:
    """Return findings about files with passwords or keys that other users may read."""
    found: list[Result] = [
        Finding(
            "warn",
            "configuration",
            "secrets",
            f"{path} contains a password or key, and other users may read it (mode {path.stat().st_mode & 0o777:o})",
            f"chmod 600 {path}",
        )
        for path in readable_by_others(file, config)
    ]
    return found or [
        Finding("ok", "configuration", "secrets", "other users may not read any file with a password or key")
    ]


def _privacy(part: Part, folder: Path) -> list[Result]:
    """Return whether other users may access a folder. An empty one is made private at its first use."""
    if not folder.is_dir() or not (others := others_may(folder)) or not any(folder.iterdir()):
        return []
    what = f"other users may {'write to' if others == 'write' else 'read'} {folder}"
    return [Finding("warn", part, "private", what, f"chmod 700 {folder}")]


def relay_findings(folder: Path) -> list[Result]:
    """Return whether the relay log can be written, and whether its disk has enough space."""
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        what = f"{folder} cannot be written"
        remedy = "set [relay] dir to a folder that this user owns"
        return [Finding("block", "relay", "writable", what, remedy, error="TR302")]
    free = shutil.disk_usage(parent).free
    text = f"{free / _GIB:.1f} GiB are free for the relay log"
    remedy = "free some space, or set [relay] dir to a larger disk"
    level: Level = "block" if free < _TOO_LITTLE else "warn"
    return [
        Finding("ok", "relay", "writable", f"{folder} can be written"),
        *_privacy("relay", folder),
        verdict(free >= 2 * _GIB, "relay", "space", text, f"only {text}", remedy, level, passes=True),
    ]


def folder_findings(folder: Path) -> list[Result]:
    """Return whether change files can be written."""
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    writable = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    wrong, remedy = f"{folder} cannot be written", "set [target] url to a folder that this user owns"
    fine = f"{folder} can be written"
    return [
        verdict(writable, "downstream", "writable", fine, wrong, remedy, error="TR680", another_start=True),
        *_privacy("downstream", folder),
    ]


def consumer_findings(checkpoint: Path) -> list[Result]:
    """Return whether Spark can start on this machine."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    remedy = "install a Java 17 runtime, or set JAVA_HOME"
    parent = next(p for p in (checkpoint, *checkpoint.parents) if p.exists())
    writable = os.access(parent, os.W_OK | os.X_OK)
    return [
        verdict(
            bool(java), "consumer", "java", f"java is {java}", "no java program was found for Spark", remedy
        ),
        verdict(
            writable,
            "consumer",
            "checkpoint",
            f"{checkpoint} can be written",
            f"{checkpoint} cannot be written",
            "set [consumer] checkpoint-dir to a folder that this user owns",
            error="TR564",
            another_start=True,
        ),
        *_privacy("consumer", checkpoint),
    ]

"""Findings about this machine: the relay log's disk, and what Spark needs."""

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
    """Whether files with passwords or keys are this user's alone."""
    found: list[Result] = [
        Finding(
            "warn",
            "configuration",
            "secrets",
            f"{path} holds a password or key, and others may read it (mode {path.stat().st_mode & 0o777:o})",
            f"chmod 600 {path}",
        )
        for path in readable_by_others(file, config)
    ]
    return found or [
        Finding("ok", "configuration", "secrets", "no file with a password or key is open to others")
    ]


def _privacy(part: Part, folder: Path) -> list[Result]:
    """Whether a folder that is there is this user's alone; an empty one becomes so when it is used."""
    if not folder.is_dir() or not (others := others_may(folder)) or not any(folder.iterdir()):
        return []
    what = f"others may {'write into' if others == 'write' else 'look into'} {folder}"
    return [Finding("warn", part, "private", what, f"chmod 700 {folder}")]


def relay_findings(folder: Path) -> list[Result]:
    """Whether the relay log can be written, and for how long."""
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        what = f"{folder} cannot be written"
        remedy = "set [relay] dir to a folder of this account's own"
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
    """Whether change files can be written."""
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    writable = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    wrong, remedy = f"{folder} cannot be written", "set [target] url to a folder of this account's own"
    fine = f"{folder} can be written"
    return [
        verdict(writable, "downstream", "writable", fine, wrong, remedy, error="TR680", another_start=True),
        *_privacy("downstream", folder),
    ]


def consumer_findings(checkpoint: Path) -> list[Result]:
    """Whether Spark can start here."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    remedy = "install a Java 17 runtime, or set JAVA_HOME"
    parent = next(p for p in (checkpoint, *checkpoint.parents) if p.exists())
    writable = os.access(parent, os.W_OK | os.X_OK)
    return [
        verdict(
            bool(java), "consumer", "java", f"java is {java}", "there is no java program for Spark", remedy
        ),
        verdict(
            writable,
            "consumer",
            "checkpoint",
            f"{checkpoint} can be written",
            f"{checkpoint} cannot be written",
            "set [consumer] checkpoint-dir to a folder of this account's own",
            error="TR564",
            another_start=True,
        ),
        *_privacy("consumer", checkpoint),
    ]

"""Runs `tailrace relay …` in the test's process."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from tailrace.commands.app import app


def relay(root: Path, *arguments: str, more: str = "") -> Result:
    config = root.with_name("tailrace.toml")
    config.write_text(f'[relay]\ndir = "{root}"\n{more}')
    return CliRunner().invoke(app, ["relay", *arguments, "--config", str(config)])

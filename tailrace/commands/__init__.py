"""The command line. Commands import what they need when they run, so that ``tailrace --help`` is quick."""

from __future__ import annotations

from tailrace.commands.app import main

__all__ = ["main"]

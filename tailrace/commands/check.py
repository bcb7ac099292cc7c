"""``tailrace check``: checks before replication starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from schemas.counted import counted
from tailrace.commands.options import DEFAULT_CONFIG, AsJson, ConfigFile, print_json, read_config

if TYPE_CHECKING:
    from tailrace.preflight.finding import Preflight

_SIGNS = {"ok": "[green]✓[/]", "warn": "[yellow]![/]", "block": "[bold red]✗[/]"}


def check(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Check servers, privileges, binlog settings, Kafka and disk before replication starts.

    Every finding has a remedy. Exit code 3: a finding prevents replication.
    """
    from schemas.errors import ExitCode
    from tailrace.preflight.gather import preflight

    result = preflight(read_config("check", config), config)
    if as_json:
        print_json(result.as_dict())
    else:
        _print(result)
    raise typer.Exit(ExitCode.PREFLIGHT if result.blocked else ExitCode.OK)


def _print(result: Preflight) -> None:
    from rich.markup import escape

    from tailrace.preflight.finding import Finding
    from tailrace.service.console import console as open_console

    console = open_console()
    part = ""
    for item in result.results:
        if item.part != part:
            part = item.part
            console.print(f"[bold]{part}[/]")
        if isinstance(item, Finding):
            console.print(f"  {_SIGNS[item.level]} {escape(item.message)}")
            if item.level != "ok":
                console.print(f"      [dim]→ {escape(item.hint)}[/]")
        else:
            console.print(f"  [dim]? {item.code}: not checked, {escape(item.reason)}[/]")
    blocks = sum(isinstance(r, Finding) and r.level == "block" for r in result.results)
    warnings = sum(isinstance(r, Finding) and r.level == "warn" for r in result.results)
    verdict = f"[bold red]{blocks} blocking[/]" if blocks else "[bold green]nothing blocks[/]"
    console.print(f"{verdict}, {counted(warnings, 'warning')}")

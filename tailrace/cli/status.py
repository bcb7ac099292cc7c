"""``tailrace status``: where everything is."""

from __future__ import annotations

from typing import Any

import typer

from tailrace.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile


def status(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show where upstream, relay log, Kafka and each channel are, and how far each channel lags.

    Exit 1 if a part could not be read; the others are shown all the same.
    """
    from tailrace import logs
    from tailrace.config_file import load
    from tailrace.status.collect import collect

    logs.configure("status")
    report = collect(load(config))
    if as_json:
        import json

        typer.echo(json.dumps(report, indent=2, ensure_ascii=False, default=str))
    else:
        _print(report)
    raise typer.Exit(0 if report["ok"] else 1)


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name in ("upstream", "relay", "kafka", "downstream"):
        _rows(table, name, report[name])
    for channel in report["downstream"].get("channels", []):
        _channel(table, channel)
    Console(highlight=False, soft_wrap=True).print(table)


def _rows(table: Any, name: str, part: dict[str, Any]) -> None:
    from rich.markup import escape

    if "error" in part:
        error = part["error"]
        table.add_row(f"[bold]{name}[/]", f"[red]unreachable[/]  {error['code']}: {escape(error['what'])}")
        if error["hint"]:
            table.add_row("", f"[dim]{escape(error['hint'])}[/]")
        return
    place = part.get("server") or part.get("directory") or part.get("servers")
    table.add_row(f"[bold]{name}[/]", f"{escape(str(place))}  {part.get('version', '')}".rstrip())
    if name == "kafka":
        epoch = "no epoch yet" if part["epoch"] is None else f"epoch {part['epoch']}"
        committed = f", committed upstream {part['commit_time']}" if part.get("commit_time") else ""
        table.add_row("", epoch + committed)
    if name != "downstream":
        at = f"{part['file']}:{part['position']}" if part.get("file") else "nothing yet"
        table.add_row("", f"{at}  {escape(part.get('gtids') or '')}".rstrip())
    elif not part["channels"]:
        table.add_row("", "no channel yet")


def _channel(table: Any, channel: dict[str, Any]) -> None:
    from rich.markup import escape

    lag = channel["lag"]
    behind = [f"{_known(lag['epochs'])} epochs", f"{_known(lag['transactions'])} transactions"]
    behind.append(f"{_known(lag['seconds'])} s")
    colour = "green" if lag["seconds"] == 0 else "yellow"
    table.add_row(f"[bold]channel {escape(channel['channel'])}[/]", f"epoch {channel['epoch']}")
    table.add_row("", f"{channel['source_file']}:{channel['source_position']}  {escape(channel['gtids'])}")
    table.add_row("", f"[{colour}]behind: {', '.join(behind)}[/]  updated {channel['updated']}")
    if channel["consistent"]:
        table.add_row("", "ended in order; the tables equal the upstream at this position")
    else:
        table.add_row("", "runs, or was cut off")
    if channel["ddl_in_doubt"]:
        table.add_row("", f"[yellow]a DDL is in hand: {escape(channel['ddl_in_doubt'])}[/]")


def _known(value: Any) -> str:
    return "?" if value is None else f"{value:,}"

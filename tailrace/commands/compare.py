"""``tailrace compare``: compares the data of the two servers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from schemas.counted import counted
from tailrace.commands.options import DEFAULT_CONFIG, AsJson, Channel, ConfigFile, print_json, read_config

if TYPE_CHECKING:
    from tailrace.compare import CompareResult, TableResult


def compare(config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None, as_json: AsJson = False) -> None:
    """Compare upstream and downstream table by table: structure, and every byte of every row.

    Tables are paired by the channel's routes. Rows that its filters leave out count as differences. Because
    replication may be running, differences are read again several times. Exit code 4: there are differences.
    """
    from schemas.errors import ExitCode
    from spark_consumer.rules.route import Route, Router
    from tailrace.compare import compare_servers
    from tailrace.config.addresses import source_url, target_url
    from tailrace.service.progress import live_line

    loaded = read_config("compare", config)
    loaded = loaded.for_channel(channel or loaded.consumer.channel)
    router = Router(tuple(rule.plain(Route) for rule in loaded.routes))
    servers = source_url(loaded), target_url(loaded)
    with nullcontext() if as_json else live_line("compare") as line:

        def show(table: TableResult) -> None:
            if line is not None:
                line(f"{table.table} · {counted(table.rows, 'row')}")

        result = compare_servers(
            *servers,
            loaded.tables.include,
            loaded.tables.exclude,
            router=router,
            progress=show,
            engines=loaded.ddl.engines == "upstream",
        )
    if as_json:
        print_json(result.as_dict())
    else:
        _print(result)
    raise typer.Exit(ExitCode.OK if result.equal else ExitCode.DIVERGED)


def _print(result: CompareResult) -> None:
    from rich.markup import escape

    from tailrace.service.console import console as open_console

    console = open_console()
    for table in result.tables:
        if table.equal:
            console.print(f"[green]=[/] {escape(table.table)}  {counted(table.rows, 'row')}")
            continue
        number = f": {'at least ' if table.more else ''}{table.differing:,}"
        detail = number if table.differing or table.more else ""
        console.print(f"[bold red]≠[/] {escape(table.table)}  {table.problem}{detail}")
        for line in table.detail:
            console.print(f"    {escape(line)}")
        for difference in table.differences:
            console.print(f"    {escape(difference.key)}  [dim]{difference.kind}[/]")
    if not result.tables:
        open_console(stderr=True).print("[yellow]neither server has replicated tables[/]")
    verdict = "[bold green]equal[/]" if result.equal else "[bold red]different[/]"
    counts = f"{counted(len(result.tables), 'table')}, {counted(result.rows, 'row')}"
    console.print(f"{counts}: {verdict}")

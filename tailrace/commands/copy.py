"""``tailrace copy``: copies tables again while everything runs."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.commands.options import DEFAULT_CONFIG, ConfigFile, read_config

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="TABLE", help="Patterns db.table, as in tables.include."),
]
All = Annotated[bool, typer.Option("--all", help="Copy all replicated tables.")]
Cancel = Annotated[bool, typer.Option("--cancel", help="Drop the copies that have not begun.")]


def copy(
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    everything: All = False,
    cancel: Cancel = False,
) -> None:
    """Copy tables again, through the log, while the producer and all channels run.

    Each channel empties a table when its copy begins, so rows that are not upstream vanish; until the copy ends, rows
    are missing there. The command leaves a request in the relay directory, which the producer of this machine takes.

    A copy that has begun cannot be cancelled, because its table would stay incomplete.
    """
    from tailrace.assemble.settings import producer_config
    from tailrace.request_copy import ask_for_copy, cancel_copies

    if [bool(tables), everything, cancel].count(True) != 1:
        raise typer.BadParameter("name tables, or give --all or --cancel")
    settings = producer_config(read_config("copy", config))
    for line in cancel_copies(settings) if cancel else ask_for_copy(settings, tables or ()):
        typer.echo(line, err=True)

"""``tailrace validate`` and ``tailrace compare``: prove the rows of both servers equal, or show what differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tailrace.commands.options import DEFAULT_CONFIG, AsJson, Channel, ConfigFile, print_json, read_config

if TYPE_CHECKING:
    from producer.run import ProducerConfig
    from tailrace.config.model import Config
    from tailrace.validate import Report


def validate(
    config: ConfigFile = DEFAULT_CONFIG,
    channel: Channel = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="DB.TABLE", help="Only these upstream tables.")
    ] = None,
    where: Annotated[
        str, typer.Option("--where", metavar="SQL", help="Only rows for which this is true on their server.")
    ] = "",
    max_rows_per_s: Annotated[
        int, typer.Option("--max-rows-per-s", min=0, metavar="N", help="Read no faster; 0: no limit.")
    ] = 0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Copy tables with different rows again, and validate them again.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew, also if an interrupted run could go on.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Go on for ever: validate what each epoch changes, and all rows again."
        ),
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="DURATION",
            help="With --follow: when all rows are validated again; default: validate.every, or 24h.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prove every row of the channel's tables equal, while replication runs and both servers are written to.

    The servers compute checksums of chunks. Rows of chunks that differ are looked at again when the channel has passed
    the upstream's position. A row is reported only if it differs and the log has no change of it meanwhile. Rows that
    never rest are pending. Exit code 4: a row or a structure differs.

    A run that is killed goes on at the next start with the same --table, --where and rules of the channel: what it has
    proved is not read again, and rows that differed are looked at again. `position` and `until` in the JSON are the
    channel's positions between which the rows were proved.

    --repair asks the producer for copies, as `tailrace copy` does, waits until the channel has them, and validates the
    tables again. It runs on the producer's machine.

    --follow looks at the rows that each applied epoch changes a moment later, and at all rows of each table once in
    --every or [validate] every. What it has proved, and what differs, is in `tailrace.validation` on the downstream
    and in `tailrace status`. It ends with SIGTERM or Ctrl-C, and the next start goes on from there.
    """
    from schemas.errors import ExitCode
    from tailrace.assemble.settings import producer_config
    from tailrace.validate import validate as run

    if follow and (table or where or repair or restart or as_json):
        raise typer.BadParameter("--follow validates all rows of all tables, and writes no JSON")
    loaded = read_config("validate", config)
    if follow:
        is_different = _follow(loaded, channel, _seconds(every), max_rows_per_s)
        raise typer.Exit(ExitCode.DIVERGED if is_different else ExitCode.OK)
    ask = partial(_ask, producer_config(loaded)) if repair else None
    with nullcontext() if as_json else _progress("validate") as show:
        report = run(
            loaded, channel, tuple(table or ()), where, max_rows_per_s, show, repair=ask, restart=restart
        )
    _end(report, as_json)


def compare(config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None, as_json: AsJson = False) -> None:
    """Compare upstream and downstream while nothing is written: every row of the channel's tables, and structures.

    It is one validation of two servers at rest: it needs no Kafka, no GTIDs and no running consumer, and what is
    written meanwhile counts as a difference. Where structures can be compared line by line, each line counts. Exit
    code 4: there are differences.
    """
    from tailrace.config.addresses import source_url
    from tailrace.config.channels import server_channel
    from tailrace.validate import compare as run

    loaded = read_config("compare", config)
    rules = server_channel(loaded, channel)
    with nullcontext() if as_json else _progress("compare") as show:
        report = run(source_url(loaded), rules, show)
    _end(report, as_json)


def _end(report: Report, as_json: bool) -> NoReturn:
    from schemas.errors import ExitCode

    if as_json:
        print_json(report.as_dict())
    else:
        _print(report)
    raise typer.Exit(ExitCode.DIVERGED if report.is_different else ExitCode.OK)


def _seconds(text: str | None) -> float | None:
    from schemas.settings import parse_duration

    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"--every: {error}") from None
    assert isinstance(seconds, float)
    return seconds


def _follow(config: Config, channel: str | None, every: float | None, max_rows_per_s: int) -> bool:
    """Validate until a signal comes; returns whether something differs."""
    from tailrace.config.addresses import metrics_address
    from tailrace.config.channels import server_channel
    from tailrace.metrics.listener import serve_metrics
    from tailrace.metrics.validator import ValidatorFacts
    from tailrace.service.lifecycle import run_until_signalled
    from tailrace.validate import follow

    found: list[Report] = []
    rules = server_channel(config, channel)
    address = metrics_address(config, rules.channel, validates=True)
    facts = ValidatorFacts(rules.prefix, rules.channel)

    def show(report: Report) -> None:
        facts.note(report)
        show_line(report)

    with _progress("validate") as show_line, serve_metrics(config, address, rules.channel_dir, facts):
        run_until_signalled(
            lambda stop: found.append(follow(config, channel, stop, every, max_rows_per_s, show))
        )
    return any(report.is_different for report in found)


def _ask(config: ProducerConfig, tables: Sequence[str]) -> None:
    from tailrace.request_copy import ask_for_copy

    for line in ask_for_copy(config, tables):
        typer.echo(line, err=True)


@contextmanager
def _progress(command: str) -> Iterator[Callable[[Report], None]]:
    """Yield a function that shows how far a validation is."""
    from tailrace.service.progress import RateMeter, Snapshot, live_line

    meter = RateMeter()
    with live_line(command) as line:

        def show(report: Report) -> None:
            remaining = report.rows_estimated - report.rows
            meter.add(
                time.monotonic(),
                Snapshot(report.rows, "", done=report.rows, remaining=remaining if remaining > 0 else None),
            )
            rate, left = round(meter.rows_per_s()), meter.seconds_left()
            table = report.tables[-1].table if report.tables else ""
            parts = [table, f"{report.rows:,} rows", f"{rate:,} rows/s", f"{report.different:,} different"]
            parts += [f"{left:,.0f} s left"] if left is not None else []
            line(
                " · ".join(parts),
                table=table,
                rows=report.rows,
                rows_per_s=rate,
                different=report.different,
                seconds_left=None if left is None else round(left),
            )

        yield show


_SIGNS = {"equal": "[green]=[/]", "different": "[bold red]≠[/]", "pending": "[yellow]?[/]", "left out": "-"}


def _print(report: Report) -> None:
    from rich.markup import escape

    from schemas.counted import counted
    from tailrace.service.console import console as open_console

    console = open_console()
    for table in report.tables:
        sign = _SIGNS[table.verdict]
        parts = [counted(table.rows, "row")]
        parts += (
            [f"{'at least ' if table.more else ''}{table.different:,} different"] if table.different else []
        )
        parts += [f"{table.repaired:,} repaired"] if table.repaired else []
        parts += [f"{table.pending:,} pending"] if table.pending else []
        parts += [table.problem] if table.problem else []
        console.print(f"{sign} {escape(table.table)}  {escape(', '.join(parts))}")
        for line in (*table.structure, *table.keys):
            console.print(f"    {escape(line)}")
    console.print(str(report))
    if report.rows_resumed:
        resumed = counted(report.rows_resumed, "row")
        console.print(
            f"an interrupted run has read {resumed} of these; they were proved after {report.position}",
            soft_wrap=True,
        )

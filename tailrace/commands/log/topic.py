"""``tailrace topic cat``: shows the content of the epoch log."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.commands.options import DEFAULT_CONFIG, AsJsonLines, ConfigFile, read_config

if TYPE_CHECKING:
    from schemas.tables import TableFilter
    from tailrace.reader import EpochReader

app = typer.Typer(help="Show the epoch log in Kafka.", no_args_is_help=True)

Start = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="earliest|oldest|epoch:N|gtid:SET|time:RFC3339",
        help="Where to start; oldest is the first epoch that Kafka still has.",
    ),
]
Pattern = Annotated[
    list[str] | None,
    typer.Option(
        "--table", metavar="PATTERN", help="Only these tables, such as shop.*; may be given several times."
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for further epochs.")]


@app.command("cat")
def cat(
    config: ConfigFile = DEFAULT_CONFIG,
    start: Start = "earliest",
    table: Pattern = None,
    follow: Follow = False,
    as_json: AsJsonLines = False,
) -> None:
    """Print the epochs with their DDL and rows, in upstream order.

    Only committed epochs are printed. Each is checked by its row count and digest. With --table, only epochs with
    rows or DDL of such tables are printed. Ctrl-C stops the command with exit code 0.
    """
    from schemas.tables import TableFilter
    from tailrace.config.addresses import kafka_security
    from tailrace.config.positions import check_position
    from tailrace.probe_kafka import probe
    from tailrace.reader import EpochReader
    from tailrace.service.lifecycle import run_until_signalled

    kafka = read_config("topic", config).kafka
    start = start if start == "oldest" else check_position(start, "--from")
    wanted = TableFilter(table or [], fields=("--table", "--table"))

    def run(stop: threading.Event) -> None:
        security = kafka_security(kafka)
        probe(kafka.bootstrap_servers, security)
        with EpochReader(kafka.bootstrap_servers, kafka.prefix, security) as log:
            _print(log, start, wanted, bool(table), follow, as_json, stop)

    run_until_signalled(run)


def _print(
    log: EpochReader,
    start: str,
    wanted: TableFilter,
    filtered: bool,
    follow: bool,
    as_json: bool,
    stop: threading.Event,
) -> None:
    from schemas.wire.epoch import EpochCommitted
    from tailrace.reader import display

    def concerns(epoch: EpochCommitted) -> bool:
        names = [(t.db, t.table) for t in epoch.tables]
        names += [(t.db, t.table) for t in (epoch.ddl.tables if epoch.ddl else ())]
        return any(wanted.allows(db, table) for db, table in names)

    out = sys.stdout
    for epoch in log.epochs(start, follow=follow, stop=stop):
        if filtered and not concerns(epoch):
            continue
        out.write((display.epoch_json(epoch) if as_json else display.epoch_text(epoch)) + "\n")
        for row in log.rows(epoch, wanted.allows):
            if stop.is_set():
                return
            out.write((display.row_json(epoch, row) if as_json else display.row_text(row)) + "\n")
        out.flush()

"""``tailrace schema``: shows and sets the structures of the log's tables."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from tailrace.commands.options import DEFAULT_CONFIG, AsJson, ConfigFile

app = typer.Typer(help="Show or set the tables' structures in the log.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(metavar="DATABASE.TABLE", help="The table's name on the upstream.")]
AtEpoch = Annotated[int | None, typer.Option("--at-epoch", metavar="N", help="At the end of this epoch.")]
AtGtid = Annotated[
    str | None,
    typer.Option(
        "--at-gtid", metavar="SET", help="At the first epoch whose executed set contains all of these."
    ),
]
History = Annotated[bool, typer.Option("--history", help="Also show all changes in the log.")]


@app.command("show")
def show(
    table: Table,
    config: ConfigFile = DEFAULT_CONFIG,
    at_epoch: AtEpoch = None,
    at_gtid: AtGtid = None,
    history: History = False,
    as_json: AsJson = False,
) -> None:
    """Print a table's structure at a position in the log, by default at the end."""
    from schemas.letter_case import lowered
    from tailrace.config.addresses import kafka_security
    from tailrace.config.file import load
    from tailrace.probe_kafka import probe
    from tailrace.reader import EpochReader
    from tailrace.reader.history import LookupPoint, answer_dict, answer_text, find_structure

    db, _, name = table.partition(".")
    if not db or not name:
        raise typer.BadParameter("write DATABASE.TABLE", param_hint="DATABASE.TABLE")
    if at_epoch is not None and at_gtid is not None:
        raise typer.BadParameter("use only one of --at-epoch and --at-gtid")
    kafka = load(config).kafka
    security = kafka_security(kafka)
    probe(kafka.bootstrap_servers, security)
    with EpochReader(kafka.bootstrap_servers, kafka.prefix, security) as log:
        epochs = list(log.epochs("oldest"))
        if epochs and epochs[-1].names_in_lower_case:
            db, name = lowered(db), lowered(name)
        answer = find_structure((db, name), LookupPoint(at_epoch, at_gtid), epochs, log.structures())
    if as_json:
        sys.stdout.write(json.dumps(answer_dict(answer, history=history), ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(answer_text(answer, history=history) + "\n")


Structure = Annotated[
    Path,
    typer.Option(
        "--file",
        metavar="FILE",
        help="A file with the CREATE TABLE statement, as SHOW CREATE TABLE prints it.",
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="BINLOG:POS", help="Valid from this position of the upstream's binlog on."),
]


@app.command("set")
def set_(table: Table, file: Structure, config: ConfigFile = DEFAULT_CONFIG, at: At = None) -> None:
    """Set a tracked structure by hand, if the producer stopped because of it. The producer must not run."""
    from producer.set_structure import set_structure
    from tailrace.assemble.settings import producer_config
    from tailrace.config.file import load
    from tailrace.probe_kafka import probe

    db, _, name = table.partition(".")
    if not db or not name:
        raise typer.BadParameter("write DATABASE.TABLE", param_hint="DATABASE.TABLE")
    position = re.fullmatch(r"(.+\.[0-9]{6,10}):([0-9]{1,10})", at) if at is not None else None
    if at is not None and position is None:
        raise typer.BadParameter("use a form like mysql-bin.000007:1234", param_hint="--at")
    settings = producer_config(load(config))
    probe(settings.bootstrap_servers, settings.kafka_security)
    epoch = set_structure(settings, (db, name), file, (position[1], int(position[2])) if position else None)
    where = at or f"{epoch.source_file}:{epoch.source_pos}"
    sys.stderr.write(f"epoch {epoch.epoch}: the structure of {table} is set from {where} on\n")

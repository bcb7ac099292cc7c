"""Reads the golden cases of ``golden/online_ddl.txt``: the tools' statements and the channel's results."""

from __future__ import annotations

from dataclasses import replace

from schemas.ddl.classify import classify
from schemas.errors import DownstreamError
from schemas.wire.epoch import SchemaChanged, TableChanged
from spark_consumer.ddl.online import translate_online
from spark_consumer.ddl.online_tables import NO_TABLES, OnlineTables, from_json
from spark_consumer.rules.ddl_options import DdlOptions
from tests.support.paths import GOLDEN

FILE = GOLDEN / "online_ddl.txt"
ON = DdlOptions(online_ddl=True)


def cases() -> list[tuple[str, list[str]]]:
    """Return title and lines of each case."""
    blocks = FILE.read_text().split("\n=== ")[1:]
    return [(lines[0], [line for line in lines[1:] if line]) for lines in (b.split("\n") for b in blocks)]


def renewed() -> str:
    """Return the file's text with the code's present results."""
    head = FILE.read_text().split("\n=== ")[0]
    blocks = ["\n".join([title, *run(lines)]) for title, lines in cases()]
    return "\n\n=== ".join([head.rstrip("\n"), *blocks]) + "\n"


def changed(statement: str) -> SchemaChanged:
    """Return a statement as it is in the log."""
    found = classify(statement, "app", "mysql")
    return SchemaChanged(
        statement, "app", found.kind, tuple(TableChanged(*table) for table in found.tables), "mysql", 0
    )


def run(lines: list[str]) -> list[str]:
    """Return a case's statements, each with its result."""
    tables, shown, has = NO_TABLES, list[str](), dict[tuple[str, str], str]()
    for line in lines:
        word, _, rest = line.partition(" ")
        if line.startswith("  "):
            continue
        shown.append(line)
        if word == "has":
            name, _, columns = rest.partition(" ")
            db, _, table = name.partition(".")
            has[db, table] = f"CREATE TABLE `{table}` {columns}"
        elif word == "rows":
            tables = OnlineTables(tuple(replace(hidden, rows=True) for hidden in tables.tables))
        elif word == "hidden":
            shown[-1] = " ".join(["hidden", ", ".join(sorted(map(".".join, tables.names)))]).strip()
        else:
            try:
                taken = translate_online(tables, changed(line), ON, lambda db, table: has.get((db, table)))
            except DownstreamError as error:
                shown.append(f"  stop {error.code}")
                continue
            tables = from_json(taken.tables.to_json())
            assert tables == taken.tables
            shown += [f"  {one.statement}" for one in taken.statements] or ["  -"]
    return shown

"""Kinds of DDL that random ones do not hit: each is tracked as SHOW CREATE TABLE and TABLE_MAPs have it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from compose.databases import Database
from producer.events.table_map import full_structure, read_table_map
from producer.structures.forms import matched
from schemas.ddl.table_definition import TableDefinition
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.binlogs.tracking import Tracker, table_maps, tracker_in

pytestmark = pytest.mark.servers

_WHITE = str.maketrans("␤␉␋␍", "\n\t\v\r")
_TEXT = (Path(__file__).parent / "ddl_kinds.sql").read_text()


def _kinds(flavor: str) -> Iterator[tuple[str, bool, list[str]]]:
    """The sql_mode, explicit_defaults_for_timestamp and the statements of each block for this flavor."""
    for block in _TEXT.split("\n#! ")[1:]:
        head, *lines = block.splitlines()
        who, mode, explicit = head.split()
        if who in ("both", flavor):
            yield mode.strip("-"), explicit == "on", [line.translate(_WHITE) for line in lines if line]


def _carry_out(tracker: Tracker, mode: str, explicit: bool, statements: list[str]) -> int:
    """How many of the statements the server took."""
    tracker.cursor.execute(
        f"SET SESSION sql_mode = '{mode}', explicit_defaults_for_timestamp = {int(explicit)}"
    )
    taken = sum(tracker.run(statement.replace("{db}", tracker.db)) for statement in statements)
    tracker.cursor.execute("SET SESSION sql_mode = ''")
    return taken


def _insert_into_each(tracker: Tracker) -> None:
    for db, table in list(tracker.catalog.tables):
        if db == tracker.db:
            # A SEQUENCE takes none.
            with suppress(pymysql.MySQLError):
                tracker.cursor.execute(f"INSERT IGNORE INTO `{table}` () VALUES ()")


def test_ddl_of_every_kind_is_tracked_as_the_server_carries_it_out(upstream: Database) -> None:
    kinds = list(_kinds(upstream.flavor))
    taken, seen = 0, set[tuple[str, str]]()
    with tracker_in(upstream, "kinds") as tracker:
        for mode, explicit, statements in kinds:
            tracker.begin("kinds")
            taken += _carry_out(tracker, mode, explicit, statements)
            tracker.check()
            begin = binlog_end(upstream)
            _insert_into_each(tracker)
            for body in table_maps(upstream, begin):
                event = read_table_map(body, tracker.flavor)
                known = tracker.catalog.tables[event.db, event.table]
                assert isinstance(known, TableDefinition)
                assert matched(replace(event, optional={}), known, tracker.flavor) == full_structure(event)
                seen.add((statements[0], event.table))
            for name in [name for name in tracker.catalog.tables if name[0] == "kinds"]:
                del tracker.catalog.tables[name]
    assert taken > 0.75 * sum(len(statements) for *_, statements in kinds)
    assert len(seen) > 0.7 * len(kinds)

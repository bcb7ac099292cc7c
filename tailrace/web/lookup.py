"""Looks into the log for the page: a row's history, newest first, and a table's structures at two points of time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any

from schemas.errors import ConfigError, LogError
from schemas.letter_case import lowered
from schemas.tables import QualifiedName
from schemas.wire.epoch import EpochCommitted
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rules.config import LogAddress
from tailrace.probe_kafka import probe
from tailrace.reader import EpochReader, Row
from tailrace.reader.display import value_text
from tailrace.reader.history import LookupPoint, answer_dict, find_structure

Part = dict[str, Any]
#: limits of one search
MOST_FOUND, MOST_ROWS, MOST_SECONDS = 50, 2_000_000, 10.0
_MOST_BYTES = 32 << 20  # of the values of the rows that are found
_CHUNK = 2_000  # offsets
# Row changes and epochs that are read together. The first run is short, so that it is read to its end.
_FIRST_RUN, _RUN, _MOST_EPOCHS = 20_000, 200_000, 2_000
_OPERATIONS = {"c": "insert", "u": "update", "d": "delete", "r": "copy"}


class Lookups:
    """Searches in the log of one pipeline, at most two at a time."""

    def __init__(self, log: LogAddress) -> None:
        self._log = log
        self._free = threading.BoundedSemaphore(2)

    def row_history(self, table: str, wanted: Mapping[str, str], before: int | None = None) -> Part:
        """Return the changes of a table's rows with certain values, the newest first.

        Args:
            wanted: values by column, as text; columns of the key, as a rule.
            before: only in epochs before this one.

        Returns:
            `changes`, and `continue_before`, the epoch before which a further search begins; None at the end.

        Raises TailraceError; TR164 for a table or values that cannot be searched, TR165 if two others are searching.
        """
        name = _table_name(table)
        if not wanted:
            raise ConfigError("TR164", "the row's key is missing", hint="write column=value, such as id=7")
        with self._searching() as reader, _time_limit() as stop:
            found = Search(name, dict(wanted), stop)
            run: list[EpochCommitted] = []
            most = _FIRST_RUN
            for epoch in self._backwards(before):
                if stop.is_set():
                    return found.result((run[0] if run else epoch).epoch + 1)
                if epoch.names_in_lower_case:
                    found.table = (lowered(name[0]), lowered(name[1]))
                if any((table.db, table.table) == found.table for table in epoch.tables):
                    run.append(epoch)
                if sum(one.rows for one in run) >= most or len(run) >= _MOST_EPOCHS:
                    if (ends := found.take(reader, run)) is not None:
                        return found.result(ends)
                    run, most = [], _RUN
            return found.result(found.take(reader, run) if run else None)

    def structures(self, table: str, at: str = "", until: str = "") -> Part:
        """Return a table's structure at a point of the log, another one later or earlier, and what differs.

        Args:
            at, until: ``""`` for the log's end, an epoch's number, ``gtid:SET``, or ``time:`` with a time zone.

        Raises TailraceError.
        """
        name = _table_name(table)
        with self._searching() as reader, _time_limit() as stop:
            epochs = list(reader.epochs("oldest", stop=stop))
            if stop.is_set():
                raise LogError(
                    "TR164",
                    f"the log's epochs cannot be read in {MOST_SECONDS:.0f} s",
                    hint="use `tailrace schema show`, which takes its time",
                )
            if epochs and epochs[-1].names_in_lower_case:
                name = lowered(name[0]), lowered(name[1])
            versions = reader.structures()
        answers = [
            answer_dict(find_structure(name, _point(text, epochs), epochs, versions), history=True)
            for text in (at, until)
        ]
        first, second = answers
        return {"at": first, "until": second, "difference": difference(first, second)}

    @contextmanager
    def _searching(self) -> Iterator[EpochReader]:
        if not self._free.acquire(blocking=False):
            raise ConfigError("TR165", "two searches are running", hint="wait until one of them ends")
        try:
            probe(self._log.bootstrap_servers, self._log.kafka_security)
            with EpochReader(
                self._log.bootstrap_servers, self._log.prefix, self._log.kafka_security
            ) as reader:
                yield reader
        finally:
            self._free.release()

    def _backwards(self, before: int | None) -> Iterator[EpochCommitted]:
        """Yield the epochs from the end of the log, or from before an epoch, to the first one that is kept."""
        reader = LogReader(self._log)
        low, high = reader.bounds()
        while high > low:
            start = max(low, high - _CHUNK)
            chunk = []
            for logged in reader.epochs(start):
                if logged.offset >= high:
                    break
                chunk.append(logged.record)
            yield from (epoch for epoch in reversed(chunk) if before is None or epoch.epoch < before)
            high = start


@contextmanager
def _time_limit() -> Iterator[threading.Event]:
    """Yield an event that is set when a search has taken its time."""
    stop = threading.Event()
    timer = threading.Timer(MOST_SECONDS, stop.set)
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()


class Search:
    """A search for rows, and what it has found.

    Attributes:
        stop: is set when the time is over.
    """

    def __init__(self, table: QualifiedName, wanted: dict[str, str], stop: threading.Event) -> None:
        self.table, self._wanted, self.stop = table, wanted, stop
        self._found: list[Part] = []
        self._cut: tuple[int, int] | None = None
        self._rows = self._size = 0
        self._is_first = True

    def take(self, reader: EpochReader, run: list[EpochCommitted]) -> int | None:
        """Look through a run of epochs, the newest first.

        Returns:
            the epoch before which a further search begins, if this one ends here; None if it goes on.
        """
        found: list[tuple[int, int, Part]] = []
        rows: Any = reader.find(run, lambda *name: name == self.table, self._may_match, self.stop)
        with closing(rows):
            for row in rows:
                if _has(row, self._wanted):
                    found.append((row.source["epoch"], row.seq, change(row)))
                    self._size += len(str(found[-1]))
                if self._size >= _MOST_BYTES:
                    self.stop.set()
        found.sort(key=lambda one: one[:2], reverse=True)
        is_first, self._is_first = self._is_first, False
        if self.stop.is_set() and not is_first:
            return run[0].epoch + 1
        if self.stop.is_set():
            self._keep(found[:MOST_FOUND], cut=(run[-1].epoch, run[0].epoch))
            return run[-1].epoch
        if len(found) > MOST_FOUND:
            return self._keep_newest(found)
        self._keep(found)
        return run[-1].epoch if len(self._found) >= MOST_FOUND or self._rows >= MOST_ROWS else None

    def _keep_newest(self, found: list[tuple[int, int, Part]]) -> int:
        """Keep the changes of the newest whole epochs; if there is only one, a part of it."""
        edge = found[MOST_FOUND][0]
        if whole := [one for one in found if one[0] > edge]:
            self._keep(whole)
            return edge + 1
        self._keep(found[:MOST_FOUND], cut=(edge, edge))
        return edge

    def _keep(self, found: list[tuple[int, int, Part]], cut: tuple[int, int] | None = None) -> None:
        self._found += [one for _, _, one in found]
        self._cut = cut

    def _may_match(self, key: Mapping[str, Any]) -> bool:
        """Count a row of the table. Return whether its key does not tell that it is another row."""
        self._rows += 1
        return all(plain(key[name]) == value for name, value in self._wanted.items() if name in key)

    def result(self, continue_before: int | None) -> Part:
        """Return what was found. Of the epochs from the first to the second in `cut` only a part is in it."""
        return {
            "table": ".".join(self.table),
            "key": self._wanted,
            "changes": self._found,
            "rows_read": self._rows,
            "cut": self._cut,
            "continue_before": continue_before,
        }


def _has(row: Row, wanted: Mapping[str, str]) -> bool:
    """Whether a row has all values, in its key or else in one of its images."""
    images = [image for image in (row.key, row.before, row.after) if image]
    return all(
        any(name in image and plain(image[name]) == value for image in images)
        for name, value in wanted.items()
    )


def plain(value: object) -> str:
    """Return a value as an operator writes it: text as it is, bytes in hexadecimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return "NULL" if value is None else value_text(value)


def change(row: Row) -> Part:
    """Return a row's change as plain data, with values as text of limited length."""
    before, after = row.before or {}, row.after or {}
    columns = [
        {
            "name": name,
            "before": value_text(before[name]) if name in before else None,
            "after": value_text(after[name]) if name in after else None,
            "changed": row.op == "u" and name in after and before.get(name) != after[name],
        }
        for name in dict.fromkeys([*before, *after])
    ]
    return {
        "epoch": row.source["epoch"],
        "seq": row.seq,
        "operation": _OPERATIONS.get(row.op, row.op),
        "gtid": row.source["gtid"],
        "position": f"{row.source['file']}:{row.source['pos']}",
        "committed_ms": row.source["ts_ms"],
        "key": {name: value_text(value) for name, value in row.key.items()},
        "columns": columns,
    }


def _table_name(text: str) -> QualifiedName:
    db, _, table = text.strip().partition(".")
    if not db or not table:
        raise ConfigError(
            "TR164", f"{text[:100]!r} is no table", hint="write database.table, such as shop.orders"
        )
    return db, table


def parse_key(text: str) -> dict[str, str]:
    """Return the columns and values of ``id=7`` lines. Raises ConfigError TR164."""
    found = {}
    for line in filter(str.strip, text.splitlines()):
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise ConfigError(
                "TR164", f"{line[:80]!r} is not column=value", hint="write one column a line: id=7"
            )
        found[name.strip()] = value.strip()
    return found


def _point(text: str, epochs: list[EpochCommitted]) -> LookupPoint:
    text = text.strip()
    if text.startswith("gtid:"):
        return LookupPoint(gtids=text.removeprefix("gtid:"))
    if text.startswith("time:"):
        return LookupPoint(epoch=_epoch_at(text.removeprefix("time:"), epochs))
    number = text.removeprefix("epoch:")
    if number and not (number.isascii() and number.isdecimal() and len(number) < 19):
        raise ConfigError(
            "TR164",
            f"{text[:80]!r} is no point of the log",
            hint="write an epoch's number, gtid:SET, time:2026-01-31T12:00:00Z, or nothing for the end",
        )
    return LookupPoint(epoch=int(number) if number else None)


def _epoch_at(text: str, epochs: list[EpochCommitted]) -> int | None:
    """Return the last epoch whose transactions were committed up to a time."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("it has no time zone")
    except ValueError as error:
        raise ConfigError(
            "TR164", f"{text[:80]!r} is no time: {error}", hint="write 2026-01-31T12:00:00Z"
        ) from None
    ms = moment.timestamp() * 1000
    earlier = [epoch.epoch for epoch in epochs if epoch.last_commit_ms <= ms]
    return earlier[-1] if earlier else (epochs[0].epoch - 1 if epochs else None)


def difference(first: Part, second: Part) -> list[Part]:
    """Return the columns and the key that differ between two structures: `name`, and its text in each, or None."""
    sides = [{column["name"]: _column(column) for column in one["columns"]} for one in (first, second)]
    found = [
        {"name": name, "at": sides[0].get(name), "until": sides[1].get(name)}
        for name in dict.fromkeys([*sides[0], *sides[1]])
        if sides[0].get(name) != sides[1].get(name)
    ]
    orders = [[name for name in side if name in sides[0] and name in sides[1]] for side in sides]
    if orders[0] != orders[1]:
        found.append(
            {"name": "(order of columns)", "at": ", ".join(orders[0]), "until": ", ".join(orders[1])}
        )
    if first["key"] != second["key"]:
        keys = [", ".join(one["key"]) or "none" for one in (first, second)]
        found.append({"name": "(primary key)", "at": keys[0], "until": keys[1]})
    return found


def _column(column: Part) -> str:
    charset = f" {column['charset']}" if column["charset"] else ""
    return f"{column['type']}{charset} {'NULL' if column['nullable'] else 'NOT NULL'}"

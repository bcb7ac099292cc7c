"""Keeps what a validation has proved on the downstream, so that the next start goes on where it was killed."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any
from uuid import uuid4

from spark_consumer.apply.tables import channel_tables, validation_run
from spark_consumer.apply.tables.validation import ProvedPosition
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Session
from tailrace.validate.protocol import Key
from tailrace.validate.tables import START, Collations, ReadUpTo, TablePair

_FORMAT = 1
_PAUSE = 1.0  # seconds between two writes of a table that is being read
#: of a state that is written; if very many keys differ, the former state stays
_MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Proved:
    """What is proved of a table.

    Attributes:
        position: the channel's position before the structures were read.
        structure: the digest of the structures.
        upto: how far it is read; None at its end.
        rows, chunks: what was read.
        open: the keys up to there that are not proved equal.
    """

    position: ProvedPosition
    structure: str
    upto: ReadUpTo | None = START
    rows: int = 0
    chunks: int = 0
    open: frozenset[Key] = frozenset()

    def to_json(self) -> str:
        upto = None if self.upto is None else [self.upto.listed, _hex(self.upto.low)]
        found = {
            "position": asdict(self.position),
            "structure": self.structure,
            "upto": upto,
            "rows": self.rows,
            "chunks": self.chunks,
            "open": [_hex(key) for key in sorted(self.open)],
        }
        return json.dumps(found)

    @classmethod
    def from_json(cls, text: str) -> Proved:
        """Return what ``to_json`` has written."""
        found = json.loads(text)
        upto = found["upto"]
        return cls(
            ProvedPosition(**found["position"]),
            found["structure"],
            None if upto is None else ReadUpTo(upto[0], _key(upto[1])),
            found["rows"],
            found["chunks"],
            frozenset(tuple(map(bytes.fromhex, key)) for key in found["open"]),
        )


def _hex(key: Key | None) -> list[str] | None:
    return None if key is None else [part.hex() for part in key]


def _key(parts: list[str] | None) -> Key | None:
    return None if parts is None else tuple(map(bytes.fromhex, parts))


class SavedRun:
    """The state of one validation. Another process that goes on with it is the only one that writes from then on.

    Args:
        what: what decides which rows are validated; only a run with the same is gone on with.
        restart: whether to forget what was proved before.
    """

    def __init__(
        self, session: Session, channel: ChannelKey, what: tuple[Any, ...], restart: bool = False
    ) -> None:
        self._session, self._process = session, uuid4().hex
        self._run = channel, _digest(_FORMAT, *what)
        self._next_write = 0.0
        channel_tables.install(session)
        found = validation_run.take_over(session, *self._run, self._process, restart)
        self._tables = {table: Proved.from_json(state) for table, state in found.items()}

    def take(self, table: str) -> Proved | None:
        """Return what a former process has proved of a table; only once, because later it is no longer true."""
        return self._tables.pop(table, None)

    def write(self, table: str, proved: Proved, open_keys: Collection[Key]) -> None:
        """Write what is proved of a table: at its end, and otherwise not more than once in a second."""
        if proved.upto is not None and time.monotonic() < self._next_write:
            return
        state = replace(proved, open=frozenset(open_keys)).to_json()
        if len(state) <= _MOST_BYTES:
            validation_run.write(self._session, *self._run, self._process, table, state)
        self._next_write = time.monotonic() + _PAUSE

    def remove(self) -> None:
        """Forget the run, which has ended."""
        validation_run.remove(self._session, *self._run, self._process)


def structure_of(pair: TablePair, collations: tuple[Collations, Collations]) -> str:
    """Return a digest of what decides how a pair's rows are compared, and in which order they are read."""
    tables = [replace(table, average_row_bytes=0) for table in (*pair.sources, pair.target)]
    above, below = collations
    orders = [
        sorted(found.get((table.db, table.name), {}).items())
        for found, some in ((above, pair.sources), (below, [pair.target]))
        for table in some
    ]
    return _digest(tables, pair.division, sorted(pair.converted), sorted(pair.documents), orders)


def _digest(*values: object) -> str:
    return sha256(repr(values).encode()).hexdigest()

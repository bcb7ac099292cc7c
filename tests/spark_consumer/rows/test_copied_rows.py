"""Laws of copies: with compaction, in slices of any size, repeated from anywhere, the upstream's rows come out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.structure import TableStructure
from schemas.wire.avro_schema import read_record, row_schema
from schemas.wire.epoch import BEGIN, END
from schemas.wire.rows import HEADER_SIZE
from spark_consumer.epochs.slices import Slice, cut
from spark_consumer.rows.compact import compact
from tests.support.applying.copying import COPIED, Copier
from tests.support.applying.model import TABLES, Model, Row, first, fold
from tests.support.epochs.fake_topic import row_key

_KEYED = sorted(set(COPIED) - {"bag"})
#: the unique keys of the model's tables
_UNIQUE: dict[str, list[Any]] = {
    "uniques": [lambda r: (r["n"],), lambda r: (fold(r["s"]),)],
    "prefixed": [lambda r: (first(r["s"]), r["n"])],
    "computed": [lambda r: (r["g"],)],
    "named": [lambda r: (fold(r["s"]),)],
}


_STRUCTURES = {
    row_schema(structure).header: structure for structure in map(Model("d", Random(0)).structure, TABLES)
}


def _structure(value: bytes) -> TableStructure:
    return _STRUCTURES[value[:HEADER_SIZE]]


@cache
def _parsed(structure: TableStructure) -> Any:
    return fastavro.parse_schema(json.loads(row_schema(structure).text))


@dataclass
class Downstream:
    """The downstream's rows by their keys' bytes, and the tables of which a copy runs there."""

    copier: Copier
    rows: dict[str, dict[bytes, Row]] = field(default_factory=lambda: {table: {} for table in _KEYED})
    incomplete: set[str] = field(default_factory=set)

    def apply(self, slice_: Slice, *, repeats: bool) -> None:
        """Apply a slice as compaction plans it; repeated, a row gives way to another with its unique value."""
        copy = slice_.first.copy
        if copy is not None and copy.step == BEGIN:
            assert not repeats
            self.rows[copy.table].clear()
            self.incomplete.add(copy.table)
            return
        tolerant = {table for _, table in slice_.incomplete}
        assert tolerant <= self.incomplete or repeats
        known = self.copier.log.known.values()
        safe = {row_schema(one).header for one in known if repeats or one.table in tolerant}
        nets = []
        for part in slice_.ranges:
            read = self.copier.log._read(part)
            kept = [
                pair
                for pair in zip(read.keys, read.values, strict=True)
                if _structure(pair[1]).table in _KEYED
            ]
            nets.append(compact([key for key, _ in kept], [value for _, value in kept], frozenset(safe)))
        for key, value in (pair for net in nets for pair in net.gone):
            found = self.rows[_structure(value).table].pop(key, None)
            assert found is not None or value[:HEADER_SIZE] in safe
        self._write([pair for net in nets for pair in net.written], repeats)
        if (last := slice_.last.copy) is not None and last.step == END:
            self.incomplete.discard(last.table)

    def _write(self, written: Sequence[tuple[bytes, bytes]], repeats: bool) -> None:
        for key, value in written:
            row = read_record(_parsed(_structure(value)), value[HEADER_SIZE:])["after"]
            table = _structure(value).table
            rows = self.rows[table]
            assert key not in rows
            for unique in _UNIQUE.get(table, []):
                taken = unique(row)
                others = [one for one, there in rows.items() if None not in taken and unique(there) == taken]
                assert repeats or not others
                for other in others:
                    del rows[other]
            rows[key] = row

    def check(self) -> None:
        """Check that complete tables have the upstream's rows, and the others some of them."""
        for table in _KEYED:
            structure = self.copier.model.structure(table)
            wanted = {
                row_key(structure, row): row for row in self.copier.states[self.copier.published][table]
            }
            if table in self.incomplete:
                assert self.rows[table].items() <= wanted.items()
            else:
                assert self.rows[table] == wanted


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32), sizes=st.lists(st.integers(1, 60), min_size=4, max_size=4))
def test_a_copy_among_changes_ends_with_the_upstreams_rows(seed: int, sizes: list[int]) -> None:
    random = Random(seed)
    model = Model("d", random)
    for _ in range(4):
        model.run(15)
    copier = Copier(model, random, copied=_KEYED)
    downstream = Downstream(copier)
    for table in _KEYED:
        copier.begin(table, again=False)
    applied = begun = 0
    for size in sizes:
        copier.some_steps(12)
        if size == sizes[-1]:
            copier.finish()
        for slice_ in cut(copier.log.logged[applied:], size, 1 << 40):
            downstream.apply(slice_, repeats=False)
            begun = slice_.last.epoch + 1 if slice_.ddl else begun
        applied = len(copier.log.logged)
        downstream.check()
        # A rewind never goes back over the start of a copy.
        for slice_ in cut(copier.log.logged[random.randint(begun, applied) :], size, 1 << 40):
            downstream.apply(slice_, repeats=True)
        downstream.check()

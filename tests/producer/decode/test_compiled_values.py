"""Values of every type come to the same bytes in compiled code and in the publisher's own."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from producer.decode.open_group import EventFile
from producer.decode.plain_groups import BlockPart, PlainGroups
from producer.decode.row_decoder import ImageLacksColumns
from producer.decode.rows_events import DecodedTable, KnownTables
from producer.epochs.open_epoch import OpenEpoch
from schemas.binlog import framing
from schemas.structure import Column, TableStructure
from schemas.types.json_binary import double_text
from schemas.varint import encode_bytes, encode_long
from tests.support.binlogs.binary_json import document
from tests.support.binlogs.epochs import compiled_groups
from tests.support.binlogs.json_changes import any_change, any_value

_FILE = EventFile("s", "b.000001", encode_bytes(b"b.000001"), 0, 0)
_ID = bytes((7, 0, 0, 0, 0, 0))
_KINDS = {"write": framing.WRITE_ROWS, "update": framing.UPDATE_ROWS, "delete": framing.DELETE_ROWS}
_PARTIAL = framing.PARTIAL_UPDATE_ROWS

Value = Callable[[random.Random], bytes]


def _raw(size: int) -> Value:
    """Any bytes, often with the lowest and the highest of each."""
    return lambda rng: rng.choice(
        (
            rng.randbytes(size),
            bytes(size),
            b"\xff" * size,
            b"\x80".ljust(size, b"\0"),
            rng.randbytes(1).ljust(size, b"\0"),
        )
    )


def _counted(size: int, *texts: str, most: int = 40) -> Value:
    def make(rng: random.Random) -> bytes:
        data = rng.choice(
            (
                b"",
                rng.randbytes(rng.randrange(most)),
                *(text.encode()[: rng.randrange(most)] for text in texts),
            )
        )
        return len(data).to_bytes(size, "little") + data

    return make


def _decimal(precision: int, scale: int) -> tuple[Column, Value]:
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    whole = precision - scale
    size = whole // 9 * 4 + sizes[whole % 9] + scale // 9 * 4 + sizes[scale % 9]
    return Column("x", f"decimal({precision},{scale})", 246, precision << 8 | scale, True), _raw(size)


def _json_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 4 else 7)
    if kind < 2:
        return rng.choice(
            (None, True, False, 0, -1, 32767, -32768, 1 << 20, -(1 << 40), (1 << 63) + 5, 1 << 33)
        )
    if kind < 4:
        return rng.choice(
            (rng.random(), rng.random() * 10 ** rng.randrange(-30, 30), 1e15, 1e-5, -0.0, 2.5e300)
        )
    if kind < 7:
        return rng.choice(("", "plain", 'a"b\\c\n\t\x01\x7f', "grüße 日本 🎉", "x" * 300, "bad\udcff"))
    if kind == 7:
        return [_json_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {
        f"{name}é\n"[: rng.randrange(1, 9)]: _json_value(rng, depth + 1)
        for name in rng.sample(range(10**6), 3)
    }


def _json(rng: random.Random) -> bytes:
    made = document(_json_value(rng), large=rng.random() < 0.2)
    if rng.random() < 0.15:
        at = rng.randrange(len(made))
        made = made[:at] + rng.randbytes(1) + made[at + 1 :]
    if rng.random() < 0.05:
        made = b""
    return struct.pack("<I", len(made)) + made


def _column(code: int, meta: int, sql_type: str = "x", nullable: bool = True, **more: Any) -> Column:
    return Column("x", sql_type, code, meta, nullable, **more)


def _datetime(rng: random.Random) -> bytes:
    packed = 0x8000000000 + (2026 * 13 + rng.randrange(13) << 22) + rng.randrange(1 << 22)
    return packed.to_bytes(5, "big") + rng.randrange(10**6).to_bytes(3, "big")


_TEXT = "plain text äöü 日本語 🎉 and more of it"
_MEMBERS = ("a", "", "größer", "x" * 200, "日本")
_POOL: list[tuple[Column, Value]] = [
    *((_column(code, 0, unsigned=unsigned), _raw(size)) for code, size in ((1, 1), (2, 2), (9, 3), (3, 4), (8, 8))
      for unsigned in (False, True)),
    (_column(4, 4), _raw(4)),
    (_column(5, 8), _raw(8)),
    *(_decimal(*digits) for digits in ((1, 0), (1, 1), (5, 2), (9, 9), (10, 2), (18, 9), (40, 20), (65, 30), (65, 0))),
    *((_column(16, bits), _raw((bits + 7) // 8)) for bits in (1, 12, 64)),
    *((_column(15, 60, charset=name), _counted(1, _TEXT)) for name in ("utf8mb4", "latin1", "ascii", "ucs2", "sjis")),
    (_column(15, 3000, charset="utf8mb4", nullable=False), _counted(2, _TEXT * 100, most=3000)),
    (_column(254, 40, charset="utf8mb3"), _counted(1, _TEXT)),
    *((_column(252, size, charset="latin1"), _counted(size, _TEXT * 5, most=200)) for size in (1, 2, 3, 4)),
    (_column(252, 2, charset="binary", nullable=False), _counted(2, _TEXT)),
    (_column(254, 45, charset="binary"), _counted(1, _TEXT)),
    (_column(255, 4), _counted(4, _TEXT)),
    (_column(10, 0), _raw(3)),
    (_column(13, 0), _raw(1)),
    *((_column(code, fsp), _raw(size + (fsp + 1) // 2)) for fsp in range(7)
      for code, size in ((17, 4), (18, 5), (19, 3))),
    (_column(18, 6, nullable=False), _datetime),
    (_column(17, 3), lambda rng: rng.randbytes(4) + rng.randrange(9999).to_bytes(2, "big")),
    (_column(247, 1, charset="utf8mb4", members=_MEMBERS), lambda rng: bytes((rng.randrange(7),))),
    (_column(247, 2, charset="utf8mb4", members=_MEMBERS), lambda rng: bytes((rng.randrange(7), 0))),
    (_column(248, 1, charset="utf8mb4", members=("a", "größer", "c")), lambda rng: bytes((rng.randrange(9),))),
    (_column(248, 8, charset="utf8mb4", members=tuple(map(str, range(64)))), _raw(8)),
    (_column(245, 4), _json),
]  # fmt: skip


def _table(rng: random.Random) -> tuple[TableStructure, list[Value]]:
    chosen = [rng.choice(_POOL) for _ in range(rng.choice((1, 3, 8, 9, 17)))]
    columns = tuple(
        Column(**{**vars(column), "name": f"c{number}"}) for number, (column, _) in enumerate(chosen)
    )
    keys = [column.name for column in columns if not column.nullable]
    return TableStructure("d", "t", columns, tuple(rng.sample(keys, min(2, len(keys))))), [
        make for _, make in chosen
    ]


def _image(rng: random.Random, structure: TableStructure, values: list[Value], logged: int = -1) -> bytes:
    nulls, content, rank = 0, b"", 0
    for number, (column, make) in enumerate(zip(structure.columns, values, strict=True)):
        if not logged >> number & 1:
            continue
        if rng.random() < (0.15 if column.nullable else 0.01):
            nulls |= 1 << rank
        else:
            content += make(rng)
        rank += 1
    return nulls.to_bytes((rank + 7) // 8, "little") + content


def _event(
    rng: random.Random,
    kind: str,
    structure: TableStructure,
    values: list[Value],
    logged: tuple[int, int] = (-1, -1),
) -> bytes:
    """An event whose images have these columns, as bits."""
    images = b""
    for _ in range(rng.randrange(1, 4)):
        first = _image(rng, structure, values, logged[0])
        images += first
        if kind == "update":
            same = logged[0] == logged[1] and rng.random() < 0.3
            images += first if same else _image(rng, structure, values, logged[1])
    if rng.random() < 0.05:
        images = images[: rng.randrange(len(images))]
    return _framed(_KINDS[kind], len(values), images, logged if kind == "update" else logged[:1])


def _framed(kind: int, width: int, images: bytes, sides: tuple[int, ...]) -> bytes:
    size = (width + 7) // 8
    bitmap = b"".join((side & (1 << 8 * size) - 1).to_bytes(size, "little") for side in sides)
    body = _ID + b"\1\0\2\0" + bytes((width,)) + bitmap + images
    return framing.HEADER.pack(1, kind, 1, framing.HEADER_SIZE + len(body), 0, 0) + body


def _plain(table: DecodedTable, kind: int, event: bytes) -> tuple[list[bytes], list[bytes], Any] | None:
    """What the publisher's own code makes of an event; None if it refuses it."""
    keys, values, headers = list[bytes](), list[bytes](), dict[int, Any]()
    header, images = table.forms[kind].parse(event, 0)
    names = encode_bytes(b"d") + encode_bytes(b"t")
    tables = (encode_long(1) + names, encode_long(1 | 0x10000) + names)
    source = b"\2\0" + _FILE.source_name + encode_long(4) + encode_long(5) + b"P"
    try:
        _, end = header.decode(
            event, images, len(event), 0, encode_long(3), *tables, source, keys.append, values.append, headers
        )  # fmt: skip
    except (ValueError, LookupError, struct.error):
        return None
    return (keys, values, headers) if end == len(event) else None


@cache
def _compiled() -> PlainGroups:
    return compiled_groups("mysql")


def _known(structure: TableStructure) -> tuple[DecodedTable, KnownTables]:
    """A table, and what is known of it."""
    known = KnownTables()
    table = DecodedTable(structure, note=known.variants.append)
    known.tables.append((b"body", table))
    return table, known


def _decoded(
    table: DecodedTable, event: bytes, known: KnownTables
) -> tuple[list[bytes], list[bytes], Any] | None:
    part = BlockPart(event, 0, len(event), 4, _FILE, OpenEpoch(3, 0.0), known, b"P")
    decoded, _, _ = _compiled().open_rows(part, b"\2\0", 5, {_ID: table})
    return (decoded.keys, decoded.values, decoded.headers(0)) if decoded.end == len(event) else None


@pytest.mark.parametrize("kind", _KINDS)
def test_rows_of_any_columns(kind: str) -> None:
    rng = random.Random(kind)
    decoded = 0
    for _ in range(120):
        structure, values = _table(rng)
        table, known = _known(structure)
        for _ in range(20):
            event = _event(rng, kind, structure, values)
            plain, compiled = _plain(table, _KINDS[kind], event), _decoded(table, event, known)
            if compiled is not None:
                assert compiled == plain, (structure, event.hex())
                decoded += 1
    # It leaves alone what it is not sure of: many of these values are none that a server would write.
    assert decoded > 300


@pytest.mark.parametrize("kind", _KINDS)
def test_rows_of_images_that_lack_columns(kind: str) -> None:
    rng = random.Random(kind)
    decoded = 0
    for _ in range(150):
        structure, values = _table(rng)
        every, (table, known) = (1 << len(values)) - 1, _known(structure)
        numbers = {column.name: number for number, column in enumerate(structure.columns)}
        key = sum(1 << numbers[name] for name in structure.key) or every
        for _ in range(12):
            some = rng.choice((key, every, key | rng.getrandbits(len(values))))
            logged = some, rng.choice((rng.getrandbits(len(values)) or every, key, every))
            event = _event(rng, kind, structure, values, logged)
            plain, compiled = _plain(table, _KINDS[kind], event), _decoded(table, event, known)
            if compiled is not None:
                assert compiled == plain, (structure, event.hex())
                decoded += logged != (every, every)
    assert decoded > 150


_DOCUMENTS = TableStructure(
    "d",
    "t",
    tuple(
        replace(_column(code, 4 if code == 245 else 0), name=f"c{n}")
        for n, code in enumerate((3, 245, 3, 245, 245))
    ),
    ("c0",),
)


def _partial(rng: random.Random, logged: tuple[int, int]) -> bytes:
    """An UPDATE with diffs of documents, whose images have these columns."""
    images = b""
    for _ in range(rng.randrange(1, 3)):
        key, trees = rng.randbytes(4), {n: any_value(rng) for n in (1, 3, 4)}
        nulls = {n: rng.random() < 0.1 for n in range(1, 5)}
        before = {
            n: b"" if nulls[n] else _long(document(trees[n])) if n in trees else rng.randbytes(4)
            for n in nulls
        }
        after, bits = {0: key if rng.random() < 0.9 else rng.randbytes(4), 2: rng.randbytes(4)}, 0
        for rank, (n, tree) in enumerate(trees.items()):
            if isinstance(tree, (dict, list)) and not nulls[n] and rng.random() < 0.7:
                after[n] = _long(b"".join(any_change(rng, tree) for _ in range(rng.randrange(3))))
                bits |= 1 << rank
            else:
                after[n] = _long(document(any_value(rng)))
        options = rng.choice((b"\1" + bytes((bits,)), b"\1" + bytes((rng.randrange(8),)))) if bits else b"\0"
        old = _some({0: key} | before, {n for n in nulls if nulls[n]}, logged[0])
        images += old + options + _some(after, {2} if rng.random() < 0.2 else set(), logged[1])
    return _framed(_PARTIAL, 5, images, logged)


def _long(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def _some(values: dict[int, bytes], nulls: set[int], logged: int) -> bytes:
    chosen = [n for n in sorted(values) if logged >> n & 1]
    bits = sum(1 << rank for rank, n in enumerate(chosen) if n in nulls)
    return bytes((bits,)) + b"".join(values[n] for n in chosen if n not in nulls)


@pytest.mark.parametrize("seed", range(6))
def test_documents_that_come_as_diffs(seed: int) -> None:
    rng, (table, known), decoded = random.Random(seed), _known(_DOCUMENTS), 0
    for _ in range(300):
        logged = rng.choice(((31, 31), (31, 31), (31, 10), (27, 26), (11, 8), (1, 31)))
        event = _partial(rng, logged)
        with suppress(ImageLacksColumns):
            plain, compiled = _plain(table, _PARTIAL, event), _decoded(table, event, known)
            if compiled is not None:
                assert compiled == plain, event.hex()
                decoded += 1
    assert decoded > 60


@pytest.mark.parametrize("column", range(len(_POOL)))
def test_values_of_each_column(column: int) -> None:
    """One column alone, so that one strange value does not hide the others."""
    rng = random.Random(column)
    chosen, make = _POOL[column]
    structure, decoded = TableStructure("d", "t", (chosen,)), 0
    table, known = _known(structure)
    for _ in range(400):
        event = _event(rng, "write", structure, [make])
        compiled = _decoded(table, event, known)
        if compiled is not None:
            assert compiled == _plain(table, framing.WRITE_ROWS, event), event.hex()
            decoded += 1
    assert decoded > 30


def test_texts_of_doubles() -> None:
    """Python's ``repr`` finds the shortest decimal number too."""
    from producer.decode.compiled.arrays import POWERS
    from producer.decode.compiled.json_text import double

    rng, out = random.Random(1), np.empty(64, np.uint8)
    numbers = [
        0.0,
        5e-324,
        2.0**-1022,
        1.7976931348623157e308,
        9007199254740993.0,
        1e23,
        4.35,
        999999999999999.9,
    ]
    for _ in range(20_000):
        numbers += [
            struct.unpack("<d", rng.randbytes(8))[0],
            round(rng.random() * 10 ** rng.randrange(17), rng.randrange(10)),
            2.0 ** rng.randrange(-1074, 1023),
            float(rng.randrange(-(10**18), 10**18)),
        ]
    for number in filter(math.isfinite, numbers):
        for signed in (number, -number):
            size = double(np.frombuffer(struct.pack("<d", signed), np.uint8), 0, out, 0, POWERS)
            assert out[:size].tobytes().decode() == double_text(signed)

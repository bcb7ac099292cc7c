"""Compiled code makes the same of rows as Python, and leaves to it what it does not know."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schemas.sql import changed
from schemas.sql import parameters as module
from schemas.sql.changed import compile_comparison
from schemas.sql.parameters import PreparedRows, compile_parameters, use_compiled
from schemas.structure import Column, TableStructure
from schemas.types import union_tags
from schemas.types.decimals import unscaled_avro
from schemas.types.enum_set import error_value, member_texts
from schemas.types.integer import unsigned_decimal
from schemas.varint import encode_bytes, encode_long
from tests.support.binlogs.compiled import compiled_library

Make = Callable[[random.Random], bytes]
_MEMBERS = ("a", "", "größer", "x" * 200, "日本")


def _number(bits: int, *, unsigned: bool = False) -> Make:
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return lambda rng: encode_long(
        rng.choice((low, high, 0, 1, 63, 64, rng.randint(low, high), rng.randint(low, high) >> bits // 2))
    )


def _unsigned(rng: random.Random) -> bytes:
    return unsigned_decimal(
        rng.choice((0, 127, 128, (1 << 64) - 1, 1 << 63, rng.getrandbits(rng.randint(1, 64))))
    )


def _counted(*sizes: int) -> Make:
    return lambda rng: encode_bytes(rng.randbytes(rng.choice((*sizes, 3, rng.randrange(40)))))


def _long(*sizes: int) -> Make:
    """Bytes of which some are long, but not so many that a block is left to Python for its size."""
    return lambda rng: encode_bytes(rng.randbytes(rng.choice(sizes) if rng.random() < 0.005 else 5))


def _decimal(precision: int, scale: int) -> tuple[Column, Make]:
    most = 10**precision - 1

    def make(rng: random.Random) -> bytes:
        ends = (0, 1, -1, most, -most, 10**scale, -(10**scale), 127, -128, -129, 128)
        return unscaled_avro(
            max(-most, min(most, rng.choice((*ends, rng.randint(-most, most) >> rng.randrange(200)))))
        )

    return Column("x", f"decimal({precision},{scale})", 246, precision << 8 | scale, False), make


def _float(rng: random.Random) -> bytes:
    return rng.choice(
        (struct.pack("<f", rng.uniform(-1e30, 1e30)), bytes(4), b"\0\0\0\x80", b"\xff\xff\x7f\x7f")
    )


def _double(rng: random.Random) -> bytes:
    return struct.pack("<d", rng.choice((rng.uniform(-1e300, 1e300), 0.0, -0.0, 5e-324, rng.random())))


def _member(column: Column) -> Make:
    return lambda rng: encode_bytes(rng.choice(member_texts(column)).encode())


def _column(code: int, meta: int = 0, **more: Any) -> Column:
    return Column("x", "x", code, meta, False, **more)


_ENUM, _SET = _column(247, 1, members=_MEMBERS), _column(248, 1, members=_MEMBERS)
_POOL: list[tuple[Column, Make]] = [
    *((_column(code, unsigned=unsigned), _number(bits, unsigned=unsigned))
      for code, bits in ((1, 8), (2, 16), (9, 24), (3, 32)) for unsigned in (False, True)),
    (_column(8), _number(64)),
    (_column(8, unsigned=True), _unsigned),
    (_column(4, 4), _float),
    (_column(5, 8), _double),
    *(_decimal(*digits) for digits in ((1, 0), (1, 1), (5, 2), (9, 9), (18, 9), (19, 0), (38, 38), (40, 20), (65, 30),
                                       (65, 0))),
    (_column(16, 12), lambda rng: encode_bytes(rng.randbytes(2))),
    (_column(16, 64), lambda rng: encode_bytes(rng.randbytes(8))),
    (_column(15, 60, charset="utf8mb4"), _counted(0, 250, 251, 252)),
    (_column(252, 3, charset="latin1"), _long(65_535, 65_536)),
    (_column(252, 3, charset="binary"), _long(70_000, 250)),
    (_column(245, 4), _counted(300)),
    (_column(18, 6), lambda rng: encode_bytes(b"2026-11-28 01:02:03.000456")),
    (_column(11), lambda rng: encode_bytes(b"-838:59:59")),
    (_ENUM, _member(_ENUM)),
    (_SET, _member(_SET)),
]  # fmt: skip


def _table(rng: random.Random) -> tuple[TableStructure, list[Make]]:
    chosen = [rng.choice(_POOL) for _ in range(rng.choice((1, 2, 5, 9, 64, 65, 130)))]
    columns, makes = [], []
    for number, (like, make) in enumerate(chosen):
        column = Column(
            f"c{number}", like.sql_type, like.code, like.meta, rng.random() < 0.5,
            unsigned=like.unsigned, charset=like.charset, members=like.members,
        )  # fmt: skip
        columns.append(column)
        makes.append(_nullable(column, make))
    return TableStructure("d", "t", tuple(columns), ()), makes


def _nullable(column: Column, make: Make) -> Make:
    tag = union_tags(column)[0]
    if not column.nullable:
        return lambda rng: tag + make(rng)
    return lambda rng: b"\0" if rng.random() < 0.3 else tag + make(rng)


def _row(rng: random.Random, makes: Sequence[Make], seq: int) -> bytes:
    head, source = bytes(10) + b"\2c\2", encode_long(seq) + encode_long(rng.choice((0, 77, 1 << 33)))
    return head + b"".join(make(rng) for make in makes) + b"\0" + source + b"the rest"


def _damaged(rng: random.Random, row: bytes) -> bytes:
    at = rng.randrange(13, len(row))
    if rng.random() < 0.5:
        return row[:at]
    return row[:at] + rng.choice((rng.randbytes(1), b"\xff" * 12, b"\x80", b"\0", b"\1")) + row[at + 1 :]


@pytest.fixture(autouse=True)
def _without_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_compiled", [])
    monkeypatch.setattr(changed, "_compiled", [])


def _outcome(make: Callable[..., Any], *rows: Any) -> Any:
    try:
        return make(*rows)
    except Exception as error:
        return type(error), str(error)


def _made(make: Any, rows: Sequence[bytes]) -> PreparedRows | None:
    """What compiled code itself makes of rows."""
    [compiled] = module._compiled
    return compiled(rows, make._layout, placed=make._placed)


@pytest.mark.parametrize("seed", range(40))
def test_the_values_are_those_of_python(seed: int) -> None:
    rng = random.Random(seed)
    structure, makes = _table(rng)
    parameters = compile_parameters(structure, tuple(column.name for column in structure.columns))
    rows = [_row(rng, makes, seq) for seq in range(40)]
    blocks = [
        rows,
        rows[:16],
        *([*rows[:20], _damaged(rng, row), *rows[20:]] for row in rows for _ in range(3)),
    ]
    for make in (parameters.after, parameters.placed):
        module._compiled.clear()
        expected = [_outcome(make, block) for block in blocks]
        use_compiled(compiled_library())
        assert [_outcome(make, block) for block in blocks] == expected
        assert _made(make, rows) == expected[0]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (_column(4, 4), struct.pack("<f", 1e-42)),
        (_ENUM, encode_bytes(error_value(_ENUM).encode())),
        (_column(15, 60, charset="ucs2"), b"\2" + encode_bytes(b"\xd8\0")),
        (_column(252, 4, charset="binary"), encode_bytes(bytes(3 << 20))),
        (_column(5, 8), struct.pack("<d", float("inf"))),
        (_column(8), b"\xff" * 9 + b"\2"),
        (_column(8, unsigned=True), encode_bytes(b"\1" + bytes(8))),
    ],
)
def test_what_is_seldom_is_left_to_python(column: Column, value: bytes) -> None:
    structure = TableStructure("d", "t", (column,), ())
    parameters = compile_parameters(structure, (column.name,))
    rows = [bytes(10) + b"\2c\2" + value + b"\0\0\0"] * 16
    expected = _outcome(parameters.after, rows)
    use_compiled(compiled_library())
    assert _outcome(parameters.after, rows) == expected
    assert _made(parameters.after, rows) is None


def test_columns_that_are_not_written_are_left_to_python() -> None:
    columns = tuple(Column(name, "int", 3, 0, False) for name in ("a", "b"))
    parameters = compile_parameters(TableStructure("d", "t", columns, ()), ("a",))
    use_compiled(compiled_library())
    rows = [bytes(10) + b"\2c\2\4\6\0\0\0"] * 16
    assert parameters.after(rows) == PreparedRows([], [0] * 16, [b"\2" + bytes(7)] * 16)


def _changed_row(rng: random.Random, makes: Sequence[Make]) -> tuple[bytes, bytes]:
    """A record with a row's before image, and one with its after image, in which some columns are others."""
    before, image = ([make(rng) for make in makes] for _ in range(2))
    after = b"".join(new if rng.random() < 0.2 else old for old, new in zip(before, image, strict=True))
    rest = b"\2" + b"".join(before) + b"the rest"
    first = rng.choice((b"\2d\0" + rest, b"\2u\2" + b"".join(image) + rest))
    last = rng.choice(
        (b"\2c\2" + after + b"\0the rest", b"\2u\2" + after + b"\2" + b"".join(image) + b"the rest")
    )
    return bytes(10) + first, bytes(10) + last


@pytest.mark.parametrize("seed", range(40))
def test_columns_that_changed_are_those_of_python(seed: int) -> None:
    rng = random.Random(seed)
    structure, makes = _table(rng)
    rows = [_changed_row(rng, makes) for _ in range(40)]
    damaged = [(_damaged(rng, first), last) for first, last in rows]
    damaged += [(first, _damaged(rng, last)) for first, last in rows]
    blocks = [rows, rows[:16], *([*rows[:20], one, *rows[20:]] for one in damaged)]
    watched = set(rng.sample(range(len(makes)), rng.randint(0, min(3, len(makes)))))
    arguments = [(*zip(*block, strict=True), watched) for block in blocks]
    comparison: Any = compile_comparison(structure)
    expected = [_outcome(comparison, *both) for both in arguments]
    changed.use_compiled(compiled_library())
    assert [_outcome(comparison, *both) for both in arguments] == expected
    compiled: Any = changed._compiled[0]
    assert compiled(*arguments[0], comparison._layout) == expected[0]


def test_a_row_without_one_of_the_images_is_left_to_python() -> None:
    comparison: Any = compile_comparison(TableStructure("d", "t", (Column("a", "int", 3, 0, False),), ()))
    inserted, deleted = bytes(10) + b"\2c\2\4\0\0\0", bytes(10) + b"\2d\0\2\4\0\0"
    changed.use_compiled(compiled_library())
    assert comparison([deleted] * 16, [inserted] * 16, {0}) == (set(), [False] * 16, [[13, 14]] * 16)
    for firsts, lasts in (([inserted], [inserted]), ([deleted], [deleted])):
        with pytest.raises(ValueError, match="image"):
            comparison(firsts * 16, lasts * 16, ())

"""Row values on the wire: their numbers, their headers, and rows in parts; functions that are compiled for them."""

from __future__ import annotations

import json
import traceback

import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from schemas.codegen import compile_function
from schemas.structure import Column, TableStructure
from schemas.varint import VARINT, encode, encode_slow, read_lines, read_more
from schemas.wire.avro_schema import row_schema
from schemas.wire.rows import (
    HEADER_SIZE,
    PART,
    Joiner,
    header_size,
    schema_name,
    split_value,
    value_header,
    widened,
)

NAMES = st.binary(min_size=8, max_size=8) | st.binary(min_size=4, max_size=4)


@given(
    st.lists(st.text("aZ_é9", min_size=1, max_size=9), min_size=1, unique=True),
    st.sampled_from(("utf8mb4", "latin1", "ucs2")),
)
def test_fingerprints_are_those_of_the_library(names: list[str], charset: str) -> None:
    columns = tuple(Column(name, "varchar(9)", 15, 36, True, charset=charset) for name in names)
    found = row_schema(TableStructure("d", names[0], columns, (names[-1],)))
    canonical = to_parsing_canonical_form(json.loads(found.text))
    assert found.fingerprint.hex() == fingerprint(canonical, "CRC-64-AVRO")


@given(st.lists(st.tuples(st.binary(max_size=60), st.integers(1, 70))))
def test_divided_rows_come_back_whole_and_in_order(rows: list[tuple[bytes, int]]) -> None:
    joiner, back = Joiner(), []
    for value, size in rows:
        parts = split_value(value, size) if len(value) > size else [(value, ("other", b"header"))]
        assert all(len(part) <= size for part, _ in parts) or len(parts) == 1
        for number, (part, header) in enumerate(parts, 1):
            whole = joiner.add(part, [("__debezium.newkey", b"k"), header])
            assert (whole is None) == (number < len(parts)) == joiner.incomplete
        back.append(whole)
    assert back == [value for value, _ in rows]


@pytest.mark.parametrize(
    "parts", [[b"2/3"], [b"1/3", b"3/3"], [b"1/3", b"1/3"], [b"1/3", None], [b"3/2"], [b"x"], [b"1"]]
)
def test_a_missing_part_is_noticed(parts: list[bytes | None]) -> None:
    *good, bad = [[(PART, part)] if part else [] for part in parts]
    joiner = Joiner()
    for headers in good:
        assert joiner.add(b"..", headers) is None
    with pytest.raises(ValueError, match=r"part|unpack|int"):
        joiner.add(b"..", bad)


@given(NAMES, st.binary())
def test_both_kinds_of_header_are_told_apart_and_made_equally_wide(name: bytes, envelope: bytes) -> None:
    header = value_header(name)
    assert header_size(header + envelope) == len(header)
    wide = widened(header + envelope)
    assert wide[HEADER_SIZE:] == envelope
    assert wide[:HEADER_SIZE] == widened(header)
    assert len(widened(header)) == HEADER_SIZE
    assert schema_name(header + envelope) == schema_name(wide) == name


# The generated lines that read Avro's numbers, against the function that reads those of any size.
_NAMES = {"read_more": read_more}
_read = compile_function("read", "v, p", [*read_lines("z"), "return z, p"], _NAMES, "<read of a test>")
_EDGES = [edge + near for edge in (0, *(1 << bits for bits in range(7, 64, 7))) for near in (-1, 0, 1)]


@given(st.integers(0, (1 << 64) - 1) | st.sampled_from(_EDGES[1:]) | st.integers(0, 1 << 22))
def test_a_number_is_read_with_its_end(zigzag: int) -> None:
    data = b"x" + encode(zigzag)
    assert _read(data + b"\xff", 1) == (zigzag, len(data))


def test_the_table_of_numbers_is_complete() -> None:
    assert [encode_slow(zigzag) for zigzag in range(len(VARINT))] == VARINT


@given(st.integers(0, (1 << 64) - 1) | st.sampled_from(_EDGES[1:]))
def test_both_ways_to_write_a_number_agree(zigzag: int) -> None:
    assert encode(zigzag) == encode_slow(zigzag)


@given(st.integers(1 << 7, (1 << 64) - 1))
def test_a_number_that_is_cut_off_is_refused(zigzag: int) -> None:
    with pytest.raises(IndexError):
        _read(encode(zigzag)[:-1], 0)


def test_functions_of_equal_source_have_their_own_names_and_values() -> None:
    lines = ["found = [step // n for n in values]", "return found"]
    made = [
        compile_function("f", "values", lines, {"step": step}, f"<rows of shop.t{step}>") for step in (10, 20)
    ]
    assert [function([5]) for function in made] == [[2], [4]]
    for function, step in zip(made, (10, 20), strict=True):
        with pytest.raises(ZeroDivisionError) as raised:
            function([0])
        frames = traceback.extract_tb(raised.value.__traceback__)[1:]
        assert {frame.filename for frame in frames} == {f"<rows of shop.t{step}>"}
        assert frames[-1].line == lines[0]


def test_a_long_source_is_compiled_too() -> None:
    function = compile_function("f", "x", [f"x += {n}" for n in range(20_000)] + ["return x"], {}, "<long>")
    assert function(1) == 1 + sum(range(20_000))

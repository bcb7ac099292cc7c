"""The typed scalars of a JSON document, from what the server lists of them; on servers: producer/copy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DecodeError
from schemas.types.json_avro import read_typed
from schemas.types.json_select import selected_avro, types_expression

_TEXT = b'{"b": [1, {"z": 5, "a": [2.50, [3]]}], "aa": {"q": "base64:type15:AA==", "r": {"t": "2024-02-29"}}, "c": 7}'


def _types(text: bytes, types: bytes) -> dict[str, str]:
    value = selected_avro(text, types, b"\0", b"\2")
    if not value.startswith(b"\2"):
        return {}
    _, found, end = read_typed(value, 1)
    assert end == len(value)
    return found


def test_numbers_count_the_values_of_a_container_before_those_inside() -> None:
    # Members: b, aa, c; z, a; q, r; t. Elements: the two of b; 2.50, [3]; 3.
    types = b"6:m3 UNSIGNED INTEGER,m4 INTEGER,m6 BLOB,m8 DATE,e3 DECIMAL,e5 DECIMAL"
    assert _types(_TEXT, types) == {
        '$."c"': "unsigned",
        '$."b"[1]."z"': "signed",
        '$."aa"."q"': "opaque(15)",
        '$."aa"."r"."t"': "date",
        '$."b"[1]."a"[0]': "decimal(3,2)",
        '$."b"[1]."a"[1][0]': "decimal(1,0)",
    }


@pytest.mark.parametrize(
    "types",
    [
        b"", b"7", b"1:", b"2:m3 DECIMAL", b"1:m3 DECIMAL,e1 DECIMAL", b"1:m1 DECIMAL", b"1:m9 DECIMAL", b"1:m3 DATE",
        b"1:m6 DECIMAL", b"1:m8 BLOB", b"1:m3 ENUM", b"1:x3 DECIMAL", b"1:m0 DECIMAL", b"1:e3 INTEGER", b"x:m3 DECIMAL",
    ],
)  # fmt: skip
def test_a_list_of_another_document_is_refused(types: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        _types(_TEXT, types)


def test_a_scalar_by_itself() -> None:
    assert _types(b'"10:00:00.000000"', b"1:TIME") == {"$": "time(6)"}
    with pytest.raises(ValueError, match="DATE"):
        _types(b"1", b"1:DATE")
    with pytest.raises(DecodeError, match="TR417"):
        _types(b'"base64:type249:AA=="', b"1:BLOB")


@given(
    st.sampled_from([_TEXT, b"[" * 100_000, b"[1]", b"1", b"\xff", b"", b'{"a": 1, "a": 2}', b"[NaN]"]),
    st.lists(
        st.sampled_from([b"1", b"2", b":", b",", b"m", b"e", b" ", b"DECIMAL", b"DATE", b"INTEGER"])
    ).map(b"".join)
    | st.binary(),
)
def test_any_list(text: bytes, types: bytes) -> None:
    try:
        _types(text, types)
    except ValueError:
        return


def test_names_are_the_columns() -> None:
    assert "JSON_TABLE(`a{b}`," in types_expression("`a{b}`")

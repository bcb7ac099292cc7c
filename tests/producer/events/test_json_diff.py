"""JSON diffs as MySQL logs them, applied to binary documents, and those that do not fit."""

from __future__ import annotations

import struct

import pytest

from producer.events.json_diff import json_patched

# {"a": 1, "b": [true, "x"]} as MySQL stores it.
DOCUMENT = bytes.fromhex(
    "00 0200 2000 1200 0100 1300 0100 05 0100 02 1400 61 62 0200 0c00 04 0100 0c 0a00 01 78"
)
REPLACE, INSERT, REMOVE = b"\0", b"\1", b"\2"
SEVEN = b"\x05\x07\x00"


def diff(operation: bytes, path: str, value: bytes = b"") -> bytes:
    text = path.encode()
    return operation + bytes((len(text),)) + text + (bytes((len(value),)) + value if value else b"")


def patched(*diffs: bytes) -> str:
    text = json_patched(DOCUMENT, b"".join(diffs), b"\2", b"\4")
    assert text[:2] == bytes((2, (len(text) - 2) * 2))
    return text[2:].decode()


@pytest.mark.parametrize(("diffs", "text"), [
    ([], '{"a": 1, "b": [true, "x"]}'),
    ([diff(REPLACE, "$.a", SEVEN)], '{"a": 7, "b": [true, "x"]}'),
    ([diff(REPLACE, "$.b[1]", SEVEN)], '{"a": 1, "b": [true, 7]}'),
    ([diff(INSERT, "$.b[0]", SEVEN)], '{"a": 1, "b": [7, true, "x"]}'),
    ([diff(INSERT, "$.b[9]", SEVEN)], '{"a": 1, "b": [true, "x", 7]}'),
    ([diff(REMOVE, "$.b[0]"), diff(REMOVE, "$.b[0]")], '{"a": 1, "b": []}'),
    ([diff(REMOVE, "$.a")], '{"b": [true, "x"]}'),
    # Shorter keys come first, whatever their letters.
    ([diff(INSERT, "$.aa", SEVEN), diff(INSERT, "$.c", SEVEN)], '{"a": 1, "b": [true, "x"], "c": 7, "aa": 7}'),
    ([diff(INSERT, '$."q\\"u.o[t]\\u00e9"', SEVEN)], '{"a": 1, "b": [true, "x"], "q\\"u.o[t]é": 7}'),
    ([diff(INSERT, '$.""', SEVEN)], '{"": 7, "a": 1, "b": [true, "x"]}'),
])  # fmt: skip
def test_diffs(diffs: list[bytes], text: str) -> None:
    assert patched(*diffs) == text


@pytest.mark.parametrize("wrong", [
    diff(REPLACE, "$.c", SEVEN), diff(REMOVE, "$.c"), diff(INSERT, "$.a", SEVEN), diff(REPLACE, "$.b[2]", SEVEN),
    diff(REMOVE, "$.b[2]"), diff(REPLACE, "$.a[0]", SEVEN), diff(REPLACE, "$[0]", SEVEN), diff(INSERT, "$.b.c", SEVEN),
    diff(REPLACE, "$", SEVEN), diff(REPLACE, "a", SEVEN), diff(REPLACE, "$.b[*]", SEVEN), diff(REPLACE, "$**.a", SEVEN),
    diff(b"\3", "$.a", SEVEN), diff(REPLACE, "$.a", SEVEN)[:-1], diff(REPLACE, "$.a")[:-2], b"\0",
])  # fmt: skip
def test_what_does_not_fit_is_refused(wrong: bytes) -> None:
    with pytest.raises((ValueError, IndexError, KeyError, struct.error)):
        patched(wrong)
    with pytest.raises(ValueError, match="NULL"):
        json_patched(None, wrong, b"\2", b"\4")

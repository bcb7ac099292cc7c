"""JSON documents and their diffs come to the same text in compiled code and in Python."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from producer.events.json_diff import json_patched
from schemas.types.json_avro import json_avro
from schemas.varint import read_bytes
from tests.support.binlogs.binary_json import document
from tests.support.binlogs.epochs import compiled_documents
from tests.support.binlogs.json_changes import INSERT, REPLACE, any_change, any_value, counted

_TEXT, _TYPED = b"\2", b"\4"


def _python(before: bytes, diffs: bytes) -> bytes | None:
    """The text; None if it has types."""
    made = json_patched(before, diffs, _TEXT, _TYPED)
    return read_bytes(made, 1)[0] if made.startswith(_TEXT) else None


@pytest.mark.parametrize("seed", range(20))
def test_changed_documents(seed: int) -> None:
    rng, whole = random.Random(seed), 0
    for _ in range(200):
        tree: Any = {} if rng.random() < 0.05 else [] if rng.random() < 0.05 else any_value(rng)
        before = document(tree, large=rng.random() < 0.2)
        is_container = isinstance(tree, (dict, list))
        diffs = b"".join(any_change(rng, tree) for _ in range(rng.randrange(6) if is_container else 0))
        expected = _python(before, diffs)
        found = compiled_documents().text(before, diffs)
        assert found in (expected, None)
        whole += found is not None or expected is None
        if expected is not None:
            assert json.loads(expected) == tree
    # A value that one diff brings and another one takes away is read by Python alone.
    assert whole > 120


def test_damaged_ones() -> None:
    """Either it is left to Python, or the text is the same."""
    rng, made = random.Random(1), 0
    for _ in range(6000):
        tree: Any = [any_value(rng), any_value(rng)]
        before = document(tree)
        diffs = bytearray(b"".join(any_change(rng, tree) for _ in range(rng.randrange(1, 4))))
        if rng.random() < 0.5:
            diffs[rng.randrange(len(diffs))] = rng.randrange(256)
        else:
            del diffs[rng.randrange(len(diffs)) :]
        found = compiled_documents().text(before, bytes(diffs))
        if found is not None:
            made += 1
            assert found == _python(before, bytes(diffs))
    assert 300 < made < 5700


@pytest.mark.parametrize("depth", [98, 99, 100, 101])
def test_depth(depth: int) -> None:
    """As deep as MySQL's own limit, and no deeper, wherever the levels come from."""
    text = "[" * depth + "1" + "]" * depth
    nested = document(json.loads(text))
    assert compiled_documents().text(nested) == (text.encode() if depth <= 100 else None)
    for above in (1, 50, 97):
        before = document(json.loads("[" * above + "1" + "]" * above))
        path = "$" + "[0]" * above
        value = json.loads("[" * (depth - above) + "1" + "]" * (depth - above))
        diff = bytes((REPLACE,)) + counted(path.encode()) + counted(document(value))
        assert compiled_documents().text(before, diff) == (text.encode() if depth <= 100 else None)


def test_what_is_left_to_python() -> None:
    """Types, large documents, and paths with escapes."""
    typed = bytes((10,)) + struct.pack("<Q", 7)
    assert json_avro(typed, _TEXT, _TYPED).startswith(_TYPED)
    assert compiled_documents().text(typed) is None
    assert compiled_documents().text(document("x" * (1 << 20))) is None
    assert compiled_documents().text(document([0] * 9000)) == str([0] * 9000).encode()
    replaced = bytes((REPLACE,)) + counted(b"$[0]") + counted(document(1))
    assert compiled_documents().text(document([0] * 9000), replaced) == str([1] + [0] * 8999).encode()
    assert compiled_documents().text(document([0] * 12_000), replaced) is None
    escaped = bytes((INSERT,)) + counted(b'$."a\\"b"') + counted(document(1))
    assert compiled_documents().text(document({}), escaped) is None
    assert _python(document({}), escaped) == b'{"a\\"b": 1}'
    assert compiled_documents().text(b"") == b"null"

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

_TEXT, _TYPED = b"\2", b"\4"
_REPLACE, _INSERT, _REMOVE = range(3)
_NAMES = ("a", "b", "count", "näme", "a b", "q.x[1]", "", "zz", "o'clock")


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(10 if depth < 4 else 6)
    if kind < 2:
        return rng.choice((None, True, False, 0, -1, 32767, 1 << 20, -(1 << 40), 1 << 40))
    if kind < 6:
        return rng.choice(("", "plain", 'a"b\\c\n', "grüße 日本 🎉", "x" * 300, rng.random(), 1e300))
    if kind < 8:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    names = rng.sample(_NAMES, rng.randrange(6))
    return {name: _value(rng, depth + 1) for name in sorted(names, key=_place)}


def _place(name: str) -> tuple[int, bytes]:
    return len(name.encode()), name.encode()


def _counted(data: bytes) -> bytes:
    size = len(data)
    head = bytes((size,)) if size < 251 else b"\xfc" + struct.pack("<H", size)
    return head + data


def _change(rng: random.Random, tree: Any) -> bytes:
    """Change a value of a container in the tree, and return the diff."""
    path, parent = "$", tree
    while True:
        names = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        below = [name for name in names if isinstance(parent[name], (dict, list))]
        if not below or rng.random() < 0.3:
            break
        leg = rng.choice(below)
        path, parent = path + _leg(leg, rng), parent[leg]
    operation = rng.choice((_REPLACE, _INSERT, _REMOVE)) if names else _INSERT
    new = _value(rng, 3)
    if operation == _INSERT and isinstance(parent, dict):
        leg = rng.choice([name for name in (*_NAMES, "new") if name not in parent])
        parent[leg] = new
    elif operation == _INSERT:
        leg = rng.randrange(len(parent) + 1)
        parent.insert(leg, new)
    else:
        leg = rng.choice(names)
        if operation == _REPLACE:
            parent[leg] = new
        else:
            del parent[leg]
    made = bytes((operation,)) + _counted((path + _leg(leg, rng)).encode())
    return made if operation == _REMOVE else made + _counted(document(new))


def _leg(leg: str | int, rng: random.Random) -> str:
    if isinstance(leg, int):
        return f"[{leg}]"
    return f".{leg}" if leg.isalnum() and rng.random() < 0.9 else f".{json.dumps(leg, ensure_ascii=False)}"


def _python(before: bytes, diffs: bytes) -> bytes | None:
    """The text; None if it has types."""
    made = json_patched(before, diffs, _TEXT, _TYPED)
    return read_bytes(made, 1)[0] if made.startswith(_TEXT) else None


@pytest.mark.parametrize("seed", range(20))
def test_changed_documents(seed: int) -> None:
    rng, whole = random.Random(seed), 0
    for _ in range(200):
        tree: Any = {} if rng.random() < 0.05 else [] if rng.random() < 0.05 else _value(rng)
        before = document(tree, large=rng.random() < 0.2)
        is_container = isinstance(tree, (dict, list))
        diffs = b"".join(_change(rng, tree) for _ in range(rng.randrange(6) if is_container else 0))
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
        tree: Any = [_value(rng), _value(rng)]
        before = document(tree)
        diffs = bytearray(b"".join(_change(rng, tree) for _ in range(rng.randrange(1, 4))))
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
        diff = bytes((_REPLACE,)) + _counted(path.encode()) + _counted(document(value))
        assert compiled_documents().text(before, diff) == (text.encode() if depth <= 100 else None)


def test_what_is_left_to_python() -> None:
    """Types, large documents, and paths with escapes."""
    typed = bytes((10,)) + struct.pack("<Q", 7)
    assert json_avro(typed, _TEXT, _TYPED).startswith(_TYPED)
    assert compiled_documents().text(typed) is None
    assert compiled_documents().text(document("x" * (1 << 20))) is None
    assert compiled_documents().text(document([0] * 9000)) == str([0] * 9000).encode()
    replaced = bytes((_REPLACE,)) + _counted(b"$[0]") + _counted(document(1))
    assert compiled_documents().text(document([0] * 9000), replaced) == str([1] + [0] * 8999).encode()
    assert compiled_documents().text(document([0] * 12_000), replaced) is None
    escaped = bytes((_INSERT,)) + _counted(b'$."a\\"b"') + _counted(document(1))
    assert compiled_documents().text(document({}), escaped) is None
    assert _python(document({}), escaped) == b'{"a\\"b": 1}'
    assert compiled_documents().text(b"") == b"null"

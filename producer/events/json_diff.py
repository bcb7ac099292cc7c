"""MySQL's JSON diffs (binlog_row_value_options=PARTIAL_JSON): what an UPDATE changed inside of a document.

Source: MySQL sql-common/json_dom.cc, ``apply_json_diffs``; sql/json_diff.cc, ``read_binary``. Paths are exact: no
wildcards, and a scalar is never taken for an array of one.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from schemas.types.json_avro import tree_avro
from schemas.types.json_binary import Tree, json_tree

_REPLACE, _INSERT, _REMOVE = range(3)
_LEG = re.compile(r"""\.(?:"((?:[^"\\]|\\.)*)"|([^."\[]+))|\[(\d+)]""", re.DOTALL)

_Leg = bytes | int
_SHORT = 200  # bytes of a path whose legs are remembered


def json_patched(before: bytes | None, diffs: bytes, text_tag: bytes, typed_tag: bytes) -> bytes:
    """A document after its diffs, as Avro; see ``schemas.types.json_type``.

    Args:
        before: the binary document before; None for NULL.
        diffs: one behind the other, without their length.
        text_tag, typed_tag: the union's branches.

    Raises:
        ValueError: the diffs are damaged, or not those of this document.
        IndexError, KeyError, struct.error: the same.
    """
    if before is None:
        raise ValueError("a JSON diff of NULL")
    tree, pos = json_tree(before), 0
    while pos < len(diffs):
        operation = diffs[pos]
        if operation > _REMOVE:
            raise ValueError(f"a JSON diff has the unknown operation {operation}")
        path, pos = _counted(diffs, pos + 1)
        value: Tree | None = None
        if operation != _REMOVE:
            document, pos = _counted(diffs, pos)
        legs = (_known_legs if len(path) <= _SHORT else _legs)(path.decode())
        if operation != _REMOVE:
            value = json_tree(document, len(legs))
        _apply(tree, operation, legs, value)
    return tree_avro(tree, text_tag, typed_tag)


def _counted(data: bytes, pos: int) -> tuple[bytes, int]:
    """A value behind its length in MySQL's packed form, and the offset behind it."""
    length, pos = data[pos], pos + 1
    if length > 250:
        size = {252: 2, 253: 3, 254: 8}[length]
        length, pos = int.from_bytes(data[pos : pos + size], "little"), pos + size
    value = data[pos : pos + length]
    if len(value) != length:
        raise ValueError("a JSON diff ends within a value")
    return value, pos + length


def _legs(path: str) -> tuple[_Leg, ...]:
    legs: list[_Leg] = []
    pos = 1
    while pos < len(path):
        match = _LEG.match(path, pos)
        if match is None:
            break
        quoted, name, cell = match.groups()
        if cell is not None:
            legs.append(int(cell))
        else:
            member = json.loads(f'"{name if quoted is None else quoted}"', strict=False)
            legs.append(member.encode())
        pos = match.end()
    if not path.startswith("$") or pos != len(path) or not legs:
        raise ValueError(f"a JSON diff has the path {path[:200]!r}")
    return tuple(legs)


# A table's updates mostly change the same members.
_known_legs = lru_cache(1000)(_legs)


def _apply(tree: Tree, operation: int, legs: tuple[_Leg, ...], value: Tree | None) -> None:
    *above, last = legs
    parent = tree
    for leg in above:
        parent = _child(parent, leg)
    if isinstance(parent, dict) and isinstance(last, bytes):
        if (operation == _INSERT) == (last in parent):
            raise ValueError("a JSON diff inserts an existing member or changes a missing one")
        if value is not None:
            parent[last] = value
        else:
            del parent[last]
    elif isinstance(parent, list) and isinstance(last, int):
        if operation == _INSERT and value is not None:
            parent.insert(last, value)
        elif value is not None:
            parent[last] = value
        else:
            del parent[last]
    else:
        raise ValueError("a JSON diff's path is not in the document")


def _child(parent: Tree, leg: _Leg) -> Tree:
    if isinstance(parent, dict) and isinstance(leg, bytes):
        return parent[leg]
    if isinstance(parent, list) and isinstance(leg, int):
        return parent[leg]
    raise ValueError("a JSON diff's path is not in the document")

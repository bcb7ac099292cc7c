"""Random JSON documents, and random changes of them as MySQL's diffs."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

from tests.support.binlogs.binary_json import document

REPLACE, INSERT, REMOVE = range(3)
_NAMES = ("a", "b", "count", "näme", "a b", "q.x[1]", "", "zz", "o'clock")


def any_value(rng: random.Random, depth: int = 0) -> Any:
    """Return a random value of a document."""
    kind = rng.randrange(10 if depth < 4 else 6)
    if kind < 2:
        return rng.choice((None, True, False, 0, -1, 32767, 1 << 20, -(1 << 40), 1 << 40))
    if kind < 6:
        return rng.choice(("", "plain", 'a"b\\c\n', "grüße 日本 🎉", "x" * 300, rng.random(), 1e300))
    if kind < 8:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    names = rng.sample(_NAMES, rng.randrange(6))
    return {name: any_value(rng, depth + 1) for name in sorted(names, key=_place)}


def _place(name: str) -> tuple[int, bytes]:
    return len(name.encode()), name.encode()


def counted(data: bytes) -> bytes:
    """Return bytes behind their length in MySQL's packed form."""
    size = len(data)
    head = bytes((size,)) if size < 251 else b"\xfc" + struct.pack("<H", size)
    return head + data


def any_change(rng: random.Random, tree: Any) -> bytes:
    """Change a value of a container in the tree, and return the diff."""
    path, parent = "$", tree
    while True:
        names = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        below = [name for name in names if isinstance(parent[name], (dict, list))]
        if not below or rng.random() < 0.3:
            break
        leg = rng.choice(below)
        path, parent = path + _leg(leg, rng), parent[leg]
    operation = rng.choice((REPLACE, INSERT, REMOVE)) if names else INSERT
    new = any_value(rng, 3)
    if operation == INSERT and isinstance(parent, dict):
        leg = rng.choice([name for name in (*_NAMES, "new") if name not in parent])
        parent[leg] = new
    elif operation == INSERT:
        leg = rng.randrange(len(parent) + 1)
        parent.insert(leg, new)
    else:
        leg = rng.choice(names)
        if operation == REPLACE:
            parent[leg] = new
        else:
            del parent[leg]
    made = bytes((operation,)) + counted((path + _leg(leg, rng)).encode())
    return made if operation == REMOVE else made + counted(document(new))


def _leg(leg: str | int, rng: random.Random) -> str:
    if isinstance(leg, int):
        return f"[{leg}]"
    return f".{leg}" if leg.isalnum() and rng.random() < 0.9 else f".{json.dumps(leg, ensure_ascii=False)}"

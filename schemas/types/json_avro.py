"""A JSON document in Avro: its text, or with typed scalars a map of ``text`` and the types by path."""

from __future__ import annotations

from schemas.types.json_binary import Tree, has_types, json_text, json_tree, tree_text, tree_types
from schemas.varint import encode_bytes, encode_long, read_bytes, read_long

_TEXT = "text"
# Characters. A long key is part of the path of each value below it, so paths may be far longer than the document.
_MOST_PATHS = 64 << 20


def json_avro(data: bytes, text_tag: bytes, typed_tag: bytes) -> bytes:
    """Convert a binary document to Avro.

    Args:
        text_tag, typed_tag: the union's branches.

    Raises: like ``json_text``.
    """
    text, typed = json_text(data)
    if typed:
        return tree_avro(json_tree(data), text_tag, typed_tag)
    return text_tag + encode_bytes(text)


def tree_avro(tree: Tree, text_tag: bytes, typed_tag: bytes) -> bytes:
    """Convert a tree to Avro, like ``json_avro``."""
    text = tree_text(tree)
    if not has_types(tree):
        return text_tag + encode_bytes(text.encode())
    entries = [(_TEXT, text), *_types(tree)]
    strings = (encode_bytes(part.encode()) for entry in entries for part in entry)
    return typed_tag + encode_long(len(entries)) + b"".join(strings) + b"\0"


def _types(tree: Tree) -> list[tuple[str, str]]:
    types, size = [], 0
    for path, sql_type in tree_types(tree):
        size += len(path)
        if size > _MOST_PATHS:
            raise ValueError(
                f"the paths of a JSON document's typed values have more than {_MOST_PATHS} characters"
            )
        types.append((path, sql_type))
    return types


def read_typed(v: bytes, p: int) -> tuple[bytes, dict[str, str], int]:
    """Read text and types of a typed document at ``v[p]``; also returns the offset after it.

    Raises:
        ValueError, LookupError: the bytes are not a typed document.
    """
    count, p = read_long(v, p)
    found: dict[str, bytes] = {}
    for _ in range(count):
        key, p = read_bytes(v, p)
        found[key.decode()], p = read_bytes(v, p)
    if v[p]:
        raise ValueError("a JSON document has more than one block of types")
    text = found.pop(_TEXT)
    return text, {path: sql_type.decode() for path, sql_type in found.items()}, p + 1

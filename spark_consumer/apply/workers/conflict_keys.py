"""Computes the conflict keys of each row change on the executors: bytes that are equal if two changes conflict.

A conflict key is its space (two bytes), a byte of flags, and the identities of the key's columns. The identity of a
text has one byte more: whether it is final, or a literal whose weight only the server can compute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from schemas.sql.literals import compile_literals
from schemas.structure import TableStructure
from schemas.types.binary import digits_of
from schemas.varint import encode_bytes, read_bytes
from spark_consumer.plan.conflicts import ConflictColumn, ConflictKey, Normalization, TableCausality

REFERS, ASKS = 1, 2
#: the space of shares of rows, of groups of whole tables, and of the two halves of a key-changing UPDATE
RENDERED, WHOLE, HALVES = 0xFFFD, 0xFFFE, 0xFFFF
KNOWN, LITERAL = b"=", b"?"
_NULL = b"NULL"
_PRINTABLE = re.compile(rb"[ -~]*")
ConflictKeys = Callable[[bytes], list[bytes]]


def conflict_key(space: int, flags: int, identity: bytes) -> bytes:
    """Return a conflict key."""
    return space.to_bytes(2, "big") + bytes((flags,)) + identity


def whole_table_key(group: int) -> bytes:
    """Return the conflict key of all rows of a table that is one group."""
    return conflict_key(WHOLE, 0, b"%d" % group)


def key_change_key(epoch: int, seq: int) -> bytes:
    """Return the conflict key of both halves of a key-changing UPDATE; ``seq`` is the number of the first half."""
    return conflict_key(HALVES, 0, b"%d:%d" % (epoch, seq))


def conflict_keys_of(structure: TableStructure, causality: TableCausality, *, before: bool) -> ConflictKeys:
    """Return a function from a row value to the conflict keys of its before or after image, which must exist."""
    wanted = tuple(dict.fromkeys(part.column for key in causality.keys for part in key.parts))
    literals = compile_literals(structure, wanted, before=before)
    keys = [(_maker(key), [wanted.index(part.column) for part in key.parts]) for key in causality.keys]

    def conflict_keys(value: bytes) -> list[bytes]:
        found = literals(value)
        made = []
        for make, places in keys:
            chosen = [found[place] for place in places]
            if _NULL not in chosen:
                made.append(make(chosen))
        return made

    return conflict_keys


def _maker(key: ConflictKey) -> Callable[[Sequence[bytes]], bytes]:
    flags = REFERS if key.refers else 0
    head = conflict_key(key.space, flags, b"")
    if any(part.is_text for part in key.parts):
        asking = conflict_key(key.space, flags | ASKS, b"")
        return lambda literals: _with_text(key.parts, literals, head, asking)
    if all(part.normalization is Normalization.EXACT for part in key.parts):
        return lambda literals: head + b",".join(literals)
    return lambda literals: head + b"".join(map(encode_bytes, map(_plain, key.parts, literals)))


def _with_text(
    parts: Sequence[ConflictColumn], literals: Sequence[bytes], head: bytes, asking: bytes
) -> bytes:
    identities = [_identity(part, literal) for part, literal in zip(parts, literals, strict=True)]
    asks = any(identity[:1] == LITERAL for identity in identities)
    return (asking if asks else head) + b"".join(map(encode_bytes, identities))


def _identity(part: ConflictColumn, literal: bytes) -> bytes:
    if not part.is_text:
        return KNOWN + _plain(part, literal)
    if part.normalization is Normalization.ASKED or literal[:1] == b"_" or not _PRINTABLE.fullmatch(literal):
        return LITERAL + literal
    text = unquoted(literal)[: part.length]
    # Most collations ignore spaces at the end, and dropping them never does harm.
    return KNOWN + (text.upper() if part.normalization is Normalization.FOLDED else text).rstrip(b" ")


def _plain(part: ConflictColumn, literal: bytes) -> bytes:
    if part.normalization is Normalization.UNSIGNED:
        return literal.lstrip(b"-")
    if part.normalization is Normalization.BYTES:
        digits = digits_of(literal)
        return digits if part.length is None else digits[: 2 * part.length]
    return literal


def unquoted(literal: bytes) -> bytes:
    """Return the text of a quoted literal; another literal is returned unchanged."""
    return literal[1:-1].replace(b"''", b"'") if literal[:1] == b"'" else literal


def columns_of(found: bytes) -> list[bytes]:
    """The column values of a conflict key in a space with text columns."""
    columns, at = [], 3
    while at < len(found):
        column, at = read_bytes(found, at)
        columns.append(column)
    return columns


def key_space(found: bytes) -> int:
    """Return the space of a conflict key."""
    return int.from_bytes(found[:2], "big")

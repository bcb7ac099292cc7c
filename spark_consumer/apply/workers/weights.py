"""Collation weights of text values, computed by the server.

If one value of a key needs that, all values of the key in the slice do: 'cafe' must get the same key as 'café'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pymysql

from schemas.access.server_url import ServerUrl
from schemas.varint import encode_bytes
from spark_consumer.apply.workers.conflict_keys import ASKS, LITERAL, columns_of, key_space
from spark_consumer.plan.conflicts import ConflictColumn
from spark_consumer.target.session import Session, closing, connect, unreachable

#: one part's literals in, their weights in the same order out
Weigh = Callable[[ConflictColumn, Sequence[bytes]], list[bytes]]
_MOST = 500  # values of one query
_MOST_BYTES = 1 << 20


def replace_by_weights(
    conflict_keys: Iterable[Sequence[bytes]], spaces: Sequence[tuple[ConflictColumn, ...]], weigh: Weigh
) -> dict[bytes, bytes]:
    """Other keys for those that cannot be compared as they are; empty if there is none.

    Args:
        conflict_keys: all conflict keys of the slice, row by row.
    """
    asking = {
        key_space(conflict_key) for row in conflict_keys for conflict_key in row if conflict_key[2] & ASKS
    }
    if not asking:
        return {}
    affected = {
        conflict_key for row in conflict_keys for conflict_key in row if key_space(conflict_key) in asking
    }
    values: dict[tuple[int, int], dict[bytes, bytes]] = {}
    for conflict_key in affected:
        for place, column in enumerate(columns_of(conflict_key)):
            if spaces[key_space(conflict_key)][place].is_text:
                values.setdefault((key_space(conflict_key), place), {})[column] = b""
    for (space, place), found in values.items():
        literals = [_literal(column) for column in found]
        found |= zip(found, weigh(spaces[space][place], literals), strict=True)

    def weighed(conflict_key: bytes) -> bytes:
        space = key_space(conflict_key)
        columns = enumerate(columns_of(conflict_key))
        identities = (values.get((space, place), {}).get(column, column) for place, column in columns)
        return conflict_key[:2] + bytes((conflict_key[2] & ~ASKS,)) + b"".join(map(encode_bytes, identities))

    return {conflict_key: weighed(conflict_key) for conflict_key in affected}


def _literal(column: bytes) -> bytes:
    if column[:1] == LITERAL:
        return column[1:]
    return b"'" + column[1:].replace(b"'", b"''") + b"'"


def weights_from(target: ServerUrl, part: ConflictColumn, literals: Sequence[bytes]) -> list[bytes]:
    """Call ``weights`` on a connection of its own. Raises DownstreamError."""
    try:
        with closing(connect(target)) as session:
            return weights(session, part, literals)
    except (pymysql.MySQLError, OSError) as error:
        raise unreachable(target, error) from error


def weights(session: Session, part: ConflictColumn, literals: Sequence[bytes]) -> list[bytes]:
    """The weights of literals as the server has them; equal wherever it takes two for equal.

    Raises pymysql.MySQLError.
    """
    [space] = _query(session, part, [b"' '"], trim=False)
    return [
        _trimmed(weight, space)
        for some in _pieces(literals)
        for weight in _query(session, part, some, trim=True)
    ]


def _query(session: Session, part: ConflictColumn, literals: Sequence[bytes], *, trim: bool) -> list[bytes]:
    charset, collation = part.charset.encode(), part.collation.encode()
    length = b"" if part.length is None else b"%d" % part.length

    def expression(literal: bytes) -> bytes:
        text = b"CONVERT(" + literal + b" USING " + charset + b")"
        if length:
            text = b"LEFT(" + text + b"," + length + b")"
        if trim:
            text = b"TRIM(TRAILING ' ' FROM " + text + b")"
        return b"HEX(WEIGHT_STRING(" + text + b" COLLATE " + collation + b"))"

    [row] = session.rows((b"SELECT " + b",".join(map(expression, literals))).decode())
    # NULL: too long for the server; such values form one group.
    return [b"" if weight is None else str(weight).encode() for weight in row]


def _trimmed(weight: bytes, space: bytes) -> bytes:
    """Without what weighs as spaces at the end do: under most collations that is no difference."""
    while space and weight.endswith(space):
        weight = weight[: -len(space)]
    return weight


def _pieces(literals: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for begin in range(0, len(literals), _MOST):
        some = literals[begin : begin + _MOST]
        if sum(map(len, some)) <= _MOST_BYTES:
            yield some
        else:
            yield from ([one] for one in some)

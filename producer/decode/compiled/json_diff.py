"""MySQL's JSON diffs: compiled. What they mean is in ``producer.events.json_diff``.

The document becomes nodes, but only as far as paths lead; what is below is written from the document's own bytes.
"""

from __future__ import annotations

import numpy as np

from producer.decode.compiled.arrays import (
    DIFFS_SIZE,
    DOCUMENT_SIZE,
    JSON_COUNT,
    NODE_AT,
    NODE_DEPTH,
    NODE_END,
    NODE_FIRST,
    NODE_IS_INLINE,
    NODE_KIND,
    NODE_LEFT,
    NODE_NAME_AT,
    NODE_NAME_SIZE,
    NODE_NEXT,
    NODE_PARENT,
    NODE_SOURCE,
    NODE_UNREAD,
    TEXT_SIZE,
    Tables,
)
from producer.decode.compiled.json_text import (
    LARGE_ARRAY,
    TEXT_BEGINS,
    bracket,
    child,
    is_object,
    json_text,
    name,
    named,
    open_container,
    separated,
    value_text,
    with_tag,
)
from schemas.compiled.jit import compiled
from schemas.compiled.memory import little
from schemas.compiled.types import Bytes, Int, Numbers, Words

_REPLACE, _INSERT, _REMOVE = range(3)
_DOLLAR, _DOT, _QUOTE, _BACKSLASH, _OPEN, _CLOSE, _ZERO, _NINE = 36, 46, 34, 92, 91, 93, 48, 57
_MOST_DIGITS = 9
# Bytes of the length of a document's diffs.
_DIFFS_SIZE = 4


@compiled
def _packed(b: Bytes, p: Int, end: Int) -> tuple[Int, Int]:
    """A length in MySQL's packed form, and where what it counts begins; -1 if that does not end before ``end``."""
    fault = np.int64(-1), p
    if p >= end:
        return fault
    length = np.int64(b[p])
    p += 1
    if length > 250:
        size = 2 if length == 252 else 3 if length == 253 else 8
        if length == 251 or length == 255 or p + size > end:
            return fault
        length = np.int64(little(b, p, size))
        p += size
    return (length, p) if 0 <= length <= end - p else fault


@compiled
def _leg(b: Bytes, p: Int, end: Int) -> tuple[Int, Int, Int]:
    """One leg of a path: where it ends, -1 if it is not plain; and its name's place and size, or -1 and a number."""
    fault = np.int64(-1), np.int64(0), np.int64(0)
    if b[p] == _OPEN:
        number, begin = np.int64(0), p + 1
        p = begin
        while p < end and _ZERO <= b[p] <= _NINE:
            number = number * 10 + np.int64(b[p]) - _ZERO
            p += 1
            if p - begin > _MOST_DIGITS:
                return fault
        if p == begin or p >= end or b[p] != _CLOSE:
            return fault
        return p + 1, np.int64(-1), number
    if b[p] != _DOT or p + 1 >= end:
        return fault
    is_quoted = b[p + 1] == _QUOTE
    begin = p + 2 if is_quoted else p + 1
    p = begin
    while p < end and b[p] != _QUOTE and (is_quoted or (b[p] != _DOT and b[p] != _OPEN)):
        if b[p] == _BACKSLASH:
            return fault
        p += 1
    if is_quoted:
        return (p + 1, begin, p - begin) if p < end else fault
    return (p, begin, p - begin) if p > begin else fault


@compiled
def _order(b: Bytes, i: Int, i_size: Int, j: Int, j_size: Int) -> Int:
    """Compare two names: negative if the first one stands first. Objects have them by length, then by bytes."""
    if i_size != j_size:
        return i_size - j_size
    for k in range(i_size):
        if b[i + k] != b[j + k]:
            return np.int64(b[i + k]) - np.int64(b[j + k])
    return np.int64(0)


@compiled
def _take(b: Bytes, nodes: Numbers, n: Int, begin: Int, end: Int, depth: Int) -> None:
    """The node gets the value of the document at ``b[begin]``."""
    node = nodes[n]
    node[NODE_KIND], node[NODE_AT], node[NODE_IS_INLINE], node[NODE_END] = b[begin], begin + 1, 0, end
    node[NODE_SOURCE], node[NODE_LEFT], node[NODE_DEPTH], node[NODE_FIRST] = (
        n,
        end - begin,
        depth,
        NODE_UNREAD,
    )


@compiled
def _read(b: Bytes, nodes: Numbers, n: Int, count: Int, stack: Numbers) -> Int:
    """Make nodes of a container's values; the number of nodes then, -1 if that is not possible."""
    node = nodes[n]
    if node[NODE_FIRST] != NODE_UNREAD:
        return count
    kind, depth, end, source = node[NODE_KIND], node[NODE_DEPTH], node[NODE_END], node[NODE_SOURCE]
    # What a diff has brought is written as a whole, so that none of it is left unread, or Python does it.
    if kind > LARGE_ARRAY or source:
        return np.int64(-1)
    left = open_container(kind, b, node[NODE_AT], end, nodes[source, NODE_LEFT], stack, depth)
    if left < 0 or count + stack[depth, JSON_COUNT] > len(nodes):
        return np.int64(-1)
    opened, first = stack[depth], count
    node[NODE_FIRST] = first if opened[JSON_COUNT] else -1
    for index in range(opened[JSON_COUNT]):
        made = nodes[count]
        made[NODE_NAME_AT], made[NODE_NAME_SIZE] = -1, 0
        if is_object(kind):
            made[NODE_NAME_AT], made[NODE_NAME_SIZE], left = name(b, opened, index, end, left)
            if left < 0:
                return np.int64(-1)
            before = nodes[count - 1]
            if (
                index
                and _order(
                    b, before[NODE_NAME_AT], before[NODE_NAME_SIZE], made[NODE_NAME_AT], made[NODE_NAME_SIZE]
                )
                >= 0
            ):
                return np.int64(-1)
        made[NODE_KIND], made[NODE_AT], made[NODE_IS_INLINE] = child(b, opened, index)
        made[NODE_END], made[NODE_SOURCE], made[NODE_DEPTH] = end, source, depth + 1
        made[NODE_PARENT], made[NODE_FIRST] = n, NODE_UNREAD
        count += 1
        made[NODE_NEXT] = count if index + 1 < opened[JSON_COUNT] else -1
    nodes[source, NODE_LEFT] = left
    return count


@compiled
def _find(b: Bytes, nodes: Numbers, n: Int, at: Int, size: Int) -> tuple[Int, Int]:
    """A value of a container that was read, by a leg: its node, and the one before.

    The node is -1 if there is none, and -2 if there could not be one either.

    Args:
        at, size: of the leg, as ``_leg`` returns them.
    """
    before, found = np.int64(-1), nodes[n, NODE_FIRST]
    if is_object(nodes[n, NODE_KIND]) != (at >= 0):
        return np.int64(-2), before
    index = np.int64(0)
    while found >= 0:
        if at < 0:
            if index == size:
                return found, before
        else:
            order = _order(b, nodes[found, NODE_NAME_AT], nodes[found, NODE_NAME_SIZE], at, size)
            if order >= 0:
                return (found, before) if order == 0 else (np.int64(-1), before)
        before, found, index = found, nodes[found, NODE_NEXT], index + 1
    return np.int64(-1) if at >= 0 or index == size else np.int64(-2), before


@compiled
def _apply(
    b: Bytes, nodes: Numbers, count: Int, stack: Numbers, operation: Int, p: Int, path_end: Int, begin: Int, end: Int
) -> Int:  # fmt: skip
    """Apply one diff to the nodes; their number then, -1 if that is not sure.

    Args:
        p: where the path's first leg begins.
        begin, end: where the new value is.
    """
    n = np.int64(0)
    while True:
        p, name_at, name_size = _leg(b, p, path_end)
        if p < 0:
            return np.int64(-1)
        count = _read(b, nodes, n, count, stack)
        if count < 0:
            return np.int64(-1)
        found, before = _find(b, nodes, n, name_at, name_size)
        if found == -2 or (found < 0 and (p < path_end or operation != _INSERT)):
            return np.int64(-1)
        if p == path_end:
            break
        n = found
    depth = nodes[n, NODE_DEPTH] + 1
    if operation == _REPLACE:
        _take(b, nodes, found, begin, end, depth)
        return count
    if operation == _REMOVE:
        behind = nodes[found, NODE_NEXT]
    else:
        if (name_at >= 0 and found >= 0) or count == len(nodes):
            return np.int64(-1)
        _take(b, nodes, count, begin, end, depth)
        made = nodes[count]
        made[NODE_NAME_AT], made[NODE_NAME_SIZE], made[NODE_PARENT] = name_at, name_size, n
        made[NODE_NEXT] = nodes[before, NODE_NEXT] if before >= 0 else nodes[n, NODE_FIRST]
        behind = count
        count += 1
    if before >= 0:
        nodes[before, NODE_NEXT] = behind
    else:
        nodes[n, NODE_FIRST] = behind
    return count


@compiled
def _nodes_text(
    b: Bytes, nodes: Numbers, sources: Int, out: Bytes, o: Int, stack: Numbers, powers: Words
) -> Int:
    """Write the document that the nodes are; where the next byte goes, -1 if that is not sure.

    Args:
        sources: how many documents it is made of; one that is gone again would be left unread.
    """
    n = np.int64(0)
    while True:
        node = nodes[n]
        if node[NODE_SOURCE] == n:
            sources -= 1
        if node[NODE_FIRST] == NODE_UNREAD:
            source = nodes[node[NODE_SOURCE]]
            o, left = value_text(
                node[NODE_KIND], b, node[NODE_AT], node[NODE_END], source[NODE_LEFT], node[NODE_IS_INLINE] != 0,
                out, o, stack, node[NODE_DEPTH], powers,
            )  # fmt: skip
            if o < 0 or left < 0:
                return np.int64(-1)
            source[NODE_LEFT] = left
            following = np.int64(-1)
        else:
            o = bracket(node[NODE_KIND], False, out, o)
            following = node[NODE_FIRST]
            if following < 0:
                o = bracket(node[NODE_KIND], True, out, o)
        while following < 0:
            if n == 0:
                return o if sources == 0 else np.int64(-1)
            following = nodes[n, NODE_NEXT]
            if following >= 0:
                o = separated(out, o)
            else:
                n = nodes[n, NODE_PARENT]
                o = bracket(nodes[n, NODE_KIND], True, out, o)
        n = following
        if nodes[n, NODE_NAME_AT] >= 0:
            o = named(b, nodes[n, NODE_NAME_AT], nodes[n, NODE_NAME_SIZE], out, o)
            if o < 0:
                return o


@compiled
def json_patched(
    b: Bytes, begin: Int, end: Int, p: Int, stop: Int, out: Bytes, o: Int, nodes: Numbers, stack: Numbers, powers: Words
) -> Int:  # fmt: skip
    """Write the text of a document after its diffs; see ``json_text``.

    Args:
        begin, end: where the document is.
        p, stop: where the diffs are.
    """
    if begin == end:
        return np.int64(-1)
    _take(b, nodes, np.int64(0), begin, end, np.int64(0))
    count, sources = np.int64(1), np.int64(1)
    while p < stop:
        operation = np.int64(b[p])
        size, path = _packed(b, p + 1, stop)
        if operation > _REMOVE or size < 2 or b[path] != _DOLLAR:
            return np.int64(-1)
        p = path_end = path + size
        if operation != _REMOVE:
            size, p = _packed(b, p, stop)
            if size < 1:
                return np.int64(-1)
            sources += 1
        else:
            size = np.int64(0)
        count = _apply(b, nodes, count, stack, operation, path + 1, path_end, p, p + size)
        if count < 0:
            return np.int64(-1)
        p += size
    return _nodes_text(b, nodes, sources, out, o, stack, powers)


@compiled
def diffed_value(
    b: Bytes, begin: Int, end: Int, p: Int, stop: Int, column: Numbers, tables: Tables, stack: Numbers, nodes: Numbers,
    out: Bytes, o: Int,
) -> tuple[Int, Int]:  # fmt: skip
    """Write a document after the diffs at ``b[p]``, with its tag and its length; see ``values.value``."""
    fault = np.int64(-1), o
    if p + _DIFFS_SIZE > stop:
        return fault
    length = np.int64(little(b, p, _DIFFS_SIZE))
    p += _DIFFS_SIZE
    if length > stop - p:
        return fault
    written = json_patched(b, begin, end, p, p + length, out, o + TEXT_BEGINS, nodes, stack, tables.powers)
    return (p + length, with_tag(column, out, o, written)) if written >= 0 else fault


@compiled
def document(b: Bytes, asked: Numbers, out: Bytes, nodes: Numbers, stack: Numbers, powers: Words) -> None:
    """Write the text of the document at ``b[0]``, after the diffs behind it if there are any."""
    size, diffs = asked[DOCUMENT_SIZE], asked[DIFFS_SIZE]
    none = np.int64(0)
    if diffs < 0:
        asked[TEXT_SIZE] = json_text(b, none, size, out, none, stack, powers)
    else:
        asked[TEXT_SIZE] = json_patched(b, none, size, size, size + diffs, out, none, nodes, stack, powers)

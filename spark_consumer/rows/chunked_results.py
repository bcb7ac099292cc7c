"""Results of the executors in chunks, because they go through the JVM, whose heap is small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: kind, table, rows, epoch, seq, flags, op, text, assignments, values, rules
Result = tuple[int, int, int, int, int, int, int, bytes | None, bytes | None, bytes | None, int]
#: kind of a result that is the beginning of a text of the result behind it: ``table`` says which one
PIECE = -1
# Twice what a statement of many rows has, so only single large rows are taken to pieces.
_PIECE_BYTES = 2 << 20


def chunked(results: Iterable[Result]) -> Iterator[Result]:
    """The results, each large one behind the pieces of its texts."""
    for result in results:
        if size_of(result) <= _PIECE_BYTES:
            yield result
            continue
        kept: list[bytes | None] = []
        for which, text in enumerate(_texts(result)):
            whole = text or b""
            last = max(0, len(whole) - 1) // _PIECE_BYTES * _PIECE_BYTES
            for at in range(0, last, _PIECE_BYTES):
                yield (PIECE, which, 0, 0, 0, 0, 0, whole[at : at + _PIECE_BYTES], None, None, 0)
            kept.append(None if text is None else whole[last:])
        yield _with(result, kept)


def joined(results: Iterable[Result]) -> Iterator[Result]:
    """The inverse of ``chunked``."""
    begun: list[list[bytes]] = [[], [], []]
    for result in results:
        if result[0] == PIECE:
            begun[result[1]].append(result[7] or b"")
        elif any(begun):
            texts = [
                b"".join((*pieces, text or b"")) if pieces else text
                for pieces, text in zip(begun, _texts(result), strict=True)
            ]
            yield _with(result, texts)
            begun = [[], [], []]
        else:
            yield result


def size_of(result: Result) -> int:
    """Bytes of a result's texts."""
    return sum(len(text) for text in _texts(result) if text)


def _texts(result: Result) -> tuple[bytes | None, bytes | None, bytes | None]:
    return result[7], result[8], result[9]


def _with(result: Result, texts: list[bytes | None]) -> Result:
    kind, table, rows, epoch, seq, flags, op, *_, rules = result
    return (kind, table, rows, epoch, seq, flags, op, texts[0], texts[1], texts[2], rules)

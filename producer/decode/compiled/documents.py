"""Calls the compiled code for one JSON document, of rows that the compiled walk leaves to Python."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from producer.decode.compiled import arrays
from schemas.compiled.types import Argument

if TYPE_CHECKING:
    from schemas.compiled.library import Library

_MOST_BYTES = 256 << 10
# A text has at most six bytes for each of the document's, and a few more.
_GROWTH = 8
_NODES = 10_000


class CompiledDocuments:
    """Makes documents' texts. Threads may share it. Raises LookupError: it is not in the library."""

    def __init__(self, library: Library) -> None:
        self._call = library.function("document")
        self._arguments = _arguments(_MOST_BYTES, _NODES)
        data, self._asked, out, *_ = self._arguments
        self._data, self._out = data.data, out.data
        self._lock = threading.Lock()

    def text(self, document: bytes, diffs: bytes | None = None) -> bytes | None:
        """Return the text of a binary document, after its diffs if there are any; None if Python has to make it."""
        size = len(document)
        behind = size if diffs is None else size + len(diffs)
        if behind > _MOST_BYTES:
            return None
        with self._lock:
            asked = self._asked
            self._data[:size] = document
            if diffs is None:
                asked[arrays.DIFFS_SIZE] = -1
            else:
                self._data[size:behind] = diffs
                asked[arrays.DIFFS_SIZE] = behind - size
            asked[arrays.DOCUMENT_SIZE] = size
            self._call(*self._arguments)
            written = asked[arrays.TEXT_SIZE]
            return None if written < 0 else self._out[:written].tobytes()


def _arguments(size: int, nodes: int) -> tuple[NDArray[Any], ...]:
    return (
        np.empty(size, np.uint8),
        np.zeros(arrays.DOCUMENT_FIELDS, np.int64),
        np.empty(_GROWTH * (size + 1), np.uint8),
        np.empty((nodes, arrays.NODE_FIELDS), np.int64),
        np.empty((arrays.JSON_DEPTH, arrays.JSON_FIELDS), np.int64),
        arrays.POWERS,
    )


def examples() -> tuple[Argument, ...]:
    """Arguments of the compiled code, as examples of their types."""
    return _arguments(1, 1)

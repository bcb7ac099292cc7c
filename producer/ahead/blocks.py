"""Reads the relay log, and far behind its tail lets other processes decode the blocks that come next."""

from __future__ import annotations

from collections import deque

from producer.ahead.pool import BlockJob, DecodePool
from producer.decode.decoded_groups import DecodedBlock
from relay_store.read.reader import BLOCK_SIZE, RelayBlock, RelayReader
from schemas.errors import RelayError

# Bytes that were read in large blocks without coming to the tail, behind which there is a backlog.
_BACKLOG = 8 << 20
_LEAST = BLOCK_SIZE // 2  # bytes of a large block, which is worth the way to another process
_MORE_THAN_WORKERS = 2  # blocks that are read ahead


class BlocksAhead:
    """The reader's blocks, in their order.

    Args:
        pool: decodes blocks; None: nobody does.
    """

    def __init__(self, reader: RelayReader, pool: DecodePool | None) -> None:
        self._reader, self._pool = reader, pool
        self._queue: deque[tuple[RelayBlock, BlockJob | None]] = deque()
        self._without_pause = 0
        self._error: RelayError | None = None

    def read_block(self, timeout: float) -> tuple[RelayBlock, BlockJob | None] | None:
        """The next block, and its job if it has one; None if there is none within ``timeout`` seconds.

        Raises:
            RelayError.
        """
        pool = self._pool
        if pool is not None:
            if self._without_pause > _BACKLOG and pool.is_ready:
                self._read_ahead(pool)
            if not self._queue:
                pool.rest()
        if self._queue:
            return self._queue.popleft()
        if self._error is not None:
            raise self._error
        block = self._reader.read_block(timeout)
        if block is None:
            self._without_pause = 0
            return None
        if len(block.data) >= _LEAST:
            self._without_pause += len(block.data)
        return block, None

    def decoded(self, job: BlockJob | None) -> DecodedBlock | None:
        """What was decoded of a block; None: nothing."""
        return None if job is None or self._pool is None else self._pool.result(job)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()

    def _read_ahead(self, pool: DecodePool) -> None:
        while len(self._queue) < pool.size + _MORE_THAN_WORKERS and self._error is None:
            try:
                block = self._reader.read_block()
                if block is None:
                    self._without_pause = 0
                    return
                worth = _LEAST <= len(block.data) <= BLOCK_SIZE
                job = pool.submit(block, self._reader.format_description()) if worth else None
            except RelayError as error:
                # What comes before it is decoded first.
                self._error = error
                return
            self._queue.append((block, job))

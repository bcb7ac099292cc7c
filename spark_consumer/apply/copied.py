"""Writes rows of copies on several connections, before the transaction that moves the position.

A slice of rows of copies has no changes, so all its rows are as the upstream has them at its beginning and at its end.
They may be written in any order and in several transactions; written again, they are the same. After a crash some of
them are there, and the next start writes all of them again. Each transaction locks the channel's row with a shared
lock and checks the fencing token and the position, so no consumer that was replaced can still write.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from schemas.crashpoints import reached
from spark_consumer.apply.connection import Connection
from spark_consumer.apply.prepared import CopiedStatement
from spark_consumer.apply.tables import position_store
from spark_consumer.apply.write import write_copied
from spark_consumer.epochs.slices import Slice
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, connect, transaction
from spark_consumer.target.tables import lock_table

#: for an error of a slice whose rows are written like this
APPLIED = "some rows of the copy may be written; the next start writes them again, with the same result"


class CopyWriters:
    """``worker_count`` connections, which are opened when they are needed."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._connections: list[Connection] = []
        self._threads = ThreadPoolExecutor(config.worker_count, thread_name_prefix="copy")

    def write(self, slice_: Slice, copied: Sequence[CopiedStatement], token: int) -> None:
        """Write all rows.

        Args:
            token: the consumer's fencing token.

        Raises:
            DownstreamError, LogError: some of the rows may be written (``APPLIED``).
        """
        count = min(self._config.worker_count, len(copied))
        while len(self._connections) < count:
            self._connections.append(Connection(self._config, connect(self._config.target)))
        # Each connection writes rows that follow one another.
        bounds = pairwise(len(copied) * number // count for number in range(count + 1))
        writing = [
            self._threads.submit(self._write_share, connection, slice_, copied[begin:end], token)
            for connection, (begin, end) in zip(self._connections, bounds, strict=False)
        ]
        # Each share ends before an error is raised.
        errors = [error for one in writing if (error := one.exception()) is not None]
        if errors:
            raise errors[0]

    def _write_share(
        self, connection: Connection, slice_: Slice, copied: Sequence[CopiedStatement], token: int
    ) -> None:
        def work() -> None:
            self._write_once(connection.session, slice_, copied, token)

        connection.with_retries(work)

    def _write_once(
        self, session: Session, slice_: Slice, copied: Sequence[CopiedStatement], token: int
    ) -> None:
        with transaction(session):
            found = position_store.read(session, self._config.key, share=True)
            slice_.check_next(position_store.check_token(found, token, self._config.key))
            for name, table in {one.table.target_name: one.table for one in copied}.items():
                lock_table(session, name, table.definition)
            write_copied(session, copied, slice_.where)
        reached("copied.after_share")

    def abort(self) -> None:
        """End all waiting and break the connections. Another thread calls this."""
        for connection in list(self._connections):
            connection.abort()

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=True)
        for connection in self._connections:
            connection.close()

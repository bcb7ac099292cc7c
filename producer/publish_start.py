"""Finds the position at which publishing starts: after the last committed epoch, or at the start of a new log."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from producer.decode.duplicate_filter import DuplicateFilter, duplicate_filter
from producer.decode.nested_events import ReadPrepared, needed_from
from producer.structures.store import Structures
from producer.upstream.structures import Interrupted
from relay_store.layout.directory import RelayPosition, binlog_files
from relay_store.layout.locks import files_locked
from relay_store.layout.readers import Mark
from relay_store.read.reader import blocks_between
from relay_store.read.start import initial_position, resume_position
from relay_store.read.tail import RelayTail
from schemas.binlog.framing import FIRST_POSITION
from schemas.errors import UpstreamError
from schemas.gtid.sets import Flavor, GtidSet, parse_gtid_set
from schemas.wire.epoch import EpochCommitted

log = structlog.get_logger()

_PAUSE = 0.02  # seconds between two checks of the relay log


@dataclass(frozen=True)
class PublishStart:
    """Where publishing starts.

    Attributes:
        needed: the first position of the relay log that is needed to start there.
        executed: what lies before.
        log_begins: of a new log, as in the record of its epoch 0.
    """

    position: RelayPosition
    needed: RelayPosition
    executed: GtidSet
    log_begins: str = ""


def find_start(
    root: Path,
    flavor: Flavor,
    last: EpochCommitted | None,
    tail: RelayTail | None,
    mark: Mark | None,
    stop: threading.Event,
) -> PublishStart | None:
    """Wait until the mirror has reached the start position and return it; None if stopped.

    Args:
        last: the log's last epoch; None for a new log.
        tail: the relay log's tail; None when nobody writes the relay log.
        mark: is set to what is needed.

    Raises:
        RelayError: the relay log does not contain the position.
    """
    while not stop.is_set():
        if tail is None or tail.position is not None:
            with files_locked(root):
                found = _find(root, flavor, last, with_prepared=mark is not None)
                if found is not None and mark is not None:
                    mark.begin(found.needed)
            if found is not None or tail is None:
                return found
        time.sleep(_PAUSE)
    return None


def _find(
    root: Path, flavor: Flavor, last: EpochCommitted | None, *, with_prepared: bool
) -> PublishStart | None:
    """Return the start; None while the relay log has not reached it."""
    if last is None:
        first = initial_position(root, flavor)
        if first is None:
            return None
        return PublishStart(first.position, first.position, first.executed, first.log_begins)
    executed = parse_gtid_set(last.executed_gtids, flavor)
    position = resume_position(
        root,
        last.relay_dir,
        last.source_file,
        last.source_pos,
        executed,
        by_gtids=last.last_gtid is not None or not last.transactions,
    )
    if position is None:
        return None
    needed = min(position, needed_from(last), key=lambda at: at.order) if with_prepared else position
    return PublishStart(position, needed, executed)


def duplicates_after(root: Path, executed: GtidSet, position: RelayPosition) -> DuplicateFilter:
    """Build the filter for transactions after a position that are already published, from the file's earlier events."""
    file_start = RelayPosition(position.subdir, position.file, FIRST_POSITION)
    is_first_file = binlog_files(root / position.subdir)[:1] == [position.file]
    earlier = blocks_between(root, file_start, position.pos)
    return duplicate_filter(executed, position, is_first_file=is_first_file, earlier=earlier)


def prepared_in(root: Path) -> ReadPrepared:
    """Reads prepared transactions in a relay directory."""
    return lambda prepared: blocks_between(
        root,
        RelayPosition(prepared.relay_dir, prepared.relay_file, prepared.relay_pos),
        prepared.relay_end,
    )


def read_structures_early(structures: Structures) -> None:
    """Read the structures once, early: the less DDL comes between their position and the rows, the better.

    Not before the start is known: DDL before it is never met.
    """
    try:
        if not structures.seeded:
            structures.seed()
    except UpstreamError as error:
        # With full metadata they are not needed; otherwise the first table without one raises the error.
        log.warning("structures_not_read", reason=str(error))
    except Interrupted:
        log.info("structures_not_read", reason="a stop")

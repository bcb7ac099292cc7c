"""Registers channels as readers of the relay log, by their positions on the downstream.

A consumer registers its channel if the relay log is on the same machine; a producer registers the channels of its
configuration. A purge then keeps the files that `tailrace recover` would need for the channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pymysql
import structlog

from relay_store.layout import directory as layout
from relay_store.layout.directory import Owner, RelayPosition
from relay_store.layout.locks import files_locked
from relay_store.layout.readers import Mark, channel_reader
from schemas.errors import RelayError, TailraceError
from spark_consumer.apply.tables import position_store
from spark_consumer.epochs.position import Position
from spark_consumer.job.progress import Counters
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import closing, connect, error_number
from tailrace.service.background import repeated

_PAUSE, _PAUSE_ELSEWHERE = 2.0, 10.0  # seconds
_THREAD = "channel-mark"
_NOT_YET = (1049, 1054, 1146)  # the consumer has not created the schema, table or column yet
_log = structlog.get_logger()


@contextmanager
def keep_registered(settings: ConsumerConfig, root: Path, counters: Counters) -> Iterator[None]:
    """Update the mark of a running channel while the block runs, and at its end.

    Errors are only logged: an outdated mark keeps more files, not fewer.
    """
    channel = ChannelMark(settings, root)
    try:
        with repeated(lambda: channel.update(counters.position_epoch), _PAUSE, _THREAD):
            yield
    finally:
        channel.update(counters.position_epoch)


@contextmanager
def follow_channels(channels: Sequence[ConsumerConfig], root: Path) -> Iterator[Sequence[ChannelMark]]:
    """Update the marks of channels whose consumers may run on other machines. Yields them."""
    marks = [ChannelMark(settings, root) for settings in channels]

    def update_all() -> None:
        for mark in marks:
            mark.update()

    with repeated(update_all, _PAUSE_ELSEWHERE, _THREAD):
        yield marks


class ChannelMark:
    """The mark of one channel, made from its position on the downstream.

    Attributes:
        position: as it was read last; None if that failed.
    """

    def __init__(self, settings: ConsumerConfig, root: Path) -> None:
        self._settings, self._root = settings, root
        self.name = settings.channel
        self.position: Position | None = None
        self._mark = Mark(root, channel_reader(settings.channel))
        self._started = False
        self._seen: int | None = None
        self._logged = ""

    def update(self, epoch: int | None = None) -> None:
        """Move the mark to the channel's position, unless it is still at ``epoch``."""
        if (epoch is not None and epoch == self._seen) or not self._root.is_dir():
            return
        try:
            position = self.position = self._read()
            if position is not None and self._write(position):
                self._seen = position.epoch
        except (TailraceError, pymysql.MySQLError, OSError) as error:
            self.position = None
            if error_number(error) in _NOT_YET:
                return
            if self._logged != (reason := str(error)):
                _log.warning("channel_not_registered", channel=self._settings.channel, reason=reason)
            self._logged = reason

    def _read(self) -> Position | None:
        with closing(connect(self._settings.target)) as session:
            return position_store.read(session, self._settings.key)

    def _write(self, position: Position) -> bool:
        """Write the mark, and return whether the position determines it. Raises RelayError TR311, TR312."""
        check_same_log(self._root, layout.check_owner(self._root, self._settings.prefix), position)
        if self._started:
            if (needed := needed_from(position)) is not None:
                self._mark.advance(needed)
                self._mark.flush()
            return needed is not None
        with files_locked(self._root):
            needed = needed_from(position)
            # Without a position in the relay log the channel may need all files.
            first = needed or layout.oldest_file(self._root)
            if first is not None:
                self._mark.begin(first)
                self._started = True
        return needed is not None


def needed_from(position: Position) -> RelayPosition | None:
    """Return where `tailrace recover` would start to read for a channel with this position; None if unknown."""
    if position.relay_log is None or position.relay_pos is None:
        return None
    subdir, _, file = position.relay_log.rpartition("/")
    here = RelayPosition(subdir, file, position.relay_pos)
    prepared = [RelayPosition(p.relay_dir, p.relay_file, p.relay_pos) for p in position.prepared]
    return min([here, *prepared], key=lambda start: start.order)


def check_same_log(root: Path, owner: Owner, position: Position) -> None:
    """Raise RelayError TR312 if the channel follows another log than the one made from this relay log."""
    if owner.log_id and position.log_id and owner.log_id != position.log_id:
        raise RelayError(
            "TR312",
            f"the relay log in {root} was published to the log {owner.log_id}, and the channel follows the log"
            f" {position.log_id}",
            hint="set [relay] dir and [kafka] prefix to those of this channel's producer",
        )

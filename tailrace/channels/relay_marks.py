"""Registers channels as readers of the relay log, by their positions on the downstream.

A consumer registers its own, where the relay log is on the same machine; a producer those of its configuration. So no
purge takes from the channel what `tailrace recover` would need to bring it forward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
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

_EVERY, _EVERY_ELSEWHERE = 2.0, 10.0  # seconds
_LEAVE = 2.0
_NOT_YET = (1049, 1054, 1146)  # the consumer is about to create schema, table or column
_log = structlog.get_logger()


@contextmanager
def keep_registered(settings: ConsumerConfig, root: Path, counters: Counters) -> Iterator[None]:
    """Keep the mark up with a running channel while the block runs, and at its end.

    Trouble with it is logged, and no reason to stop: an old mark keeps more files, not fewer.
    """
    channel = ChannelMark(settings, root)
    try:
        with _repeat(lambda: channel.update(counters.position_epoch), _EVERY):
            yield
    finally:
        channel.update(counters.position_epoch)


@contextmanager
def follow_channels(channels: Sequence[ConsumerConfig], root: Path) -> Iterator[None]:
    """Update the marks of channels whose consumers may run on other machines."""
    marks = [ChannelMark(settings, root) for settings in channels]

    def update_all() -> None:
        for mark in marks:
            mark.update()

    with _repeat(update_all, _EVERY_ELSEWHERE):
        yield


@contextmanager
def _repeat(update: Callable[[], None], pause: float) -> Iterator[None]:
    done = threading.Event()

    def watch() -> None:
        while not done.wait(pause):
            update()

    thread = threading.Thread(target=watch, name="channel-mark", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # A downstream that is away must not hold up the end.
        thread.join(_LEAVE)


class ChannelMark:
    """The mark of one channel, taken from its position on the downstream."""

    def __init__(self, settings: ConsumerConfig, root: Path) -> None:
        self._settings, self._root = settings, root
        self._mark = Mark(root, channel_reader(settings.channel))
        self._begun = False
        self._seen: int | None = None
        self._said = ""

    def update(self, epoch: int | None = None) -> None:
        """Move the mark to the channel's position, unless it is still at ``epoch``."""
        if (epoch is not None and epoch == self._seen) or not self._root.is_dir():
            return
        try:
            position = self._read()
            if position is not None and self._write(position):
                self._seen = position.epoch
        except (TailraceError, pymysql.MySQLError, OSError) as error:
            if error_number(error) in _NOT_YET:
                return
            if self._said != (what := str(error)):
                _log.warning("channel_not_registered", channel=self._settings.channel, reason=what)
            self._said = what

    def _read(self) -> Position | None:
        with closing(connect(self._settings.target)) as session:
            return position_store.read(session, self._settings.key)

    def _write(self, position: Position) -> bool:
        """Whether the mark says what the position needs. Raises RelayError where another pipeline's marks are."""
        check_same_log(self._root, layout.check_owner(self._root, self._settings.prefix), position)
        if self._begun:
            if (needed := needed_from(position)) is not None:
                self._mark.advance(needed)
                self._mark.flush()
            return needed is not None
        with files_locked(self._root):
            needed = needed_from(position)
            # Of a channel whose place was forgotten nobody knows how much it needs.
            first = needed or layout.oldest_file(self._root)
            if first is not None:
                self._mark.begin(first)
                self._begun = True
        return needed is not None


def needed_from(position: Position) -> RelayPosition | None:
    """From where on `tailrace recover` reads for a channel with this position."""
    if position.relay_log is None or position.relay_pos is None:
        return None
    subdir, _, file = position.relay_log.rpartition("/")
    here = RelayPosition(subdir, file, position.relay_pos)
    begins = [RelayPosition(p.relay_dir, p.relay_file, p.relay_pos) for p in position.prepared]
    return min([here, *begins], key=lambda place: place.order)


def check_same_log(root: Path, owner: Owner, position: Position) -> None:
    """Raises RelayError TR312 if the channel follows another log than is made of the relay log."""
    if owner.log_id and position.log_id and owner.log_id != position.log_id:
        raise RelayError(
            "TR312",
            f"the relay log in {root} was published to the log {owner.log_id}, and the channel follows the log"
            f" {position.log_id}",
            hint="set [relay] dir and [kafka] prefix to those of the producer that feeds this channel",
        )

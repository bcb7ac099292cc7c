"""Deletes the relay log as RESET REPLICA does, and with ``everything`` also the channel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from relay_store.layout import directory as layout
from relay_store.purge.forget import forget_relay_log
from relay_store.write.writer import lock_directory
from schemas.counted import counted
from schemas.errors import DownstreamError
from spark_consumer.apply.tables import channel_tables, position_store
from spark_consumer.epochs.position import Position
from spark_consumer.job.checkpoint import clear, in_use
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, closing, connect
from tailrace.channels.relay_marks import check_same_log


@dataclass(frozen=True)
class Reset:
    """A reset before its execution. No producer or consumer can start while it is open; see ``open_reset``.

    Attributes:
        everything: also remove the channel, as RESET REPLICA ALL does.
        position: the channel's position; None if the downstream does not have the channel.
    """

    config: ConsumerConfig
    root: Path
    everything: bool
    session: Session
    position: Position | None

    def describe(self) -> list[str]:
        """Return lines that list what the reset deletes and what it keeps."""
        channel, position = f"channel {self.config.channel}", self.position
        lines = ["deletes:", f"  relay log {self.root}: {_contents(self.root)}"]
        if position is None:
            return [*lines, f"  {channel}: it does not exist on the downstream"]
        applied = f"epoch {position.epoch}, executed GTID set {position.executed_gtids or '(empty)'}"
        if not self.everything:
            at = f"{position.relay_log}:{position.relay_pos}" if position.relay_log else "none"
            lines.append(f"  {channel}: its position in the relay log, {at}")
            return [*lines, "keeps:", f"  {channel}: {applied}; nothing is applied twice"]
        lines.append(f"  {channel}: {applied}; its audit rows; its checkpoint {self.config.channel_dir}")
        lines.append("keeps: the tables and Kafka's topics; the next `tailrace consume` starts at --from")
        return lines

    def forget(self) -> None:
        """Execute the reset. It can be repeated after a crash. Raises RelayError or DownstreamError."""
        if self.position is not None:
            act = channel_tables.forget if self.everything else position_store.forget_relay_log
            act(self.session, self.config.key)
        if self.root.is_dir():
            forget_relay_log(self.root)
        if self.everything:
            clear(self.config.channel_dir)


@contextmanager
def open_reset(config: ConsumerConfig, root: Path, *, everything: bool) -> Iterator[Reset]:
    """Keep producer and consumer from starting, and read the state to delete.

    Raises:
        RelayError: TR301, a producer is running; TR311, TR312, the relay log belongs to another pipeline.
        DownstreamError: TR614, a consumer is running on this machine; TR613, the relay log is still needed; TR601.
    """
    with ExitStack() as stack:
        owner = None
        if root.is_dir():
            stack.callback(os.close, lock_directory(root))
            owner = layout.check_owner(root, config.prefix)
        stack.enter_context(in_use(config.channel_dir, alone=True))
        session = stack.enter_context(closing(connect(config.target)))
        channel_tables.install(session)
        position = position_store.read(session, config.key)
        if position is not None and owner is not None:
            check_same_log(root, owner, position)
        if position is not None and not everything:
            _check_needed(position, config.channel)
        yield Reset(config, root, everything, session, position)


def _check_needed(position: Position, channel: str) -> None:
    if position.epoch_gtids is not None and not position.executed_gtids:
        raise DownstreamError(
            "TR613",
            f"what `tailrace recover` applied to channel {channel} is known only by its position in the relay log,"
            " because the upstream has no GTIDs",
            hint="run `tailrace produce` and `tailrace consume` until caught up, then reset",
        )


def _contents(root: Path) -> str:
    found = [
        root / subdir / file
        for subdir in (layout.read_index(root) if root.is_dir() else [])
        for file in (layout.binlog_files(root / subdir) if (root / subdir).is_dir() else [])
    ]
    if not found:
        return "no file"
    size = sum(path.stat().st_size for path in found)
    counts = f"{counted(len(found), 'file')}, {counted(size, 'byte')}"
    return f"{counts}, {_name(found[0])} to {_name(found[-1])}"


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"

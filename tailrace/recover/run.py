"""Runs a recovery from the channel's position to the last complete transaction in the relay files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from producer.epochs.open_epoch import LogState
from producer.epochs.progress import PublishProgress
from producer.publish import Publisher
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.layout.epoch_ends import add_epoch_end
from relay_store.read.start import initial_position, resume_position
from relay_store.read.tail import RelayTail
from relay_store.write.whole_groups import keep_whole_groups, server_flavor
from relay_store.write.writer import RelayWriter
from schemas.errors import DownstreamError, LogError, RelayError, Where
from schemas.gtid.sets import Flavor, parse_gtid_set
from spark_consumer.apply.applier import ChannelState, read_state
from spark_consumer.apply.tables import channel_tables, position_store, worker_info
from spark_consumer.epochs.letter_case import downstream_lowers_names, in_lower_case
from spark_consumer.epochs.position import Position
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.server import MakeServerSink, ServerSink
from spark_consumer.target.session import Session, connect
from tailrace.channels.relay_marks import check_same_log
from tailrace.recover.applied_log import as_epoch

#: makes the publisher whose epochs go to this sink; whether it takes names in lower case, as the upstream does
MakePublisher = Callable[[ServerSink, Flavor, bool, RelayTail], Publisher]


@dataclass(frozen=True)
class Recovered:
    """The result of a recovery.

    Attributes:
        begin: the channel's position before it.
        end: the channel's position after it.
        gtids: the GTID set that is applied.
    """

    begin: RelayPosition
    end: RelayPosition
    gtids: str
    rows: int
    transactions: int


class Recovery:
    """Applies the relay log in ``root`` to a channel's downstream, exactly once, without upstream and Kafka.

    Args:
        sink, publisher: make these, once the channel is taken over.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        root: Path,
        sink: MakeServerSink,
        publisher: MakePublisher,
    ) -> None:
        self._config, self._root = config, root
        self._make_sink, self._make_publisher = sink, publisher

    def run(
        self,
        stop: threading.Event,
        watch: Callable[[PublishProgress, RelayPosition, RelayPosition], None] = lambda *_: None,
    ) -> Recovered:
        """Recover.

        Args:
            stop: set it to end early, at the end of a transaction.
            watch: called once before the first row is read, with the progress, which is updated, and both ends.

        Raises:
            RelayError: TR301, a producer is running; TR340, there is no relay log; TR341, it does not reach back to
                the channel's position; TR311, TR312, it belongs to another pipeline.
            LogError: TR579, tables are being copied at the channel's position.
            DownstreamError: TR612, the channel has no position; and the errors that stop a consumer.
            DecodeError: the errors that stop a publisher.
        """
        config, root = self._config, self._root
        _end(root)
        flavor = server_flavor(root)
        keep_whole_groups(root, flavor)
        folds = layout.read_lower_case_names(root)
        if folds:
            config = in_lower_case(config)
        if downstream_lowers_names(config):
            config = replace(config, folded=())
        # An epoch is one transaction, so its rows are not distributed to workers.
        config = replace(config, consistency="batch")
        with closing(RelayWriter.open(root)), closing(self._open_sink(config, flavor)) as sink:
            begin = _begin(sink.position, root, flavor)
            end, tail = _end(root), RelayTail()
            tail.advance(end)
            publisher = self._make_publisher(sink, flavor, folds, tail)
            watch(publisher.progress, begin, end)
            if begin.order < end.order:
                # It names no structures, so the publisher includes that of each table with rows.
                _run(publisher, LogState(as_epoch(sink.position)), end, stop)
            reached = publisher.reached or begin
            _settle(sink, reached, root)
            sink.record_end()
            counts = publisher.progress
            return Recovered(begin, reached, sink.position.executed_gtids, counts.rows, counts.transactions)

    def _open_sink(self, config: ConsumerConfig, flavor: Flavor) -> ServerSink:
        session = connect(config.target)
        try:
            return self._make_sink(config, session, _take_over(config, session, self._root, flavor))
        except BaseException:
            session.close()
            raise


def _take_over(config: ConsumerConfig, session: Session, root: Path, flavor: Flavor) -> ChannelState:
    """Become the channel's only writer, if the relay log reaches back to its position."""
    channel_tables.install(session)
    position = position_store.require_position(session, config.key)
    check_same_log(root, layout.check_owner(root, config.prefix), position)
    if position.epoch_rows is not None or position.rewound_from is not None:
        raise DownstreamError(
            "TR615",
            f"channel {config.channel} is inside an epoch, or was rewound: the relay log does not show what is"
            " applied",
            where=Where(epoch=position.epoch + 1),
            hint="run `tailrace consume` to the end of an epoch first, after the position it was rewound from",
        )
    if position.copying:
        raise LogError(
            "TR579",
            f"tables are being copied where channel {config.channel} is, and the relay log does not have their rows",
            where=Where(epoch=position.epoch),
            hint="run `tailrace consume` until `tailrace status` says that the copy has come to its end; without the"
            " topics, empty the tables, run `tailrace channel remove`, and begin a new log",
        )
    _begin(position, root, flavor)
    if worker_info.slices_ahead(session, config.key):
        raise worker_info.partly_applied(config.key)
    state = read_state(session, config.key, position_store.take_over(session, config.key))
    if waiting := [one for one in state.directives.values() if not one.used]:
        raise DownstreamError(
            "TR645",
            "an operator has decided about events of the epoch log, which is not read here:"
            f" {', '.join(f'event {one.event}' for one in waiting)}",
            hint="let `tailrace consume` apply these epochs first, or delete the rows without used_at from"
            " tailrace.error_directives",
        )
    return state


def _run(publisher: Publisher, state: LogState, end: RelayPosition, stop: threading.Event) -> None:
    """Run the publisher until it has reached ``end`` or is stopped."""
    halt = threading.Event()

    def look(here: RelayPosition) -> bool:
        if stop.is_set() or here.order >= end.order:
            # Stop the publisher instead of setting its end, since it would wait there for the rest of an open group.
            halt.set()
        return False

    publisher.run(state, halt, look)


def _settle(sink: ServerSink, reached: RelayPosition, root: Path) -> None:
    """Store the reached position in the channel, and make the producer end an epoch there."""
    position = sink.position
    if position.epoch_gtids is None:
        # Nothing was applied beyond whole epochs of the log.
        return
    add_epoch_end(root, reached)
    sink.move_to(
        replace(
            position,
            relay_log=f"{reached.subdir}/{reached.file}",
            relay_pos=reached.pos,
            source_log=reached.upstream[0],
            source_pos=reached.upstream[1],
        )
    )


def _begin(position: Position, root: Path, flavor: Flavor) -> RelayPosition:
    """Return the relay position at which the channel and the publisher continue. Raises RelayError TR341."""
    last = as_epoch(position)
    if last is None:
        try:
            found = initial_position(root, flavor)
        except RelayError as error:
            raise _out_of_reach(f"nothing is applied yet ({error})", position, root) from error
        if found is None:
            raise _out_of_reach("its first file is incomplete", position, root)
        return found.position
    try:
        executed = parse_gtid_set(last.executed_gtids, flavor)
        here = resume_position(root, last.relay_dir, last.source_file, last.source_pos, executed)
    except (ValueError, RelayError) as error:
        raise _out_of_reach(f"it does not contain the position ({error})", position, root) from error
    end, applied = _end(root), RelayPosition(last.relay_dir, last.relay_file, last.relay_pos)
    if here is None and last.relay_dir == end.subdir and end.order <= applied.order:
        # The channel had applied events after relay.meta's position, which were cut off since.
        return applied
    if here is None:
        raise _out_of_reach("the position is after its end", position, root)
    return here


def _end(root: Path) -> RelayPosition:
    """Return the end of the last relay file. Raises RelayError TR340."""
    for subdir in reversed(layout.read_index(root)):
        if files := layout.binlog_files(root / subdir):
            return RelayPosition(subdir, files[-1], (root / subdir / files[-1]).stat().st_size)
    raise RelayError(
        "TR340", f"there is no relay log in {root}", hint="set relay.dir to the producer's directory"
    )


def _out_of_reach(what: str, position: Position, root: Path) -> RelayError:
    files = [
        f"{subdir}/{file}"
        for subdir in layout.read_index(root)
        for file in layout.binlog_files(root / subdir)
    ]
    reach = f"{root} has {files[0]} to {files[-1]}" if files else f"{root} has no file"
    return RelayError(
        "TR341",
        f"the relay log does not reach back to the channel's position: {what}; {reach}",
        where=Where(file=position.relay_log, position=position.relay_pos, epoch=position.epoch),
        hint="restore the relay directory that fed this channel; nothing was applied",
    )

"""Runs a recovery from the channel's position to the last complete transaction in the relay files."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from producer.decode.decode_rules import DecodeRules
from producer.epochs.open_epoch import EpochLimits, LogState
from producer.epochs.progress import PublishProgress
from producer.publish import Publisher
from producer.settings import SkipRule
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.layout.epoch_ends import add_epoch_end
from relay_store.read.start import initial_position, resume_position
from relay_store.read.tail import RelayTail
from relay_store.write.whole_groups import keep_whole_groups, server_flavor
from relay_store.write.writer import RelayWriter
from schemas.errors import DownstreamError, RelayError, Where
from schemas.gtid.sets import Flavor, parse_gtid_set
from schemas.tables import QualifiedName, TableFilter
from spark_consumer.apply.ddl.run import LoggedTables
from spark_consumer.apply.open import open_applier
from spark_consumer.apply.tables import channel_tables, position_store, worker_info
from spark_consumer.epochs.letter_case import downstream_lowers_names, in_lower_case
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import Position
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.server import ServerSink
from spark_consumer.target.session import connect
from tailrace.channels.relay_marks import check_same_log
from tailrace.recover.applied_log import AppliedLog, RecordRows, as_epoch

_NEVER = math.inf  # seconds: epochs end because of their size, not their age


@dataclass(frozen=True)
class Recovery:
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


def recover(
    config: ConsumerConfig,
    root: Path,
    tables: TableFilter,
    max_bytes: int,
    stop: threading.Event,
    watch: Callable[[PublishProgress, RelayPosition, RelayPosition], None] = lambda *_: None,
    skip: Sequence[SkipRule] = (),
) -> Recovery:
    """Apply the relay log in ``root`` to a channel's downstream, exactly once, without upstream and Kafka.

    Args:
        tables: the producer's tables; the channel's own are in ``config``.
        skip: the producer's rules for events that it leaves out.
        max_bytes: bytes of binlog after which an epoch ends. An epoch's rows are in memory.
        stop: set it to end early, at the end of a transaction.
        watch: called once before the first row is read, with the progress, which is updated, and both ends.

    Raises:
        RelayError: TR301, a producer is running; TR340, there is no relay log; TR341, it does not reach back to the
            channel's position; TR311, TR312, it belongs to another pipeline.
        DownstreamError: TR612, the channel has no position; and the errors that stop a consumer.
        DecodeError: the errors that stop a publisher.
    """
    _end(root)
    flavor = server_flavor(root)
    keep_whole_groups(root, flavor)
    if layout.read_lower_case_names(root):
        tables = TableFilter(tables.include, tables.exclude, folds=True)
        config, skip = in_lower_case(config), tuple(rule.in_lower_case() for rule in skip)
    if downstream_lowers_names(config):
        config = replace(config, folded=())
    seen, rows = set[QualifiedName](), RecordRows()
    with closing(RelayWriter.open(root)), _sink(config, root, flavor, seen, rows) as sink:
        begin = _begin(sink.position, root, flavor)
        end, tail, applied = _end(root), RelayTail(), AppliedLog(sink, rows, seen)
        tail.advance(end)
        publisher = Publisher(
            applied,
            root,
            tail,
            DecodeRules(
                flavor,
                tables,
                EpochLimits(config.max_batch_rows, max_bytes, _NEVER, _NEVER),
                accounts=config.ddl.accounts == "apply",
                skip=tuple(skip),
            ),
        )
        watch(publisher.progress, begin, end)
        if begin.order < end.order:
            _run(publisher, applied.state(), end, stop)
        reached = publisher.reached or begin
        _settle(sink, reached, root)
        sink.record_end()
        counts = publisher.progress
        return Recovery(begin, reached, sink.position.executed_gtids, counts.rows, counts.transactions)


def _run(publisher: Publisher, state: LogState, end: RelayPosition, stop: threading.Event) -> None:
    """Run the publisher until it has reached ``end`` or is stopped."""
    halt = threading.Event()

    def look(here: RelayPosition) -> bool:
        if stop.is_set() or here.order >= end.order:
            # Stop the publisher instead of setting its end, since it would wait there for the rest of an open group.
            halt.set()
        return False

    publisher.run(state, halt, look)


@contextmanager
def _sink(
    config: ConsumerConfig, root: Path, flavor: Flavor, seen: set[QualifiedName], rows: RecordRows
) -> Iterator[ServerSink]:
    """Yield the channel's sink, after checking that the relay log reaches back to the channel's position."""
    session = connect(config.target)
    try:
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
        _begin(position, root, flavor)
        log = LogReader(config)
        if worker_info.slices_ahead(session, config.key):
            raise worker_info.partly_applied(config.key)
        position = position_store.take_over(session, config.key)
        # Called only if there are routes; Kafka must be reachable then.
        logged = LoggedTables(lambda epoch: seen | log.tables(epoch), None)
        # An epoch is one transaction, so its rows are not distributed to workers.
        config = replace(config, consistency="batch")
        applier = open_applier(config, session, position, logged)
    except BaseException:
        session.close()
        raise
    with closing(applier):
        if waiting := [one for one in applier.directives.values() if not one.used]:
            raise DownstreamError(
                "TR645",
                "an operator has decided about events of the epoch log, which is not read here:"
                f" {', '.join(f'event {one.event}' for one in waiting)}",
                hint="let `tailrace consume` apply these epochs first, or delete the rows without used_at from"
                " tailrace.error_directives",
            )
        yield ServerSink(config, applier, log, rows)


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

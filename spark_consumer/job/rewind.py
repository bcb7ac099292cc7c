"""Moves a channel back to an earlier position: the changes after it are applied again, in safe mode.

The position before the rewind is kept in the channel's row, so safe mode ends exactly there, whatever happens in
between. Until then the downstream has both old and new rows. If a row with the unique value of another row is in the
way, a later change writes it again, so it is replaced.

That works for rows that have a key and that the log has completely. Everything else is refused before anything is
changed: DDL (repeated, it could fail or, like TRUNCATE, act on the wrong rows; left out, it would keep rows that it
removed), tables without a key, tables that foreign keys connect with a cascading one, tables some of whose changes the
channel leaves out, and tables with columns that only the downstream has. An operator's decision about an event holds
again, so the statements that replaced it must be repeatable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from schemas.counted import counted
from schemas.errors import DDL, DownstreamError, EventId, LogError, Where
from schemas.wire.epoch import ABSENT, BEGIN, EpochCommitted, SchemaChanged
from schemas.wire.log_records import structure_of
from spark_consumer.apply.repeatable import REPLAY_HINT, check_decisions, check_tables
from spark_consumer.apply.tables import channel_tables, error_log, position_store, worker_info
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.ddl.translate import DdlRules
from spark_consumer.epochs.epoch_transactions import TransactionReader
from spark_consumer.epochs.letter_case import with_servers_letter_case
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import LogPosition, Position, order_of
from spark_consumer.epochs.slices import LoggedEpoch, as_channel_sees
from spark_consumer.epochs.start import check_log, first_position
from spark_consumer.job.checkpoint import in_use
from spark_consumer.plan.plan import plan_slice, targets_of
from spark_consumer.plan.statements import Limits
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, closing, connect, transaction
from spark_consumer.target.tables import TargetCatalog

Decided = Mapping[EventId, Directive]


@dataclass(frozen=True)
class Rewind:
    """A rewind that is possible; see ``open_rewind``.

    Attributes:
        before: the channel's position.
        after: the position after the rewind.
        epochs: the epochs that are applied again, completely or in part.
        decided: the operator's decisions about events in them, which hold again.
    """

    config: ConsumerConfig
    session: Session
    before: Position
    after: Position
    epochs: tuple[LoggedEpoch, ...]
    decided: tuple[Directive, ...] = ()

    def describe(self) -> list[str]:
        """Return lines that describe the rewind."""
        repeat_until, rows = self.after.repeat_until, sum(logged.record.rows for logged in self.epochs)
        return [
            f"channel {self.config.channel} is at {self.before.log_position}:"
            f" {self.before.executed_gtids or '(empty)'}",
            f"will be moved back to {self.after.log_position}: {self.after.executed_gtids or '(empty)'}",
            f"will reapply, in safe mode up to {repeat_until}: {counted(len(self.epochs), 'epoch')} with"
            f" {counted(rows, 'row')}",
            *(
                f"the decision of `tailrace error` about event {one.event} holds again:"
                f" {'; '.join(one.statements) or 'left out'}"
                for one in self.decided
            ),
        ]

    def execute(self) -> None:
        """Move the position, in one transaction. Raises DownstreamError TR610 if a consumer has started meanwhile."""
        with transaction(self.session):
            found = position_store.read(self.session, self.config.key, lock=True)
            position_store.check_token(found, self.before.fencing_token, self.config.key)
            position_store.move(self.session, self.config.key, self.after)


@contextmanager
def open_rewind(config: ConsumerConfig, to: str) -> Iterator[Rewind]:
    """Lock out the channel's consumer, and check that the changes after a position can be applied again.

    Args:
        to: the position, in the form of ``--from``.

    Raises:
        DownstreamError: TR612, there is no such channel; TR614, its consumer runs here; TR616, it cannot be rewound
            now; TR660, workers have applied a slice in part; TR576, TR577, TR578, a change cannot be repeated.
        LogError: TR575, the position is not before the channel's; TR555, it was deleted from the log; TR558, it is
            another log.
    """
    with ExitStack() as stack:
        stack.enter_context(in_use(config.channel_dir, alone=True))
        session = stack.enter_context(closing(connect(config.target)))
        channel_tables.install(session)
        log = LogReader(config)
        check_log(config.key, position_store.require_position(session, config.key), log.last_epoch())
        # A consumer on another machine stops at its next slice.
        before = position_store.take_over(session, config.key)
        if worker_info.slices_ahead(session, config.key):
            raise worker_info.partly_applied(config.key)
        yield _checked(config, session, before, log, to)


def _checked(config: ConsumerConfig, session: Session, before: Position, log: LogReader, to: str) -> Rewind:
    config = with_servers_letter_case(config, log)
    if before.recovered or before.ddl_intent is not None:
        what = (
            "`tailrace recover` has applied more than its epochs"
            if before.recovered
            else "an interrupted DDL is unresolved"
        )
        raise DownstreamError(
            "TR616",
            f"channel {config.channel} cannot be rewound now: {what}",
            where=Where(epoch=before.epoch),
            hint="run `tailrace consume --until-caught-up` first",
        )
    target = first_position(to, log, TransactionReader(config, log))
    if target.order >= before.order:
        raise LogError(
            "TR575",
            f"--to {to} is {target}, but channel {config.channel} is at {before.log_position}",
            hint="a rewind can only go back",
        )
    repeat_until = before.repeat_until or before.log_position
    found = list(log.epochs(max(target.offset, log.bounds()[0])))
    again = [
        logged
        for logged in found
        if logged.record.epoch > target.epoch and order_of(logged.record.epoch - 1, None) < repeat_until.order
    ]
    epochs = tuple(as_channel_sees(again, is_new=before.is_new))
    _check_kept(epochs, log)
    decided = error_log.decided(session, config.key)
    _check_ddl(config, epochs, log, decided)
    _check_tables(config, session, epochs, log)
    in_between = _decisions(decided, epochs, target, repeat_until)
    check_decisions(session, in_between)
    last = next((logged for logged in found if logged.record.epoch == target.epoch), None)
    return Rewind(config, session, before, _moved(before, target, repeat_until, last), epochs, in_between)


def _decisions(
    decided: Decided, epochs: Sequence[LoggedEpoch], target: LogPosition, repeat_until: LogPosition
) -> tuple[Directive, ...]:
    """Return the decisions about events between two positions, in the log's order."""
    known = {logged.record.epoch for logged in epochs}
    begin, end = (target.epoch + 1, target.rows or 0), (repeat_until.epoch + 1, repeat_until.rows or 0)
    found = (decided[event] for event in sorted(decided) if event[0] in known)
    # A DDL comes before its epoch's rows.
    return tuple(one for one in found if begin <= (one.epoch, max(one.seq, 0)) < end)


def _moved(
    before: Position, target: LogPosition, repeat_until: LogPosition, last: LoggedEpoch | None
) -> Position:
    """Return the channel's position at ``target``; ``last`` is the last complete epoch before it."""
    if last is not None:
        there = before.at_end_of(last.record)
    else:
        there = replace(
            before, relay_log=None, relay_pos=None, source_log=None, source_pos=None, xa_prepared=None
        )
    return replace(
        there,
        epoch=target.epoch,
        epochs_offset=target.offset,
        executed_gtids=target.executed,
        epoch_gtids=target.epoch_gtids,
        epoch_rows=target.rows,
        rewound_from=repeat_until.to_json(),
    )


def _check_kept(epochs: Sequence[LoggedEpoch], log: LogReader) -> None:
    needed: dict[int, tuple[int, int]] = {}
    for logged in epochs:
        for part in logged.record.ranges:
            needed.setdefault(part.partition, (part.start, logged.record.epoch))
    for partition, (start, epoch) in needed.items():
        low = log.first_row_offset(partition)
        if low is not None and low > start:
            raise LogError(
                "TR555",
                f"rows of epoch {epoch} are needed but were deleted by retention",
                where=Where(epoch=epoch),
                hint="choose a later position",
            )


def _check_ddl(
    config: ConsumerConfig, epochs: Sequence[LoggedEpoch], log: LogReader, decided: Decided
) -> None:
    rules = config.rules
    ddl_rules = DdlRules(rules.tables, rules.events, rules.router, config.ddl)

    def acting(epoch: int, ddl: SchemaChanged | None) -> bool:
        chosen = decided.get(EventId(epoch, DDL))
        if ddl is None or (chosen is not None and not chosen.statements):
            return False
        return ddl_rules.is_replicated(ddl, lambda: log.tables(epoch))

    def begins_copy(record: EpochCommitted) -> bool:
        """Whether the channel empties a table with the epoch, whatever its rules for DDL are."""
        copy = record.copy
        return copy is not None and copy.step == BEGIN and rules.tables.allows(copy.db, copy.table)

    records = [
        one.record for one in epochs if begins_copy(one.record) or acting(one.record.epoch, one.record.ddl)
    ]
    if records and (ddl := records[0].ddl) is not None:
        raise DownstreamError(
            "TR576",
            f"a DDL in between cannot be repeated: {ddl.statement[:200]}",
            where=Where(epoch=records[0].epoch, gtid=records[0].last_gtid),
            hint=f"the earliest possible position is epoch:{records[-1].epoch + 1}; {REPLAY_HINT}",
        )


def _check_tables(
    config: ConsumerConfig, session: Session, epochs: Sequence[LoggedEpoch], log: LogReader
) -> None:
    each = (table for logged in epochs for table in logged.record.tables)
    touched = {table.fingerprint for table in each if table.new_channels != ABSENT}
    if not touched:
        return
    versions = log.structures(epochs[-1].record.epoch)
    structures = {v.fingerprint: structure_of(v) for v in versions if v.fingerprint in touched}
    rules = config.rules
    names = targets_of(structures, rules)
    targets = TargetCatalog().load(session, names.values())
    plan = plan_slice(
        structures, targets, rules, Limits(config.statement_rows), Where(), safe=True, is_repeat=True
    )
    check_tables(plan, targets, rules)

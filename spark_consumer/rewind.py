"""Moving a channel back on purpose: what it has applied behind a place is applied once more, in safe mode.

The place where it stood is kept in its row, so whatever happens in between, safe mode ends exactly there. On the way
the downstream's rows are a mixture of then and now. A row whose unique value belongs to another one at that point of
the history is one that comes later in the stretch; so it is replaced, and written anew when its turn comes.

That holds for rows that a key identifies and that the log describes whole. Everything else is refused beforehand,
rather than stopped half way: DDL (repeated, it would fail or, as TRUNCATE, act on the wrong rows; left out, it would
leave rows that it removed), tables without a key, families with cascading foreign keys, tables some of whose changes
the channel leaves out, tables with columns of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from schemas.errors import DownstreamError, LogError, Where
from schemas.structure import TableStructure
from spark_consumer import position as positions
from spark_consumer.checkpoint import in_use
from spark_consumer.config import ConsumerConfig
from spark_consumer.ddl_rules import DdlRules
from spark_consumer.identity import Find
from spark_consumer.inside import Insides
from spark_consumer.letter_case import as_servers_compare
from spark_consumer.log_reader import LogReader
from spark_consumer.merge import Limits
from spark_consumer.place import Place, order_of
from spark_consumer.plan import Mode, TablePlan, plan_slice, targets_of
from spark_consumer.position import Position
from spark_consumer.rules import Rules
from spark_consumer.session import Session, closing, connect
from spark_consumer.slices import LoggedEpoch
from spark_consumer.start import first_position
from spark_consumer.target import TargetCatalog, TargetTable
from spark_consumer.workers import info

_HINT = "a replay into an empty schema, as another channel, shows any place: docs/REPLAY.md"


@dataclass(frozen=True)
class Rewind:
    """A rewind that is possible; see ``opened``.

    Attributes:
        before: where the channel stands.
        after: where it is going to stand.
        epochs: those that are applied again, in whole or in part.
    """

    config: ConsumerConfig
    session: Session
    before: Position
    after: Position
    epochs: tuple[LoggedEpoch, ...]

    def says(self) -> list[str]:
        """What it is about to do, for people."""
        level, rows = self.after.level, sum(logged.record.rows for logged in self.epochs)
        return [
            f"channel {self.config.channel} stands at {self.before.place}: {self.before.executed_gtids or '(empty)'}",
            f"goes back to {self.after.place}: {self.after.executed_gtids or '(empty)'}",
            f"applies again, in safe mode up to {level}: {len(self.epochs)} epochs with {rows:,} rows",
        ]

    def go(self) -> None:
        """Do it, in one transaction. Raises DownstreamError TR610 if a consumer has started meanwhile."""
        self.session.execute("BEGIN")
        found = positions.read(self.session, self.config.channel, lock=True)
        positions.check_token(found, self.before.fencing_token, self.config.channel)
        positions.move(self.session, self.config.channel, self.after)
        self.session.execute("COMMIT")


@contextmanager
def opened(config: ConsumerConfig, to: str) -> Iterator[Rewind]:
    """Keep the channel's consumer away, and look whether its history can be repeated from a place on.

    Args:
        to: the place, as of ``--from``.

    Raises:
        DownstreamError: TR612 there is no such channel; TR614 its consumer runs here; TR616 it cannot be rewound now;
            TR660 workers have applied a slice in part; TR576, TR577 something in between cannot be repeated.
        LogError: TR575 the place is not behind the channel; TR555 the log does not hold it any more.
    """
    with ExitStack() as stack:
        stack.enter_context(in_use(config.channel_dir, alone=True))
        session = stack.enter_context(closing(connect(config.target)))
        positions.install(session)
        positions.known(session, config.channel)
        # A consumer elsewhere finds out at its next slice.
        before = positions.take_over(session, config.channel)
        if info.slices_ahead(session, config.channel):
            raise info.unfinished(config.channel)
        yield _checked(config, session, before, to)


def _checked(config: ConsumerConfig, session: Session, before: Position, to: str) -> Rewind:
    log = LogReader(config)
    config = as_servers_compare(config, log)
    if before.recovered or before.ddl_intent is not None:
        what = (
            "`tailrace recover` brought it ahead of its epochs" if before.recovered else "a DDL is in doubt"
        )
        raise DownstreamError(
            "TR616",
            f"channel {config.channel} cannot be rewound now: {what}",
            where=Where(epoch=before.epoch),
            hint="run `tailrace consume --until-caught-up` first",
        )
    place = first_position(to, log, Insides(config, log))
    if place.order >= before.order:
        raise LogError(
            "TR575",
            f"--to {to} is {place}, and channel {config.channel} stands at {before.place}",
            hint="a rewind goes back",
        )
    level = before.level or before.place
    found = list(log.epochs(max(place.offset, log.bounds()[0])))
    epochs = tuple(
        logged
        for logged in found
        if logged.record.epoch > place.epoch and order_of(logged.record.epoch - 1, None) < level.order
    )
    _check_kept(epochs, log)
    _check_ddl(config, epochs, log)
    _check_tables(config, session, epochs, log)
    last = next((logged for logged in found if logged.record.epoch == place.epoch), None)
    return Rewind(config, session, before, _moved(before, place, level, last), epochs)


def _moved(before: Position, place: Place, level: Place, last: LoggedEpoch | None) -> Position:
    """The position at a place behind the whole epoch ``last``."""
    if last is not None:
        there = before.at_end_of(last.record)
    else:
        there = replace(
            before, relay_log=None, relay_pos=None, source_log=None, source_pos=None, xa_prepared=None
        )
    return replace(
        there,
        epoch=place.epoch,
        epochs_offset=place.offset,
        executed_gtids=place.executed,
        epoch_gtids=place.epoch_gtids,
        epoch_rows=place.rows,
        rewound_from=level.to_json(),
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
                f"rows of epoch {epoch} are needed, and retention deleted them",
                where=Where(epoch=epoch),
                hint="name a later place",
            )


def _check_ddl(config: ConsumerConfig, epochs: Sequence[LoggedEpoch], log: LogReader) -> None:
    rules = Rules.of(config)
    ddl_rules = DdlRules(rules.tables, rules.events, rules.router, config.ddl)
    for logged in epochs:
        ddl, epoch = logged.record.ddl, logged.record.epoch
        if ddl is not None and ddl_rules.carried(ddl, lambda up_to=epoch: log.tables(up_to)) is not None:  # type: ignore[misc]
            raise DownstreamError(
                "TR576",
                f"there is a DDL in between, and it cannot be repeated: {ddl.statement[:200]}",
                where=Where(epoch=epoch, gtid=logged.record.last_gtid),
                hint=f"the furthest place is epoch:{_behind_ddl(epochs, ddl_rules, log)}; {_HINT}",
            )


def _behind_ddl(epochs: Sequence[LoggedEpoch], rules: DdlRules, log: LogReader) -> int:
    """The first epoch behind the last DDL that the channel carries."""
    last = 0
    for logged in epochs:
        ddl, epoch = logged.record.ddl, logged.record.epoch
        if ddl is not None and rules.carried(ddl, lambda up_to=epoch: log.tables(up_to)) is not None:  # type: ignore[misc]
            last = epoch
    return last + 1


def _check_tables(
    config: ConsumerConfig, session: Session, epochs: Sequence[LoggedEpoch], log: LogReader
) -> None:
    touched = {table.fingerprint for logged in epochs for table in logged.record.tables}
    if not touched:
        return
    versions = log.structures(epochs[-1].record.epoch)
    structures = {
        v.fingerprint: TableStructure.from_json(v.structure) for v in versions if v.fingerprint in touched
    }
    rules = Rules.of(config)
    names = targets_of(structures, rules)
    targets = TargetCatalog().load(session, names.values())
    plan = plan_slice(structures, targets, rules, Limits(), Where(), safe=True, again=True)
    for table in plan.tables:
        whole = table.structure.is_full or table.mode is Mode.SKIP
        if table.mode is Mode.ORDERED or not whole:
            raise DownstreamError(
                "TR577",
                f"its changes cannot be repeated: {_reason(table, targets[table.target_name], rules)}",
                where=Where(table=table.name),
                hint=_HINT,
            )


def _reason(table: TablePlan, target: TargetTable | None, rules: Rules) -> str:
    if not table.structure.is_full:
        return "its row images lack columns"
    if table.identity.find is Find.WHOLE or not table.identity.sure:
        return "no key tells for sure which row is there already"
    if target is not None and target.triggers:
        return "the downstream's table has triggers"
    if table.cascades:
        return "it has, or hangs on, a foreign key that cascades"
    if table.partial:
        return "the channel's filters leave some of its changes out"
    if not rules.compact:
        return "the channel has compact = false"
    if target is not None and target.writable - {column.lower() for column in table.writable}:
        return "the downstream's table has columns of its own"
    return "it shares its downstream table with one whose changes cannot"

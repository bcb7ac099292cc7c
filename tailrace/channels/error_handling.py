"""Shows the event at which a channel stopped, and records an operator's decision about it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from schemas.access.server_url import ServerUrl
from schemas.errors import DDL, NOWHERE, DownstreamError, Where
from spark_consumer.apply import ledger as ledgers
from spark_consumer.apply.ddl.intent import Intent, intent_of, upstream_position
from spark_consumer.apply.ddl.outcome import progress_of_interrupted
from spark_consumer.apply.ledger import Ledger
from spark_consumer.apply.tables import channel_tables, error_log, position_store
from spark_consumer.apply.tables.error_log import ChannelError
from spark_consumer.epochs.position import Position
from spark_consumer.plan import replacement
from spark_consumer.plan.refusal import DdlInDoubt, Event
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, closing, connect, transaction


@dataclass(frozen=True)
class StoppedChannel:
    """A channel, and the error at which it stopped, if any."""

    key: ChannelKey
    target: ServerUrl
    session: Session
    position: Position
    error: ChannelError | None

    @property
    def channel(self) -> str:
        return self.key.name

    @property
    def event_name(self) -> str:
        return str(self.error.event.id) if self.error and self.error.event else ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        error = None
        if self.error is not None:
            error = asdict(self.error)
            if self.error.event is not None:
                error["event"]["name"] = str(self.error.event.id)
        directives = error_log.directives(self.session, self.key)
        return {"channel": self.channel, "error": error, "directives": directives}

    def decide(self, name: str | None, statements: tuple[str, ...]) -> None:
        """Skip the event, or replace it with statements. Raises DownstreamError TR643, TR644."""
        ledger = ledgers.choose_ledger(self.session, self.position)
        with transaction(self.session):
            # The locked row keeps a consumer from applying anything until the decision is written.
            position = position_store.read(self.session, self.key, lock=True)
            error = error_log.read(self.session, self.key)
            if position is None:
                raise position_store.unknown_channel(self.key)
            if error is None or error.event is None:
                raise self._nothing(error)
            event = error.event
            self._check_undecided(event, name, position)
            replacement.check(statements, for_ddl=event.seq == DDL, flavor=self.session.flavor)
            if event.seq == DDL:
                statements = (*self._already_run(position, ledger, event), *statements)
            by = (
                f"{getpass.getuser()}@{socket.gethostname()} as {self.session.value('SELECT CURRENT_USER()')}"
            )
            error_log.add(self.session, self.key, error, statements, by)

    def _check_undecided(self, event: Event, name: str | None, position: Position) -> None:
        if name is not None and name != str(event.id):
            raise DownstreamError(
                "TR644",
                f"channel {self.channel} stopped at event {event.id}, not at {name}",
                where=self._where(event),
                hint="`tailrace error show` shows the event",
            )
        if position.epoch >= event.epoch:
            raise DownstreamError(
                "TR644",
                f"the channel is already past event {event.id}: it is at epoch {position.epoch}",
                where=self._where(event),
                hint="no decision about the event is needed",
            )

    def _already_run(self, position: Position, ledger: Ledger, event: Event) -> tuple[str, ...]:
        """Return the statements that have already run for the DDL: its own, or those of an earlier decision.

        They stay before the new statements.
        """
        intent = intent_of(position.ddl_intent, upstream_position(event.gtid, event.file, event.pos))
        if intent is None:
            return ()
        old = error_log.decided(self.session, self.key).get(event.id)
        given = (
            old.statements
            if old is not None and not old.used
            else tuple(one.statement for one in intent.translated.statements)
        )
        count = self._settled(position, ledger, intent)
        if count >= len(given):
            raise DownstreamError(
                "TR644",
                f"event {event.id} was executed meanwhile; only its position is not written yet",
                where=self._where(event),
                hint="start the consumer",
            )
        return given[:count]

    def _settled(self, position: Position, ledger: Ledger, intent: Intent) -> int:
        """Return how many of an intent's statements have run, without one in doubt: the operator decides about it."""
        if intent.before is None:
            return intent.index
        with closing(connect(self.target)) as own:
            try:
                return progress_of_interrupted(own, ledger, intent, intent.statement, position, NOWHERE).index
            except DdlInDoubt:
                return intent.index

    def _nothing(self, error: ChannelError | None) -> DownstreamError:
        what = "has no error" if error is None else f"stopped with {error.code}, which is not about an event"
        hint = "start the consumer" if error is None else error.hint
        return DownstreamError("TR644", f"channel {self.channel} {what}", hint=hint)

    @staticmethod
    def _where(event: Event) -> Where:
        return Where(gtid=event.gtid, epoch=event.epoch, event=event.id)


@contextmanager
def open_stopped_channel(settings: ConsumerConfig) -> Iterator[StoppedChannel]:
    """Connect to a channel's downstream and read its position and error. Raises DownstreamError."""
    with closing(connect(settings.target)) as session:
        channel_tables.install(session)
        position = position_store.require_position(session, settings.key)
        error = error_log.read(session, settings.key)
        yield StoppedChannel(settings.key, settings.target, session, position, error)

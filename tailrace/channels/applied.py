"""Tells a producer how far the channels of its configuration are."""

from __future__ import annotations

import pymysql

from schemas.errors import TailraceError
from spark_consumer.apply.tables import position_store
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, connect


class AppliedEpoch:
    """The position of one channel, which is read again and again on one connection."""

    def __init__(self, settings: ConsumerConfig) -> None:
        self.name = settings.channel
        self._settings = settings
        self._session: Session | None = None

    def epoch(self) -> int | None:
        """Return the last epoch that is applied completely; None if that is not known, or no consumer runs."""
        try:
            if self._session is None:
                self._session = connect(self._settings.target)
            return position_store.running_epoch(self._session, self._settings.key)
        except (TailraceError, pymysql.MySQLError, OSError):
            self.close()
            return None

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

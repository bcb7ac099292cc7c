"""Computes the channels' lag: the age of the oldest transaction that is not applied, 0 if there is none.

Such a transaction is in Kafka after the channel's position, or on the upstream after the last epoch.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from schemas.errors import TailraceError
from schemas.gtid.sets import Flavor, GtidSet, MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from spark_consumer.epochs.position import parse_like
from tailrace.config.addresses import log_address, source_url
from tailrace.config.model import Config
from tailrace.service.true_lag import lag_seconds

Part = dict[str, Any]

_LAST_POSITION = (1 << 32) - 1  # the last position that a dump can start at
#: of a channel whose lag cannot be known
UNKNOWN_LAG = dict.fromkeys(("epochs", "transactions", "seconds"))


class OldestPending:
    """Finds the commit times of the oldest pending transactions, in ms since 1970.

    Args:
        upstream, kafka: the parts of the report.
    """

    def __init__(self, config: Config, upstream: Part, kafka: Part) -> None:
        self._config, self._upstream, self._kafka = config, upstream, kafka

    def for_channel(self, channel: Part) -> int | None:
        """Return the time for transactions that a channel has not applied; 0 if none, None if unknown."""
        if not is_comparable(channel, self._kafka):
            return None
        try:
            in_log = self._in_log(channel)
        except TailraceError:
            return None
        return in_log or self.unpublished

    def _in_log(self, channel: Part) -> int:
        from spark_consumer.epochs.log_reader import LogReader

        if (self._kafka.get("epoch") or -1) <= channel["epoch"]:
            return 0
        gtids = channel["gtids"]
        for logged in LogReader(log_address(self._config.kafka)).epochs_after(channel["epochs_offset"]):
            record, executed = logged.record, logged.record.executed_gtids
            # Transactions that `tailrace recover` applied are after the position.
            is_applied = executed and parse_like(gtids, executed).contains(parse_like(executed, gtids))
            if record.transactions and not is_applied:
                return record.first_commit_ms
        return 0

    @cached_property
    def unpublished(self) -> int | None:
        """The time for upstream transactions that are not in Kafka; 0 if none, None if unknown."""
        from producer.upstream.connect import describe
        from producer.upstream.history import first_commit_after

        upstream, last = self._upstream, self._kafka
        if "error" in upstream or last.get("epoch") is None:
            return None
        if is_caught_up(upstream, last):
            return 0
        if upstream["uuid"] != last["source_id"] or last["position"] > _LAST_POSITION:
            return None
        try:
            url = source_url(self._config)
            return first_commit_after(url, describe(url), last["file"], last["position"]) or 0
        except TailraceError:
            return None


def is_comparable(channel: Part, kafka: Part) -> bool:
    """Return whether a channel has a stored position in the log of the topics."""
    logs = {channel.get("log_id"), kafka.get("log_id")} - {None}
    return channel.get("stored", channel) is not None and len(logs) <= 1


def is_caught_up(upstream: Part, last: Part) -> bool:
    """Return whether all transactions of the upstream are in Kafka, by GTIDs or else by positions."""
    if upstream["has_gtids"]:
        return transactions_behind(upstream["gtids"], last["gtids"], upstream["flavor"]) == 0
    return (upstream["uuid"], upstream["file"], upstream["position"]) == (
        last["source_id"],
        last["file"],
        last["position"],
    )


def lag(channel: Part, upstream: Part, kafka: Part, waiting_ms: int | None, now: float) -> Part:
    """Return a channel's lag. A number is None if its part of the report is unknown or belongs to another log.

    Args:
        waiting_ms: the commit time of its oldest waiting transaction, in ms since 1970; 0 if none waits, None if
            unknown.
        now: seconds since 1970.
    """
    if not is_comparable(channel, kafka):
        return dict(UNKNOWN_LAG)
    epochs = None
    if kafka.get("epoch") is not None:
        epochs = max(0, kafka["epoch"] - channel["epoch"])
    transactions = None
    if "error" not in upstream and upstream["has_gtids"]:
        transactions = transactions_behind(upstream["gtids"], channel["gtids"], upstream["flavor"])
    if transactions == 0 or waiting_ms == 0:
        seconds: float | None = 0.0  # the upstream itself says so
    elif waiting_ms is None and epochs == 0:
        # The upstream does not answer, or is another server than the one that the log comes from.
        seconds = lag_seconds(0, unix_ms(kafka.get("complete_time")), now)
    else:
        seconds = lag_seconds(waiting_ms, None, now)
    return {
        "epochs": epochs,
        "transactions": transactions,
        "seconds": None if seconds is None else round(seconds, 3),
    }


def unix_ms(moment: str | None) -> int | None:
    """Return a time of the report in ms since 1970; None if it has none."""
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)


def transactions_behind(upstream: str, applied: str, flavor: Flavor) -> int | None:
    """Return the number of upstream transactions that are not applied; None if the sets cannot be compared."""
    try:
        all_gtids: GtidSet = parse_gtid_set(upstream, flavor)
        done: GtidSet = parse_gtid_set(applied, flavor)
    except ValueError:
        return None
    if isinstance(all_gtids, MysqlGtidSet) and isinstance(done, MysqlGtidSet):
        return all_gtids.minus(done).count()
    if isinstance(all_gtids, MariadbGtidSet) and isinstance(done, MariadbGtidSet):
        sequences = {domain: gtid.sequence for domain, gtid in done.domains.items()}
        return sum(max(0, g.sequence - sequences.get(d, 0)) for d, g in all_gtids.domains.items())
    return None

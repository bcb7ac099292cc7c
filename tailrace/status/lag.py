"""How far behind the channels are. Lag is the age of the oldest transaction that is not applied, 0 when there is none.

Such a transaction is in Kafka, behind the channel's position; or it is upstream, behind the last epoch.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from schemas.errors import TailraceError
from schemas.gtid.sets import Flavor, GtidSet, MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from spark_consumer.epochs.log_position import parsed
from tailrace.config.addresses import log_address, source_url
from tailrace.config.model import Config

Part = dict[str, Any]

_LAST_POSITION = (1 << 32) - 1  # that a dump can be asked for
_UNKNOWN = dict.fromkeys(("epochs", "transactions", "seconds"))


class Waiting:
    """The commit time of the oldest waiting transaction, ms since 1970; 0 for none, None if not known.

    Args:
        upstream, kafka: these parts of the report.
    """

    def __init__(self, config: Config, upstream: Part, kafka: Part) -> None:
        self._config, self._upstream, self._kafka = config, upstream, kafka

    def behind(self, channel: Part) -> int | None:
        """Of what the channel has not applied."""
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
        for logged in LogReader(log_address(self._config.kafka)).behind(channel["epochs_offset"]):
            record, executed = logged.record, logged.record.executed_gtids
            # What `tailrace recover` has brought is behind the position, and applied.
            is_applied = executed and parsed(gtids, executed).contains(parsed(executed, gtids))
            if record.transactions and not is_applied:
                return record.first_commit_ms
        return 0

    @cached_property
    def unpublished(self) -> int | None:
        """Of what is upstream and not in Kafka."""
        from producer.upstream.connect import describe
        from producer.upstream.history import first_commit_behind

        upstream, last = self._upstream, self._kafka
        if "error" in upstream or last.get("epoch") is None:
            return None
        if is_caught_up(upstream, last):
            return 0
        if upstream["uuid"] != last["source_id"] or last["position"] > _LAST_POSITION:
            return None
        try:
            url = source_url(self._config)
            return first_commit_behind(url, describe(url), last["file"], last["position"]) or 0
        except TailraceError:
            return None


def is_comparable(channel: Part, kafka: Part) -> bool:
    """Whether anything is stored of a channel, and it follows the log that the topics hold."""
    logs = {channel.get("log_id"), kafka.get("log_id")} - {None}
    return channel.get("stored", channel) is not None and len(logs) <= 1


def is_caught_up(upstream: Part, last: Part) -> bool:
    """Whether all transactions of the upstream are in Kafka, by GTIDs, or without them by positions."""
    if upstream["has_gtids"]:
        return transactions_behind(upstream["gtids"], last["gtids"], upstream["flavor"]) == 0
    return (upstream["uuid"], upstream["file"], upstream["position"]) == (
        last["source_id"],
        last["file"],
        last["position"],
    )


def lag(channel: Part, upstream: Part, kafka: Part, waiting_ms: int | None, now: float) -> Part:
    """How far a channel is behind; null where a part that must be known could not be read, or is of another log.

    Args:
        waiting_ms: when its oldest transaction that waits was committed; 0 for none, None if not known.
        now: seconds since 1970.
    """
    if not is_comparable(channel, kafka):
        return dict(_UNKNOWN)
    epochs = None
    if kafka.get("epoch") is not None:
        epochs = max(0, kafka["epoch"] - channel["epoch"])
    transactions = None
    if "error" not in upstream and upstream["has_gtids"]:
        transactions = transactions_behind(upstream["gtids"], channel["gtids"], upstream["flavor"])
    seconds = None
    if transactions == 0 or waiting_ms == 0:
        seconds = 0.0
    elif waiting_ms is not None:
        seconds = max(0.0, round(now - waiting_ms / 1000, 3))
    return {"epochs": epochs, "transactions": transactions, "seconds": seconds}


def transactions_behind(upstream: str, applied: str, flavor: Flavor) -> int | None:
    """Transactions of the upstream that are not applied; None if the sets cannot be compared."""
    try:
        ours: GtidSet = parse_gtid_set(upstream, flavor)
        theirs: GtidSet = parse_gtid_set(applied, flavor)
    except ValueError:
        return None
    if isinstance(ours, MysqlGtidSet) and isinstance(theirs, MysqlGtidSet):
        return ours.minus(theirs).count()
    if isinstance(ours, MariadbGtidSet) and isinstance(theirs, MariadbGtidSet):
        done = {domain: gtid.sequence for domain, gtid in theirs.domains.items()}
        return sum(max(0, g.sequence - done.get(d, 0)) for d, g in ours.domains.items())
    return None

"""The state that producer and consumer have in memory, with the field names of MySQL's tables.

The receiver's fields are those of ``slave_master_info``, the publisher's and the applier's those of
``slave_relay_log_info``. Memory is ahead of the stored state, which a process returns to after a crash: relay.meta,
the last committed epoch, and the channel's row.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer.mirror.loop import MirrorProgress
    from producer.run import ProducerConfig, ProducerProgress
    from relay_store.layout.directory import RelayPosition
    from spark_consumer.job.progress import Counters

Part = dict[str, Any]


def moment(seconds: float | None) -> str | None:
    """Return a time in UTC as text; None if there is none."""
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    )


class ProducerMemory:
    """The producer's state for ``tailrace status``.

    Attributes:
        state: None until the producer sets it.
        copy: how far the copy of tables is; None while it is not known.
    """

    def __init__(self, settings: ProducerConfig) -> None:
        self._settings = settings
        self._process = _process()
        self.state: ProducerProgress | None = None
        self.copy: Part | None = None

    def snapshot(self) -> Part:
        """Return plain data. Raises RuntimeError if the GTID set changed while it was read."""
        state = self.state
        if state is None:
            return {**self._process, "state": "starting"}
        received, durable, published = state.relay.position, state.relay.tail.position, state.publish.position
        receiver = self._receiver(state.mirror, received)
        receiver["Retrieved_Gtid_Set"] = state.relay.executed_gtids
        lag = state.publish.lag_s(durable, time.time())
        behind = None if lag is None else round(lag, 3)
        publisher = {"epoch": state.publish.epoch, **_position(published)}
        publisher |= {"Executed_Gtid_Set": state.publish.executed_gtids, "Seconds_behind_source": behind}
        publisher["paused"] = state.publish.paused
        publisher["Skipped"] = dict(state.publish.skipped)
        return {
            **self._process,
            "state": _state(state.mirror),
            "paused": state.mirror.paused,
            "receiver": receiver,
            "relay": {"written": _relay(received), "synced": _relay(durable)},
            "publisher": publisher,
            "copy": self.copy,
        }

    def _receiver(self, mirror: MirrorProgress, received: RelayPosition | None) -> Part:
        from producer.upstream.dump import HEARTBEAT

        source, upstream, error = self._settings.source, mirror.upstream, mirror.last_error
        last_error = None
        if error is not None:
            last_error = {"code": error.code, "what": error.message, "at": moment(mirror.last_error_at)}
        at = _position(received)
        return {
            "Master_log_name": at["Master_log_name"],
            "Master_log_pos": at["Master_log_pos"],
            "Host": source.host,
            "User_name": source.user,
            "Port": source.port,
            "Connect_retry": 1,
            "Heartbeat": HEARTBEAT,
            "Uuid": upstream.server_uuid if upstream else None,
            "Enabled_auto_position": int(bool(upstream and upstream.executed)),
            "Channel_name": self._settings.prefix,
            "Last_heard": moment(mirror.heard_at),
            "Reconnects": mirror.reconnects,
            "Last_error": last_error,
        }


class ConsumerMemory:
    """The consumer's state for ``tailrace status``."""

    def __init__(self, channel: str, counters: Counters) -> None:
        self._counters = counters
        self._process = {**_process(), "Channel_name": channel}

    def snapshot(self) -> Part:
        """Return plain data."""
        counters = self._counters
        position = counters.position
        if position is None:
            return {**self._process, "state": "starting"}
        batch = None
        if (slice_ := counters.in_hand) is not None:
            batch = {
                "first_epoch": slice_.first.epoch,
                "last_epoch": slice_.last.epoch,
                "rows": slice_.rows,
                "last_gtid": slice_.last.last_gtid,
                "since": moment(counters.in_hand_since),
            }
        return {
            **self._process,
            "state": "paused" if counters.paused else "applying" if batch else "waiting",
            "epoch": position.epoch,
            "Relay_log_name": position.relay_log,
            "Relay_log_pos": position.relay_pos,
            "Master_log_name": position.source_log,
            "Master_log_pos": position.source_pos,
            "Executed_Gtid_Set": position.executed_gtids,
            "batch_in_hand": batch,
            "rows": counters.rows,
            "batches": counters.batches,
        }


def _process() -> Part:
    return {"pid": os.getpid(), "started": moment(time.time())}


def _state(mirror: MirrorProgress) -> str:
    if mirror.paused is not None:
        return "paused"
    if mirror.connected:
        return "connected"
    return "connecting" if mirror.last_error is None else "reconnecting"


def _relay(position: RelayPosition | None) -> Part:
    at = _position(position)
    return {"Relay_log_name": at["Relay_log_name"], "Relay_log_pos": at["Relay_log_pos"]}


def _position(position: RelayPosition | None) -> Part:
    if position is None:
        return dict.fromkeys(("Relay_log_name", "Relay_log_pos", "Master_log_name", "Master_log_pos"))
    return {
        "Relay_log_name": f"{position.subdir}/{position.file}",
        "Relay_log_pos": position.pos,
        "Master_log_name": position.upstream[0],
        "Master_log_pos": position.upstream[1],
    }

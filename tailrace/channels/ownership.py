"""Whether a relay log belongs to the log that a channel applies."""

from __future__ import annotations

from pathlib import Path

from relay_store.layout.directory import Owner
from schemas.errors import RelayError
from spark_consumer.epochs.position import Position


def check_feeds(root: Path, owner: Owner, position: Position) -> None:
    """Raises RelayError TR312 if the channel follows another log than is made of the relay log."""
    if owner.log_id and position.log_id and owner.log_id != position.log_id:
        raise RelayError(
            "TR312",
            f"the relay log in {root} was published to the log {owner.log_id}, and the channel follows the log"
            f" {position.log_id}",
            hint="set [relay] dir and [kafka] prefix to those of the producer that feeds this channel",
        )

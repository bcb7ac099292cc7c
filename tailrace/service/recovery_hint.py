"""Adds a hint to errors about a lost upstream or Kafka: `tailrace recover` needs only the relay log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import LogError, UpstreamError

_HINT = "; if it is gone for good, stop the producer: `tailrace recover` applies what the relay files hold"


@contextmanager
def recovery_hinted(relay_dir: Path) -> Iterator[None]:
    """Add to the hint of an upstream or Kafka that cannot be reached, where there is a relay log."""
    from relay_store.layout.directory import INDEX_NAME

    try:
        yield
    except (UpstreamError, LogError) as error:
        if error.retryable and (relay_dir / INDEX_NAME).exists():
            error.hint += _HINT
        raise

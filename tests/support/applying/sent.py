"""Notes the statements that the consumer sends to its downstream."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_consumer.target.session import Session


def note_statements(monkeypatch: pytest.MonkeyPatch, part: bytes) -> list[bytes]:
    """Return a list that grows with each statement that holds this text."""
    found: list[bytes] = []

    def noted(name: str) -> Callable[..., object]:
        run = getattr(Session, name)

        def execute(self: Session, sql: str | bytes | list[bytes], *more: object) -> object:
            texts = sql if isinstance(sql, list) else [sql.encode() if isinstance(sql, str) else sql]
            found.extend(text for text in texts if part in text)
            return run(self, sql, *more)

        return execute

    for name in ("execute", "execute_prepared", "execute_together"):
        monkeypatch.setattr(Session, name, noted(name))
    return found

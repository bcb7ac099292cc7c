"""How long a reader waits for compiled code: as long as loading takes, and not as long as making it does."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from schemas.compiled import code
from schemas.compiled.code import CompiledCode


class Folder:
    """Stands in for the folder of the code, which it takes a while to find."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked, self.answered = seconds, 0, threading.Event()

    def __call__(self) -> Path | None:
        self.asked += 1
        time.sleep(self.seconds)
        self.answered.set()
        return None


def test_what_is_there_is_waited_for() -> None:
    folder = Folder(0.05)
    one = CompiledCode("reader", folder)
    one.load()
    assert folder.answered.is_set()


def test_what_has_to_be_made_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_MOMENT", 0.01)
    folder = Folder(1.0)
    one = CompiledCode("reader", folder)
    one.load()
    one.load()
    assert not folder.answered.is_set()
    one.wait()
    assert folder.answered.is_set()
    assert folder.asked == 1


def test_to_begin_is_not_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_MOMENT", 10.0)
    folder = Folder(0.2)
    one = CompiledCode("reader", folder)
    one.begin()
    assert not folder.answered.is_set()
    one.load()
    assert folder.answered.is_set()


def test_a_little_is_read_without_it() -> None:
    folder = Folder(0.0)
    one = CompiledCode("reader", folder)
    for _ in range(100):
        one.read(1 << 20)
        # The tail: there is no backlog.
        one.read(0)
    assert folder.asked == 0
    one.read(1 << 20)
    one.read(1)
    assert folder.asked == 1

"""How a run of the tests is set up and ended; fixtures are in ``tests/support/fixtures``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import structlog
from hypothesis import settings
from typer.testing import CliRunner

from tests.support.json_shapes import check_output

pytest_plugins = [f"tests.support.fixtures.{name}" for name in ("servers", "producer", "spark")]

# How long an example takes depends on what else the machine does; hangs are for pytest's timeout.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# Pipelines of several tests run at once, and one of them would have the port.
os.environ.setdefault("TAILRACE_METRICS_LISTEN", "off")

_workers: list[int] = []
# These take minutes. Begun first, none of them is left for the end, when the other processes have nothing to do.
_LONG = (
    "test_river",
    "test_publish",
    "test_recover",
    "test_tracked_structures",
    "test_command_line",
    "test_consumer",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in _LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: Any) -> None:
    """One of xdist's processes runs tests from now on."""
    _workers.append(node.gateway._rinfo().pid)


def _terminated(*_: object) -> None:
    """What an unattended run gets to hear when it takes too long; the fixtures then stop the servers."""
    # It may come to the whole process group, so twice to xdist's processes: once is enough to stop in order.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for worker in _workers:
        # xdist would tell them too late, and kill them before their fixtures are done.
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)
    pytest.exit("terminated", returncode=143)


signal.signal(signal.SIGTERM, _terminated)
# `nohup` has it ignored, and programs that tests start and hang up would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _documented_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command prints with ``--json`` is as docs/JSON.md says, in whatever test it runs."""
    invoke = CliRunner.invoke

    def checked(self: CliRunner, app: Any, args: Any = None, *rest: Any, **more: Any) -> Any:
        result = invoke(self, app, args, *rest, **more)
        if isinstance(args, list):
            check_output(args, result.stdout)
        return result

    monkeypatch.setattr(CliRunner, "invoke", checked)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command run in this process points the log at a stream that ends with its test."""
    yield
    structlog.reset_defaults()

"""The page of a recorded state, without servers behind it; and a real server of it for a browser."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError
from tailrace.config.listen import ListenAddress
from tailrace.web.access import Access
from tailrace.web.record import ActionRecord
from tailrace.web.runner import Runner
from tailrace.web.serve import application, run_server
from tailrace.web.site import Site
from tailrace.web.watch import Seen
from tests.support.pages import reports
from tests.support.waiting import wait_until

TOKEN = "a-token-of-the-tests-0123456789"
#: stands for `tailrace`: says its arguments and what came through stdin, and fails for a rewind
PROGRAM = (
    sys.executable,
    "-c",
    "import sys; print(sys.argv[1:]); print(sys.stdin.read()); sys.exit(sys.argv[1] == 'channel')",
)


class Recorded:
    """Has seen what it is told."""

    def __init__(self, report: Any) -> None:
        self.show(report)

    def show(self, report: Any) -> None:
        self.seen: Seen = reports.seen(report, time.time())


class Answers:
    """Finds the same for everything."""

    def row_history(self, table: str, wanted: dict[str, str], before: int | None = None) -> Any:
        if table != "shop.orders":
            raise ConfigError("TR164", f"{table!r} is no table", hint="write database.table")
        columns = [
            {"name": "id", "before": "7", "after": "7", "changed": False},
            {"name": "state", "before": '"new"', "after": f'"{reports.HOSTILE}"', "changed": True},
        ]
        change = {
            "epoch": 4700,
            "seq": 3,
            "operation": "update",
            "gtid": f"{reports.UUID}:90100",
            "position": "mysql-bin.000007:4",
            "committed_ms": 1_795_000_000_000,
            "key": wanted,
            "columns": columns,
        }
        return {
            "table": table,
            "key": wanted,
            "changes": [change],
            "rows_read": 12,
            "cut": None,
            "continue_before": 4000,
        }

    def structures(self, table: str, at: str = "", until: str = "") -> Any:
        column = {"name": "id", "type": "int", "nullable": False, "charset": "", "members": []}
        one = {
            "db": "shop",
            "table": "orders",
            "epoch": 5,
            "gtids": "",
            "fingerprint": "00ff",
            "first_epoch": 1,
            "last_epoch": None,
            "columns": [column],
            "key": ["id"],
            "changed": None,
            "history": [
                {"epoch": 1, "fingerprint": "00ff", "ddl": f"CREATE TABLE {reports.HOSTILE}", "gone": False}
            ],
        }
        return {
            "at": one,
            "until": one,
            "difference": [{"name": "note", "at": None, "until": "varchar(100) NULL"}],
        }


def site_of(folder: Path, report: Any, *, reads_freely: bool = False, port: int = 8686) -> Site:
    """Return the page of a report; its record and its commands are in a folder."""
    access = Access(TOKEN, ListenAddress("127.0.0.1", port), reads_freely)
    runner = Runner(folder / "tailrace.toml", ActionRecord(folder / "serve" / "actions.jsonl"), PROGRAM)
    return Site("shop", access, Recorded(report), Answers(), runner)


@contextmanager
def served(folder: Path, report: Any) -> Iterator[Site]:
    """Serve a page on a free port while the block runs."""
    listener = socket.create_server(("127.0.0.1", 0))
    site = site_of(folder, report, port=listener.getsockname()[1])
    stop = threading.Event()
    thread = threading.Thread(target=run_server, args=(application(site), listener, stop))
    thread.start()
    try:
        yield site
    finally:
        stop.set()
        thread.join(10)
        wait_until(lambda: not thread.is_alive())

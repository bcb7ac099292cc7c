"""A consumer in a child, and what happens around it while it runs a DDL: server, client or connection killed."""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from unittest.mock import patch

import pymysql

from compose.databases import Database
from schemas.errors import TailraceError
from spark_consumer.apply.ddl import run as ddl_apply
from tests.support.waiting import wait_until

#: who dies; a consumer that lives goes on by itself once the server is back
Victim = Literal["server", "both", "client", "connection", "query"]
VICTIMS: tuple[Victim, ...] = ("server", "server", "server", "both", "both", "client", "connection", "query")
_PATIENCE = 120.0


class Child:
    """Work in a process of its own that says when it is about to run a DDL and when it has."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._told, telling = os.pipe()
        self._errors, complaining = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            # What other tests have left cannot be taken down where their threads are not.
            gc.freeze()
            os.dup2(complaining, 2)
            code = 1
            try:

                def tell(point: str) -> None:
                    os.write(telling, b"b" if point == "ddl.before" else b"a")

                with patch.object(ddl_apply, "reached", tell):
                    work()
                code = 0
            except TailraceError as error:
                os.write(complaining, str(error).encode()[:60_000])
            except BaseException as error:
                os.write(complaining, f"{type(error).__name__}: {error}".encode()[:60_000])
            finally:
                os._exit(code)
        os.close(telling)
        os.close(complaining)

    def begins(self) -> bool:
        """Wait until it is about to run its next DDL; False if it has ended."""
        while True:
            ready = select.select([self._told], [], [], _PATIENCE)[0]
            assert ready, "the consumer hangs"
            found = os.read(self._told, 1)
            if found != b"a":
                return found == b"b"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> tuple[int, str]:
        """Wait for its end: its exit code, negative for a signal, and what it complained of."""

        def ended() -> tuple[int, int] | None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return (pid, status) if pid else None

        try:
            _, status = wait_until(ended, "the consumer ends", seconds=_PATIENCE)
        except AssertionError:
            self.kill()
            os.waitpid(self.pid, 0)
            raise
        text = b""
        while piece := os.read(self._errors, 65536):
            text += piece
        os.close(self._told)
        os.close(self._errors)
        return os.waitstatus_to_exitcode(status), text.decode(errors="replace")


@dataclass
class Killer:
    """Kills at random moments of a DDL.

    Attributes:
        left: how many kills are still to be done.
        done: how many were, by victim.
    """

    server: Database
    rng: random.Random
    left: int
    done: dict[str, int] = field(default_factory=dict)
    #: seconds, of the last DDL that ran undisturbed
    _took: float = 0.03

    def bring_through(self, work: Callable[[], object], most: int = 3, *, spared: bool = False) -> None:
        """Do the work until it is done, killing in between, the server only if it is not spared.

        Raises AssertionError if it stops otherwise.
        """
        victims = [one for one in VICTIMS if not spared or one not in ("server", "both")]
        while True:
            victim = self.rng.choice(victims) if self.left > 0 and most > 0 else None
            child = Child(work)
            try:
                hit = self._disturb(child, victim)
                code, complaint = child.end()
            finally:
                self.server.start()
            most -= hit
            if victim in ("both", "client") and hit:
                continue
            assert code == 0, (victim, code, complaint)
            return

    def _disturb(self, child: Child, victim: Victim | None) -> bool:
        """Kill at a random moment behind one of its DDLs' beginnings; whether that came to pass."""
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            if not child.begins() or victim is None:
                return False
        time.sleep(self._delay())
        if victim in ("connection", "query"):
            with suppress(pymysql.MySQLError):
                _kill_ddl(self.server, "CONNECTION" if victim == "connection" else "QUERY")
        if victim == "client":
            child.kill()
        if victim == "both" and self.rng.random() < 0.5:
            child.kill()
        if victim in ("server", "both"):
            self.server.kill()
        if victim == "both":
            with suppress(ProcessLookupError):
                child.kill()
        if victim in ("server", "both"):
            self.server.start()
        assert victim is not None
        self.left -= 1
        self.done[victim] = self.done.get(victim, 0) + 1
        return True

    def _delay(self) -> float:
        return self.rng.choice((0.0, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1)) * self.rng.random() * 2


def _kill_ddl(server: Database, what: str) -> None:
    """Kill the channel's statement that is neither a query nor over."""
    running = server.execute(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = 'Query' AND ID <> CONNECTION_ID()"
        " AND INFO NOT LIKE 'SELECT%' AND INFO NOT LIKE 'SET %'"
    )
    for (number,) in running:
        with suppress(pymysql.err.OperationalError):
            server.execute(f"KILL {what} {number}")

"""Runs a consumer in a child and kills the server, the client or the connection during a DDL."""

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
from schemas.errors import StackError, TailraceError
from spark_consumer.apply.ddl import run as ddl_apply
from tests.support.waiting import wait_until

#: what is killed; a surviving consumer continues when the server is back
Victim = Literal["server", "both", "client", "connection", "query"]
VICTIMS: tuple[Victim, ...] = ("server", "server", "server", "both", "both", "client", "connection", "query")
_PATIENCE = 120.0
#: what MariaDB 11.4.5 says if its crash recovery does not find a file of which its redo log has changes; seen about
#: once in 700 kills (MDEV-28870 was one cause of it)
_LOST = "InnoDB: Missing FILE_CREATE, FILE_DELETE or FILE_MODIFY before FILE_CHECKPOINT"


class ServerLostError(Exception):
    """The killed server does not start again, because its own crash recovery has lost a file."""


class Child:
    """Work in a child process that reports before and after it runs a DDL."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._told, telling = os.pipe()
        self._errors, complaining = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            # Objects of other tests cannot be closed in a child without their threads.
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
        """Wait until the child is about to run its next DDL. Return False if it has ended."""
        while True:
            ready = select.select([self._told], [], [], _PATIENCE)[0]
            assert ready, "the consumer hangs"
            found = os.read(self._told, 1)
            if found != b"a":
                return found == b"b"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> tuple[int, str]:
        """Wait for the child's end. Return its exit code, negative for a signal, and its error."""

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
        left: the number of remaining kills.
        done: the number of kills by victim.
    """

    server: Database
    rng: random.Random
    left: int
    done: dict[str, int] = field(default_factory=dict)

    def bring_through(self, work: Callable[[], object], most: int = 3, *, spared: bool = False) -> None:
        """Repeat the work until it is done, with kills in between; the server is killed only if it is not spared.

        Raises AssertionError if the work fails for another reason, ServerLostError if the server is beyond repair.
        """
        victims = [one for one in VICTIMS if not spared or one not in ("server", "both")]
        while True:
            victim = self.rng.choice(victims) if self.left > 0 and most > 0 else None
            child = Child(work)
            try:
                hit = self._disturb(child, victim)
                code, complaint = child.end()
            except ServerLostError:
                child.kill()
                child.end()
                raise
            most -= hit
            if victim in ("both", "client") and hit:
                continue
            assert code == 0, (victim, code, complaint)
            return

    def _disturb(self, child: Child, victim: Victim | None) -> bool:
        """Kill at a random moment after the start of one of its DDLs. Return whether that happened."""
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            if not child.begins() or victim is None:
                return False
        time.sleep(self._delay())
        self.left -= 1
        self.done[victim] = self.done.get(victim, 0) + 1
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
            self._start()
        return True

    def _start(self) -> None:
        try:
            self.server.start()
        except StackError as error:
            if _LOST in str(error):
                raise ServerLostError from error
            raise

    def _delay(self) -> float:
        return self.rng.choice((0.0, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1)) * self.rng.random() * 2


def _kill_ddl(server: Database, what: str) -> None:
    """Kill the channel's running statement that is not a query."""
    running = server.execute(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = 'Query' AND ID <> CONNECTION_ID()"
        " AND INFO NOT LIKE 'SELECT%' AND INFO NOT LIKE 'SET %'"
    )
    for (number,) in running:
        with suppress(pymysql.err.OperationalError):
            server.execute(f"KILL {what} {number}")

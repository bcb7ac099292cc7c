"""The whole stack in one folder: Kafka, an upstream and a downstream, which any later process finds again."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compose.databases import FLAVORS, Database, Flavor
from compose.kafka import Kafka
from compose.servers import Server
from schemas.errors import StackError


@dataclass(frozen=True)
class StackInfo:
    """The addresses of a running stack. The URLs contain passwords, which belong to the stack and are public."""

    directory: str
    kafka: str
    upstream: str
    upstream_flavor: str
    downstream: str
    downstream_flavor: str
    logs: dict[str, str]
    already_up: bool


@dataclass(frozen=True)
class ServerStatus:
    """One server of the stack: ``state`` is ``up``, ``unhealthy`` (runs, but does not answer) or ``down``."""

    name: str
    state: Literal["up", "unhealthy", "down"]
    address: str
    pid: int | None
    log: str


class Stack:
    """Kafka, an upstream and a downstream below ``directory``, described in ``stack.json``."""

    def __init__(self, directory: str | Path = "var/stack") -> None:
        self.directory = Path(directory).absolute()
        self._file = self.directory / "stack.json"

    @property
    def kafka(self) -> Kafka:
        return Kafka(self.directory / "kafka")

    @property
    def upstream(self) -> Database:
        return self._database("upstream")

    @property
    def downstream(self) -> Database:
        return self._database("downstream")

    def up(self, upstream: Flavor = "mariadb", downstream: Flavor = "mariadb") -> StackInfo:
        """Start the servers that do not run, all at once, and wait until all of them answer.

        A running stack is not changed (``already_up``). A stack that ran before keeps its data and its ports.
        Raises StackError if a server does not start, or if the folder has servers of another flavor.
        """
        with self._locked():
            self._choose(upstream, downstream)
            servers = self._servers()
            already_up = all(server.running() for server in servers)
            with ThreadPoolExecutor(len(servers)) as pool:
                list(pool.map(lambda server: server.start(), servers))
        return self.info(already_up=already_up)

    def down(self) -> list[str]:
        """Stop the running servers and keep their data; returns their names."""
        if not self._file.exists():
            return []
        with self._locked():
            running = [server for server in self._servers() if server.running()]
            with ThreadPoolExecutor(max(1, len(running))) as pool:
                list(pool.map(lambda server: server.stop(), running))
        return [server.name for server in running]

    def status(self) -> list[ServerStatus]:
        """Return the state of each server; empty if there was never a stack in this folder."""
        return [_status(server) for server in self._servers()] if self._file.exists() else []

    def info(self, already_up: bool = True) -> StackInfo:
        """Return the addresses of the stack; raises StackError if there is none in this folder."""
        upstream, downstream = self.upstream, self.downstream
        return StackInfo(
            directory=str(self.directory),
            kafka=self.kafka.bootstrap,
            upstream=upstream.url("tailrace"),
            upstream_flavor=upstream.flavor,
            downstream=downstream.url("tailrace"),
            downstream_flavor=downstream.flavor,
            logs={server.name: str(server.log) for server in self._servers()},
            already_up=already_up,
        )

    def _servers(self) -> list[Server]:
        return [self.kafka, self.upstream, self.downstream]

    def _database(self, role: Literal["upstream", "downstream"]) -> Database:
        flavor = self._read()[f"{role}_flavor"]
        return FLAVORS[flavor](self.directory / role, role=role, server_id=1 if role == "upstream" else 2)

    def _choose(self, upstream: Flavor, downstream: Flavor) -> None:
        wanted = {"upstream_flavor": upstream, "downstream_flavor": downstream}
        if unknown := sorted(set(wanted.values()) - set(FLAVORS)):
            raise StackError(
                "TR700 unknown-flavor", f"no such server: {', '.join(unknown)}", hint="mariadb or mysql"
            )
        if not self._file.exists():
            self._file.write_text(json.dumps(wanted) + "\n")
        elif (found := self._read()) != wanted:
            has = f"{found['upstream_flavor']} to {found['downstream_flavor']}"
            raise StackError(
                "TR700 other-stack",
                f"{self.directory} contains a stack from {has}",
                hint="stop it and remove the folder",
            )

    def _read(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self._file.read_text())
        except FileNotFoundError:
            raise StackError(
                "TR700 no-stack",
                f"there is no stack in {self.directory}",
                hint="start one: tailrace stack up",
            ) from None
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _status(server: Server) -> ServerStatus:
    state: Literal["up", "unhealthy", "down"] = "down"
    if server.running():
        state = "up" if server.healthy() else "unhealthy"
    return ServerStatus(server.name, state, f"127.0.0.1:{server.port}", server.pid, str(server.log))

"""Runs commands as an operator does, in a folder with a configuration and two servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from schemas.access.server_url import ServerUrl
from tailrace.validate import compare_servers
from tests.support.json_shapes import check_output

DB = "cli_t"


class Operator:
    """A folder with a configuration and two servers of its own, in which commands run."""

    def __init__(self, folder: Path, upstream: Any, downstream: Any, kafka: Any) -> None:
        self.folder, self.upstream, self.downstream = folder, upstream, downstream
        (folder / "tailrace.toml").write_text(
            f'[source]\nurl = "mysql://tailrace@127.0.0.1:{upstream.port}/"\nserver-id = 7401\nstart = "earliest"\n'
            f'[kafka]\nbootstrap-servers = "{kafka.bootstrap}"\nprefix = "{folder.name}"\n'
            f'[target]\nurl = "mysql://tailrace@127.0.0.1:{downstream.port}/"\n'
            f'[consumer]\n"spark.master" = "local[1]"\n[tables]\ninclude = ["{DB}.*"]\n'
        )
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command with passwords in the environment."""
        secrets = {f"TAILRACE_{side}_PASSWORD": "tailrace" for side in ("SOURCE", "TARGET")}
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", *arguments],
                cwd=self.folder,
                env={**os.environ, **secrets},
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=240)
        check_output(arguments, out.decode())
        return process.returncode, out.decode()

    def insert(self, first: int, last: int) -> None:
        """Insert rows with a range of numbers on the upstream."""
        values = ", ".join(f"({i}, 'v{i}')" for i in range(first, last))
        self.upstream.execute(f"INSERT INTO {DB}.t VALUES {values}")

    def log(self, command: str) -> str:
        return (self.folder / f"{command}.log").read_text(errors="replace")

    def equal(self) -> bool:
        urls = [ServerUrl.parse(server.url()) for server in (self.upstream, self.downstream)]
        return compare_servers(urls[0], urls[1], [f"{DB}.*"]).is_equal

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(60)
            if process.stdout:
                process.stdout.close()

"""The page of a real pipeline: what is seen, found in the log, and healed through it."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from compose.databases import Database
from compose.kafka import Kafka
from tests.support.processes.operator import DB, Operator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


@pytest.fixture
def operator(
    upstream_mariadb: Database, downstream_mysql: Database, kafka: Kafka, tmp_path: Path
) -> Iterator[Operator]:
    """An operator on the session's servers, whose other databases are not copied."""
    upstream_mariadb.execute(
        f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.t (id INT PRIMARY KEY, v VARCHAR(20))"
    )
    found = Operator(tmp_path, upstream_mariadb, downstream_mysql, kafka)
    file = tmp_path / "tailrace.toml"
    text = file.read_text().replace('start = "earliest"', 'start = "copy"')
    file.write_text(text + '[serve]\nlisten = "127.0.0.1:1"\n')
    yield found
    found.close()
    for server in (upstream_mariadb, downstream_mysql):
        server.execute(f"DROP DATABASE IF EXISTS {DB}")


class Page:
    """A `tailrace serve` of the operator's."""

    def __init__(self, operator: Operator, port: int) -> None:
        operator.start("serve", "--listen", f"127.0.0.1:{port}")
        wait_until(lambda: '"serving"' in operator.log("serve"), lambda: operator.log("serve"))
        token = (operator.folder / "serve" / "token").read_text().strip()
        self._client = httpx2.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )

    def get(self, path: str, **parameters: str) -> Any:
        return self._client.get(path, params=parameters).json()

    def act(self, name: str, **fields: str) -> dict[str, Any]:
        """Begin an action, and return how it ended."""
        begun = self._client.post(f"/actions/{name}", json=fields).json()

        def ended() -> Any:
            run = self.get(f"/actions/{begun['id']}")
            return run if run["state"] != "running" else None

        return wait_until(ended)

    def report(self) -> Any:
        """The report of a look that begins from now on."""
        before = self.get("/status")["seen_at"]
        return wait_until(lambda: (s := self.get("/status")) and s["seen_at"] > before and s["report"])


def _stop_at_ddl(operator: Operator) -> None:
    """Replicate some rows, and let the channel stop at a DDL that somebody has run downstream already."""
    operator.insert(0, 10)
    for command in ("produce", "consume"):
        assert operator.run(command, "--until-caught-up")[0] == 0, operator.log(command)
    operator.upstream.execute(
        f"UPDATE {DB}.t SET v = 'new' WHERE id = 7",
        f"DELETE FROM {DB}.t WHERE id = 7",
        f"ALTER TABLE {DB}.t ADD COLUMN note INT",
        f"INSERT INTO {DB}.t VALUES (10, 'last', 1)",
    )
    operator.downstream.execute(f"ALTER TABLE {DB}.t ADD COLUMN note INT")
    assert operator.run("produce", "--until-caught-up")[0] == 0, operator.log("produce")
    assert operator.run("consume", "--until-caught-up")[0] != 0


def test_a_channel_that_stopped_is_seen_and_healed(operator: Operator, unused_port: int) -> None:
    _stop_at_ddl(operator)
    page = Page(operator, unused_port)
    report = page.report()
    assert report["stopped"] == ["channel main"]
    [notice] = [one for one in page.get("/attention")["notices"] if one["part"] == "channel main"]
    event = report["downstream"]["channels"][0]["error"]["event"]
    assert f"tailrace error skip --channel main --event {event}" in notice["commands"]
    assert any("ADD COLUMN note" in (one["ddl"] or "") for one in page.get("/epochs")["epochs"])

    changes = page.get("/rows", table=f"{DB}.t", key="id=7")
    assert [change["operation"] for change in changes["changes"]] == ["delete", "update", "copy"]
    assert changes["continue_before"] is None
    epoch = event.partition(":")[0]
    found = page.get("/structures", table=f"{DB}.t", at=f"epoch:{int(epoch) - 1}")
    assert found["difference"] == [{"name": "note", "at": None, "until": "int NULL"}]

    assert page.act("skip", channel="main", event="0:ddl")["error"]["code"] == "TR644"
    instead = f"ALTER TABLE {DB}.t MODIFY note INT"
    assert page.act("replace", channel="main", event=event, sql=instead)["state"] == "done"
    assert operator.run("consume", "--until-caught-up")[0] == 0, operator.log("consume")
    assert page.act("pause", part="channel", channel="main")["state"] == "done"
    validated = page.act("validate", channel="main")
    assert validated["state"] == "done", validated
    assert re.search(r"1 table equal", validated["output"])
    [channel] = page.report()["downstream"]["channels"]
    assert (channel["error"], bool(channel["paused"]), channel["lag"]["epochs"]) == (None, True, 0)
    lines = [
        json.loads(one) for one in (operator.folder / "serve" / "actions.jsonl").read_text().splitlines()
    ]
    assert [line["state"] for line in lines] == ["running", "failed"] + ["running", "done"] * 3


@pytest.fixture
def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])

"""`tailrace status` beside running processes: what is in memory, what is stored, and what is down."""

from __future__ import annotations

import json
import stat
import time
from typing import Any

import pytest

from tests.support.processes.operator import Operator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


def status(operator: Operator) -> dict[str, Any]:
    _, text = operator.run("status", "--json")
    assert '"tailrace:tailrace' not in text
    found: dict[str, Any] = json.loads(text)
    return found


def receiver_of(operator: Operator) -> dict[str, Any]:
    memory = status(operator)["relay"]["memory"] or {}
    return {"state": memory.get("state"), **memory.get("receiver", {})}


def test_memory_beside_stored(operator: Operator) -> None:
    assert status(operator)["relay"]["memory"] is None
    producer = operator.start("produce")
    operator.insert(0, 100)
    [(file, position, *_)] = operator.upstream.execute("SHOW MASTER STATUS")
    [(gtids,)] = operator.upstream.execute("SELECT @@gtid_binlog_pos")
    wait_until(lambda: receiver_of(operator).get("Master_log_pos") == position)

    relay = status(operator)["relay"]
    receiver, stored = relay["memory"]["receiver"], relay["stored"]
    assert relay["memory"]["pid"] == producer.pid
    assert (receiver["Master_log_name"], receiver["Retrieved_Gtid_Set"]) == (file, gtids)
    assert (receiver["Host"], receiver["User_name"], receiver["Port"]) == (
        "127.0.0.1",
        "tailrace",
        operator.upstream.port,
    )
    assert receiver["Channel_name"] == operator.folder.name
    assert receiver["Enabled_auto_position"] == 1
    assert receiver["Last_error"] is None
    assert relay["memory"]["relay"]["synced"]["Relay_log_pos"] == position
    # relay.meta may be a moment late; once nothing happens it has everything.
    wait_until(lambda: status(operator)["relay"]["stored"]["Master_log_pos"] == position)
    assert stored["Uuid"] == receiver["Uuid"]
    wait_until(lambda: status(operator)["relay"]["memory"]["publisher"]["Executed_Gtid_Set"] == gtids)
    report = status(operator)
    publisher = report["relay"]["memory"]["publisher"]
    assert publisher["epoch"] == report["kafka"]["epoch"]
    assert report["kafka"]["new_channels"]["begin"] == "log"
    assert publisher["Seconds_behind_source"] == 0.0

    [socket] = operator.folder.rglob("producer.sock")
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600


def test_what_is_down_is_told(operator: Operator) -> None:
    producer = operator.start("produce")
    wait_until(lambda: receiver_of(operator)["state"] == "connected")
    operator.upstream.kill()
    wait_until(lambda: receiver_of(operator)["state"] == "reconnecting")
    report = status(operator)
    assert not report["ok"]
    assert "error" in report["upstream"]
    error = report["relay"]["memory"]["receiver"]["Last_error"]
    assert (error["code"], bool(error["what"]), bool(error["at"])) == ("TR201", True, True)
    _, text = operator.run("status")
    assert "reconnecting" in text
    assert "unreachable" in text
    operator.upstream.start()
    wait_until(lambda: receiver_of(operator)["state"] == "connected")
    assert receiver_of(operator)["Last_error"]["code"] == "TR201"

    producer.kill()
    producer.wait()
    report = status(operator)
    assert report["relay"]["memory"] is None
    assert report["relay"]["stored"]["Relay_log_name"].endswith(report["relay"]["stored"]["Master_log_name"])
    assert "Kafka last heard of one" in operator.run("status")[1]
    # The name that the kill left is taken over.
    operator.start("produce")
    wait_until(lambda: receiver_of(operator)["state"] == "connected")


def test_a_channels_memory_also_while_the_downstream_is_gone(operator: Operator) -> None:
    operator.insert(0, 100)
    assert operator.run("produce", "--until-caught-up")[0] == 0, operator.log("produce")
    consumer = operator.start("consume")

    def channel() -> dict[str, Any]:
        channels = status(operator)["downstream"]["channels"]
        found: dict[str, Any] = channels[0] if channels else {}
        return found

    wait_until(lambda: bool((channel().get("memory") or {}).get("Master_log_name")))
    report = status(operator)
    [found] = report["downstream"]["channels"]
    memory, stored = found["memory"], found["stored"]
    assert memory["pid"] == consumer.pid
    assert memory["epoch"] == found["epoch"] == report["kafka"]["epoch"]
    for name in ("Master_log_name", "Master_log_pos", "Relay_log_name", "Relay_log_pos", "Executed_Gtid_Set"):
        assert memory[name] == stored[name]
    assert (stored["Channel_name"], stored["Sql_delay"], stored["Number_of_workers"]) == ("main", 0, 1)
    assert memory["batch_in_hand"] is None
    assert found["lag"] == {"epochs": 0, "transactions": 0, "seconds": 0.0}
    # What no producer has fetched is as old as it is upstream, in MariaDB's whole seconds.
    before = time.time()
    operator.insert(100, 101)
    [found] = status(operator)["downstream"]["channels"]
    seconds = found["lag"].pop("seconds")
    assert found["lag"] == {"epochs": 0, "transactions": 1}
    assert 0 <= seconds <= time.time() - before + 1
    operator.downstream.kill()
    report = status(operator)
    assert "error" in report["downstream"]
    [found] = report["downstream"]["channels"]
    assert (found["stored"], found["memory"]["epoch"]) == (None, memory["epoch"])
    assert "channel main" in operator.run("status")[1]
    consumer.kill()  # it would wait for the downstream

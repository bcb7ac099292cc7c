"""The commands as an operator runs them: processes, signals, exit codes, on real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compose.processes import ProcessId
from tests.support.names import forget_others
from tests.support.processes.alive import all_of, commands_of
from tests.support.processes.operator import DB, Operator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


def test_a_first_replication_command_by_command(operator: Operator) -> None:
    operator.insert(0, 500)
    assert operator.run("produce", "--until-caught-up")[0] == 0, operator.log("produce")
    assert operator.run("compare")[0] == 4
    assert operator.run("consume", "--until-caught-up")[0] == 0, operator.log("consume")
    code, text = operator.run("compare", "--json")
    assert (code, json.loads(text)["different"]) == (0, 0)

    code, text = operator.run("status", "--json")
    status = json.loads(text)
    assert code == 0
    [channel] = status["downstream"]["channels"]
    assert channel["channel"] == "main"
    assert channel["lag"] == {"epochs": 0, "transactions": 0, "seconds": 0.0}
    assert channel["epoch"] == status["kafka"]["epoch"]

    operator.downstream.execute(f"UPDATE {DB}.t SET v = 'other' WHERE id = 77")
    code, text = operator.run("compare")
    assert code == 4
    assert "id=77" in text
    for command in ("produce", "consume", "compare", "status"):
        assert "Traceback" not in operator.log(command)


def test_run_brings_back_what_was_killed_and_ends_with_0(operator: Operator) -> None:
    supervisor = operator.start("run")
    operator.insert(0, 100)
    wait_until(lambda: len(commands_of(supervisor.pid)) == 2)
    wait_until(operator.equal)
    for name in ("produce", "consume"):
        victim = commands_of(supervisor.pid)[name]
        os.kill(victim, signal.SIGKILL)
        wait_until(partial(_replaced, supervisor.pid, name, victim), f"another {name}")
        first = 1000 if name == "produce" else 2000
        operator.insert(first, first + 100)
    wait_until(operator.equal)
    command_lines = [
        (Path("/proc") / str(p) / "cmdline").read_text() for p in commands_of(supervisor.pid).values()
    ]
    assert not any("password" in line or "tailrace:tailrace" in line for line in command_lines)
    children = list(commands_of(supervisor.pid).values())
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(60) == 0
    assert not any((Path("/proc") / str(pid)).exists() for pid in children)


def _signalled(pids: dict[int, str], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _reached(moment: Callable[[str], bool], pid: int) -> bool:
    return moment(" ".join(all_of(pid).values()))


def _replaced(supervisor: int, name: str, victim: int) -> bool:
    return commands_of(supervisor).get(name, victim) != victim


def _gone(pids: dict[int, str]) -> bool:
    return not any(map(ProcessId.of, pids))


def test_a_signal_to_every_process_of_a_service_ends_it_in_order(operator: Operator) -> None:
    operator.insert(0, 100)
    assert operator.run("produce", "--until-caught-up")[0] == 0, operator.log("produce")
    # While the JVM starts, while a batch is on its way, and once there is nothing to do.
    moments: list[Callable[[str], bool]] = [
        lambda commands: "java " in commands,
        lambda commands: "transform_with_state_driver_worker" in commands,
        lambda commands: "spark_consumer.job.daemon" in commands and operator.equal(),
    ]
    for number, moment in zip((signal.SIGINT, signal.SIGHUP, signal.SIGTERM), moments, strict=True):
        consumer = operator.start("consume")
        wait_until(partial(_reached, moment, consumer.pid))
        everybody = all_of(consumer.pid)
        _signalled(everybody, number)
        assert consumer.wait(120) == 0, operator.log("consume")
        wait_until(partial(_gone, everybody))
    said = [json.loads(line) for line in operator.log("consume").splitlines() if line.startswith("{")]
    assert {"failed", "stopped_with"}.isdisjoint(entry["event"] for entry in said)
    # What is killed leaves nobody behind.
    supervisor = operator.start("run")
    wait_until(lambda: "spark_consumer.job.daemon" in " ".join(all_of(supervisor.pid).values()))
    everybody = all_of(supervisor.pid)
    _signalled({supervisor.pid: "", commands_of(supervisor.pid)["consume"]: ""}, signal.SIGKILL)
    wait_until(partial(_gone, everybody))


def test_run_until_caught_up_ends_by_itself(operator: Operator) -> None:
    operator.insert(0, 300)
    assert operator.run("run", "--until-caught-up")[0] == 0, operator.log("run")
    assert operator.equal()


def test_children_do_not_outlive_a_killed_supervisor(operator: Operator) -> None:
    supervisor = operator.start("run")
    wait_until(lambda: len(commands_of(supervisor.pid)) == 2)
    children = list(commands_of(supervisor.pid).values())
    supervisor.kill()
    wait_until(lambda: not any((Path("/proc") / str(pid)).exists() for pid in children))


def _logged(operator: Operator, event: str) -> list[dict[str, Any]]:
    lines = operator.log("run").splitlines()
    return [json.loads(line) for line in lines if f'"event": "{event}"' in line]


def test_an_error_of_one_child_stops_that_one_and_tells_at_the_end(operator: Operator) -> None:
    operator.upstream.execute("ALTER USER tailrace@'%' IDENTIFIED BY 'changed'")
    supervisor = operator.start("run")
    wait_until(lambda: bool(_logged(operator, "child_stands")))
    [stands] = _logged(operator, "child_stands")
    assert (stands["child"], stands["code"], stands["others_go_on"]) == ("produce", "TR202", ["consume"])
    assert list(commands_of(supervisor.pid)) == ["consume"]
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(60) == 1
    assert "changed" not in operator.log("run")


def test_run_waits_for_an_upstream_that_is_down_at_the_start(operator: Operator) -> None:
    operator.insert(0, 50)
    operator.upstream.kill()
    supervisor = operator.start("run")
    wait_until(lambda: bool(_logged(operator, "child_waits")))
    waits = _logged(operator, "child_waits")[0]
    assert (waits["child"], waits["code"]) == ("produce", "TR201")
    operator.upstream.start()
    wait_until(operator.equal)
    # A consumer that stands does not take the mirror along.
    operator.downstream.execute(f"INSERT INTO {DB}.t VALUES (77, 'in the way')")
    operator.insert(70, 80)
    wait_until(lambda: bool(_logged(operator, "child_stands")))
    assert list(commands_of(supervisor.pid)) == ["produce"]
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(60) == 1


def test_produce_stops_exactly_behind_a_gtid(operator: Operator) -> None:
    operator.insert(0, 10)
    [(end,)] = operator.upstream.execute("SELECT @@gtid_binlog_pos")
    operator.insert(10, 20)
    assert operator.run("produce", "--stop-at-gtid", str(end))[0] == 0, operator.log("produce")
    _, text = operator.run("status", "--json")
    assert json.loads(text)["kafka"]["gtids"] == str(end)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ('"spark.master" = "nonsense"', "Master must"),
        ('"spark.driver.memory" = "lots"', "Invalid maximum heap size"),
        ('"spark.network.timeout" = "soon"', "spark.network.timeout"),
        ('"spark.sql.shuffle.partitions" = "some"', "spark.sql.shuffle.partitions"),
        ('"spark.master" = "spark://127.0.0.1:1"', "spark.authenticate.secret"),
    ],
)
def test_a_setting_that_spark_refuses_is_said(
    setting: str, why: str, downstream_mysql: Any, kafka: Any, tmp_path: Path
) -> None:
    # What other tests have left on the server is no reason to stop here.
    forget_others(downstream_mysql)
    # Nobody has made topics of this prefix, for which a consumer waits: the setting is known to be wrong before.
    (tmp_path / "tailrace.toml").write_text(
        f'[kafka]\nbootstrap-servers = "{kafka.bootstrap}"\nprefix = "refused"\n'
        '[tables]\ninclude = ["refused.*"]\n'
        f'[target]\nurl = "{downstream_mysql.url("tailrace")}"\n[consumer]\n{setting}\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "consume"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    said = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, said["code"]) == (2, "TR108"), done.stderr
    assert why in said["what"]
    assert setting.partition('"')[2].partition('"')[0] in said["hint"]

"""Compiled code decodes the logs of real servers, with kills of the producer."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.compiled.code import CompiledCode
from tests.support.epochs.producer_case import Case
from tests.support.paths import PROGRAMS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

_COMPILED = PROGRAMS / "producer_with_compiled.py"
_TEXT = 2_000  # bytes of a row
_GROUPS = 600
_TYPES = (
    "CREATE TABLE b (id INT PRIMARY KEY, v MEDIUMTEXT, n INT, d DECIMAL(30,10), f DOUBLE, t TIME(3), dt DATETIME(6),"
    " ts TIMESTAMP NULL, y YEAR, e ENUM('x','größer'), s SET('a','b'), l VARCHAR(20) CHARACTER SET latin1, j JSON,"
    " bi BIT(9), bu BIGINT UNSIGNED)"
)
_VALUES = (
    "REPEAT('ä', {0}), {1}, {1} / 7, RAND(), SEC_TO_TIME({1}), NOW(6), NOW(), 2000 + {1} % 99, 'größer', 'a,b', 'é',"
    " JSON_OBJECT('n', {1}, 'x', {1} / 8e0, 'l', JSON_ARRAY(TRUE, NULL, 'q\"')), {1} % 500, {1} * 3000000000000000"
)


def _backlog(case: Case) -> list[tuple[str, str]]:
    """Transactions with changes of keys, a DDL and one of many blocks. Returns each row's table and operation."""
    logged = []
    case.sql(_TYPES)
    with case.upstream.connect(database=case.db, autocommit=False) as connection:
        cursor = connection.cursor()
        for number in range(1, _GROUPS + 1):
            cursor.execute(f"INSERT INTO b VALUES ({number}, {_VALUES.format(_TEXT, number)})")
            cursor.execute("INSERT INTO t (v) VALUES (%s)", (number,))
            logged += [("b", "c"), ("t", "c")]
            if number % 5 == 0:
                cursor.execute("UPDATE b SET id = -id, n = 1 WHERE id = %s", (number - 1,))
                logged += [("b", "d"), ("b", "c")]
            connection.commit()
            if number == _GROUPS // 4:
                cursor.execute("ALTER TABLE b ADD COLUMN m INT")
                cursor.execute("ALTER TABLE b DROP COLUMN m")
        cursor.execute("UPDATE b SET n = n + 1, v = CONCAT(v, 'x') ORDER BY id")
        cursor.execute("DELETE FROM b WHERE id < 0 ORDER BY id")
        connection.commit()
        logged += [("b", "u")] * _GROUPS + [("b", "d")] * (_GROUPS // 5)
    return logged


def _rows(case: Case) -> list[tuple[str, str, bytes, Any]]:
    """Each row, without what differs from one log to the next."""
    found = []
    for row in case.published().all_rows:
        value = row.avro()
        source = {name: part for name, part in value["source"].items() if name not in ("seq", "epoch")}
        found.append((row.structure.table, row.op, row.key, {**value, "source": source, "ts_ms": 0}))
    return found


@pytest.mark.parametrize(
    "crash_at", ["relay.before_fsync:9", "relay.after_fsync:9", "publish.before_commit:3"]
)
def test_a_log_of_many_blocks_with_a_kill(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: str
) -> None:
    monkeypatch.setattr("tailrace.assemble.producer.compiled_code", lambda: None)
    relay = replace(case.config.relay, dir=tmp_path / "other")
    plain = replace(case, config=replace(case.config, prefix=f"{case.config.prefix}-plain", relay=relay))
    plain.catch_up()
    logged = _backlog(case)
    # Synced often, so that the mirror dies among the backlog.
    killed = case.process(crash_at, _COMPILED, relay=replace(case.config.relay, sync_relay_log=50))
    wait_until(lambda: killed.poll() is not None, "the producer dies", 120)
    assert killed.returncode == -signal.SIGKILL

    process = case.process("", _COMPILED, until_caught_up=True)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "compiled_code_loaded" in output

    rows = _rows(case)
    assert [row[:2] for row in rows] == logged
    plain.catch_up()
    assert rows == _rows(plain)


def test_without_a_folder_all_is_decoded_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    def nowhere() -> None:
        raise OSError("no space is left")

    for folder in (nowhere, lambda: None):
        code = CompiledCode("publisher", folder)
        for _ in range(6):
            code.read(2 << 20)
            code.wait()
        assert code.library is None
    assert "no space is left" in capfd.readouterr().out

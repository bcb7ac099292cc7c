"""The stack itself: servers start, die, come back on the same port, and are never mistaken for others."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compose.databases import Database
from compose.kafka import Kafka
from compose.processes import ProcessId
from compose.stack import Stack
from schemas.errors import StackError

pytestmark = pytest.mark.servers


def test_a_database_comes_back_with_its_data_on_its_port(
    flavor: str, server: Callable[..., Database]
) -> None:
    database = server(flavor, server_id=7)
    database.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)"
    )
    port, first = database.port, database.pid

    database.restart()
    database.execute("INSERT INTO d.t VALUES (2)")
    database.kill()
    assert not database.running()
    database.start()

    assert database.execute("SELECT id FROM d.t ORDER BY id") == [(1,), (2,)]
    assert (database.port, database.execute("SELECT @@port, @@server_id")) == (port, [(port, 7)])
    assert database.pid != first


def test_two_databases_from_one_template_are_two_servers(
    flavor: str, server: Callable[..., Database]
) -> None:
    one, other = server(flavor), server(flavor, role="downstream", server_id=2)
    identity = "@@server_uuid" if flavor == "mysql" else "@@server_uid"
    assert one.execute(f"SELECT {identity}") != other.execute(f"SELECT {identity}")


def test_databases_log_whole_rows_with_gtids(flavor: str, upstream: Database) -> None:
    options = "@@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@sync_binlog"
    assert upstream.execute(f"SELECT {options}") == [(1, "ROW", "FULL", "FULL", 1)]
    gtids, on = ("@@gtid_mode", "ON") if flavor == "mysql" else ("@@gtid_strict_mode", 1)
    assert upstream.execute(f"SELECT {gtids}") == [(on,)]


def test_own_options_win(flavor: str, server: Callable[..., Database]) -> None:
    database = server(flavor, args=["--binlog-row-image=MINIMAL"])
    assert database.execute("SELECT @@binlog_row_image") == [("MINIMAL",)]


def test_the_client_reads_the_binlog(flavor: str, upstream: Database) -> None:
    upstream.execute("CREATE DATABASE IF NOT EXISTS stack_client")
    [[newest, *_]] = upstream.execute("SHOW BINARY LOGS")[-1:]
    program = upstream.client_program("mysqlbinlog")
    text = subprocess.run([*program, str(upstream.data / newest)], capture_output=True, text=True, check=True)
    assert "CREATE DATABASE IF NOT EXISTS stack_client" in text.stdout


def test_tailrace_may_set_gtids_on_a_downstream(flavor: str, downstream: Database) -> None:
    statements = {
        "mysql": ["SET gtid_next = 'aaaaaaaa-0000-0000-0000-000000000000:1'", "CREATE DATABASE stack_gtid"],
        # In one SET the number would be checked against the domain in force before it.
        "mariadb": ["SET gtid_domain_id = 99", "SET gtid_seq_no = 1", "CREATE DATABASE stack_gtid"],
    }[flavor]
    with (
        downstream.connect(user="tailrace", password="tailrace") as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
    executed = "@@global.gtid_executed" if flavor == "mysql" else "@@gtid_binlog_pos"
    [[done]] = downstream.execute(f"SELECT {executed}")
    assert ("aaaaaaaa-0000-0000-0000-000000000000:1" if flavor == "mysql" else "99-102-1") in done


def test_a_wrong_option_is_told_with_the_log(mariadb_server: Callable[..., Database]) -> None:
    with pytest.raises(StackError) as caught:
        mariadb_server(args=["--no-such-option=1"])
    assert caught.value.code == "TR700 start-failed"
    assert "no-such-option" in caught.value.message


def test_kafka_keeps_committed_records_through_a_kill(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka")
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 1)])["t"].result(30)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "x"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"row")
        producer.commit_transaction(30)
        kafka.kill()
        kafka.start()
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"row"
        consumer.close()
    finally:
        kafka.kill()


def test_a_stack_goes_up_once_and_down_from_another_object(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "stack")
    try:
        info = stack.up(upstream="mysql", downstream="mariadb")
        assert not info.already_up
        assert Stack(stack.directory).up(upstream="mysql", downstream="mariadb").already_up
        found = Stack(stack.directory).status()
        assert [server.state for server in found] == ["up", "up", "up"]
        assert info.kafka == found[0].address
        with pytest.raises(StackError, match="other-stack"):
            stack.up(upstream="mariadb", downstream="mariadb")
    finally:
        stopped = Stack(stack.directory).down()
    assert stopped == ["kafka", "mysql upstream", "mariadb downstream"]
    assert [server.state for server in stack.status()] == ["down", "down", "down"]
    assert stack.down() == []


def test_a_folder_without_a_stack_has_nothing_to_show_or_stop(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "none")
    assert (stack.status(), stack.down()) == ([], [])
    with pytest.raises(StackError, match="no-stack"):
        stack.info()


def test_a_reused_pid_is_not_ours(mariadb_server: Callable[..., Database]) -> None:
    database = mariadb_server()
    database.kill()
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        now = ProcessId.of(bystander.pid)
        assert now
        ProcessId(bystander.pid, now.started - 1).write(database.directory / "pid")
        assert not database.running()
        database.stop()
        database.kill()
        assert bystander.poll() is None
    finally:
        os.kill(bystander.pid, 9)
        bystander.wait()


def test_a_taken_port_is_told(mariadb_server: Callable[..., Database]) -> None:
    database = mariadb_server()
    database.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", database.port))
        taken.listen()
        with pytest.raises(StackError, match="start-failed"):
            database.start()

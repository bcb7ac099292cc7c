"""Schemas in a schema registry: ids, subjects, and what stops the producer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.kafka import registry as module
from producer.kafka.connection import ProducerStopped
from producer.kafka.registry import SchemaRegistry
from schemas.errors import ConfigError, LogError
from schemas.structure import Column, TableStructure
from schemas.wire.avro_schema import row_schema
from schemas.wire.epoch import StructureVersion
from tailrace.config.file import load
from tailrace.config.text import effective_toml
from tests.support.epochs.registry import Registry, running

PASSWORD = "s3cr3t-word"


def table(name: str, *columns: str) -> TableStructure:
    made = tuple(Column(column, "int", 3, 0, False) for column in ("id", *columns))
    return TableStructure("shop", name, made, ("id",))


def version(structure: TableStructure, fingerprint: bytes, text: str = "") -> StructureVersion:
    schema = text or row_schema(structure).text
    return StructureVersion(1, structure.db, structure.table, fingerprint.hex(), structure.to_json(), schema)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(module, "_PAUSE", 0.001)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(module, "_TIMEOUT", 1.0)
    with running() as registry:
        yield registry


def test_each_structure_has_a_subject_of_its_own(there: Registry) -> None:
    schemas = SchemaRegistry(there.url, list)
    first, changed = table("t"), table("t", "more")
    assert [schemas.schema_id(one) for one in (first, changed, first)] == [
        bytes((0, 0, 0, n)) for n in (1, 2, 1)
    ]
    assert len(there.requests) == 2
    names = [json.loads(row_schema(one).text)["namespace"] + ".Envelope" for one in (first, changed)]
    assert sorted(there.subjects) == sorted(names)
    assert there.texts[0] == row_schema(first).text


def test_a_table_may_have_any_name(there: Registry) -> None:
    for name in ("a/b", "ä ?#%", "x" * 64):
        SchemaRegistry(there.url, list).schema_id(table(name))
    assert len(there.subjects) == 3


_PASSING: list[int | bytes | None] = [
    500, 502, 503, 504, 429, 408, None, b"rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    b"HTTP/1.1 503 Away\r\nContent-Length: 99\r\n\r\n{", b"HTTP/1.1 200 OK\r\n\r\n<html>",
]  # fmt: skip


def test_a_registry_that_comes_back_is_waited_for(there: Registry) -> None:
    there.broken = list(_PASSING)
    assert SchemaRegistry(there.url, list, 60).schema_id(table("t")) == b"\0\0\0\1"
    assert not there.broken
    assert len(there.texts) == 1


def test_one_that_takes_connections_and_is_silent_counts_as_away(there: Registry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(LogError, match=r"TR506.*timed out.*waited for 0 s") as caught:
            SchemaRegistry(url, list).schema_id(table("t"))
        assert caught.value.retryable


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 307])
def test_an_answer_that_stays_ends_it_at_once(there: Registry, status: int) -> None:
    there.broken = [status, 500]
    with pytest.raises(LogError, match=rf"TR506.*{status}.*not just now") as caught:
        SchemaRegistry(there.url, list, 60).schema_id(table("t"))
    assert not caught.value.retryable
    assert there.broken == [500]


def test_a_stop_ends_the_wait(there: Registry) -> None:
    there.broken = [503, 503]
    stop_waiting = threading.Event()
    stop_waiting.set()
    with pytest.raises(ProducerStopped, match="registry"):
        SchemaRegistry(there.url, list, 60, stop_waiting).schema_id(table("t"))


def test_another_registry_is_noticed_before_its_ids_are_used(there: Registry) -> None:
    known = [version(table("old"), b"\0\0\0\1")]
    with pytest.raises(LogError, match=r"TR507.*the id 1") as caught:
        SchemaRegistry(there.url, lambda: known).schema_id(table("new"))
    assert caught.value.where.table == "shop.new"
    with pytest.raises(LogError, match="TR507"):
        SchemaRegistry(there.url, lambda: [version(table("new"), b"\0\0\0\1", "another")]).schema_id(
            table("new")
        )
    assert (
        SchemaRegistry(there.url, lambda: [version(table("new"), b"\0\0\0\1")]).schema_id(table("new"))
        == b"\0\0\0\1"
    )


def test_what_the_registry_refuses_is_said_in_its_own_words(there: Registry) -> None:
    schemas = SchemaRegistry(there.url, list)
    subject = json.loads(row_schema(table("t")).text)["namespace"] + ".Envelope"
    there.texts, there.subjects = ['"int"'], {subject: [1]}
    with pytest.raises(LogError, match=r"TR506.*409: .*incompatible.*compatibility settings"):
        schemas.schema_id(table("t"))
    assert len(there.requests) == 1, "a refusal is final"


def test_the_account_of_the_url_is_used_and_never_told() -> None:
    with running(Registry(account=f"me:{PASSWORD}")) as registry:
        assert SchemaRegistry(registry.url, list).schema_id(table("t")) == b"\0\0\0\1"
        wrong = registry.url.replace(PASSWORD, PASSWORD[::-1])
        with pytest.raises(LogError, match=r"TR506.*401") as refused:
            SchemaRegistry(wrong, list).schema_id(table("t"))
    with pytest.raises(LogError, match=r"TR506.*cannot be reached") as down:
        SchemaRegistry(registry.url, list).schema_id(table("t"))
    assert down.value.retryable
    for error in (refused, down):
        assert PASSWORD not in str(error.value)
        assert PASSWORD[::-1] not in str(error.value)


def test_the_configuration_hides_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tailrace.toml"
    path.write_text(f'[kafka]\nschema-registry-url = "https://me:{PASSWORD}@registry:8081"\n')
    config = load(path)
    assert config.kafka.schema_registry_url == f"https://me:{PASSWORD}@registry:8081"
    assert PASSWORD not in effective_toml(config) + repr(config)
    for wrong in (f"ftp://me:{PASSWORD}@h", f"//me:{PASSWORD}@h", f"http://me:{PASSWORD}@h:port"):
        path.write_text(f'[kafka]\nschema-registry-url = "{wrong}"\n')
        with pytest.raises(ConfigError, match="schema-registry-url") as caught:
            load(path)
        assert PASSWORD not in str(caught.value)

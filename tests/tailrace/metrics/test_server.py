"""Who gets an answer at the port of the metrics, and what."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import ConfigError
from tailrace.config.addresses import metrics_address
from tailrace.config.model import Channel, Config
from tailrace.metrics import listener
from tailrace.metrics.exposition import Sample
from tailrace.metrics.listener import TOKEN_FILE, own_token, serve_metrics
from tests.support.waiting import wait_until


class SomeFacts:
    """Facts that a test sets."""

    ready = True

    def is_ready(self) -> bool:
        return self.ready

    def samples(self) -> Iterator[Sample]:
        yield Sample("tailrace_ready", self.ready)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _config(port: int, **more: Any) -> Config:
    return Config(metrics={"listen": f"127.0.0.1:{port}", **more})  # type: ignore[arg-type]


def _serving(config: Config, folder: Path, facts: SomeFacts) -> AbstractContextManager[None]:
    return serve_metrics(config, metrics_address(config), folder, facts)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_DELAY", 0.0)
    monkeypatch.delenv("TAILRACE_METRICS_LISTEN", raising=False)


def _ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_ask_for_the_token_and_health_does_not(tmp_path: Path) -> None:
    port, facts = _free_port(), SomeFacts()
    with _serving(_config(port, token="a secret"), tmp_path, facts):
        assert _ask(port, "/healthz") == (200, "alive\n")
        assert _ask(port, "/readyz") == (200, "ready\n")
        facts.ready = False
        assert _ask(port, "/readyz") == (503, "not ready\n")
        for wrong in ("", "Bearer", "Bearer ", "Bearer a secre", "Basic a secret", "Bearer \u00e4"):
            assert _ask(port, "/metrics", Authorization=wrong)[0] == 401, wrong
        status, text = _ask(port, "/metrics", Authorization="Bearer a secret")
        assert (status, text.splitlines()[-1]) == (200, "tailrace_ready 0.0")
        assert _ask(port, "/other")[0] == 404
        assert _ask(port, "/metrics", "POST")[0] == 501
        assert _ask(port, "/" + "x" * 70_000)[0] == 414
    with pytest.raises(ConnectionRefusedError):
        _ask(port, "/healthz")
    assert not (tmp_path / TOKEN_FILE).exists()


def test_without_a_token_there_is_a_random_one_in_a_private_file(tmp_path: Path) -> None:
    port = _free_port()
    with _serving(_config(port), tmp_path, SomeFacts()):
        file = tmp_path / TOKEN_FILE
        assert file.stat().st_mode & 0o777 == 0o600
        token = file.read_text()
        assert len(token) == 43
        assert _ask(port, "/metrics", Authorization=f"Bearer {token}")[0] == 200
    assert own_token(tmp_path) == token, "Prometheus keeps it"
    file.chmod(0o644)
    assert own_token(tmp_path) != token, "others may have read it"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("")
    assert len(own_token(tmp_path)) == 43


def test_many_that_say_nothing_keep_nobody_out_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.metrics.server._LONGEST", 0.2)
    port = _free_port()
    with _serving(_config(port, token="t"), tmp_path, SomeFacts()):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]

        def is_answered() -> bool:
            try:
                return _ask(port, "/healthz")[0] == 200
            except (OSError, http.client.HTTPException):
                return False

        wait_until(is_answered)
        for one in silent:
            one.close()


def test_a_port_in_use_is_an_error_only_if_it_was_chosen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = int(other.getsockname()[1])
        with pytest.raises(ConfigError) as found, _serving(_config(port), tmp_path, SomeFacts()):
            pass
        assert found.value.code == "TR170"
        with serve_metrics(Config(), metrics_address(_config(port)), tmp_path, SomeFacts()):
            pass
    assert metrics_address(Config(metrics={"listen": "off"})) is None  # type: ignore[arg-type]
    with serve_metrics(Config(), None, tmp_path, SomeFacts()):
        pass
    assert not (tmp_path / TOKEN_FILE).exists()


def test_each_process_has_a_port_of_its_own() -> None:
    config = Config(metrics={"listen": "[::1]:9464"}, channel=dict.fromkeys(("b", "a", "main"), Channel()))  # type: ignore[arg-type]
    ports = [metrics_address(config, channel) for channel in (None, "main", "a", "b", "another")]
    ports += [metrics_address(config, channel, validates=True) for channel in ("main", "a", "b", "another")]
    assert [str(one) for one in ports] == [f"[::1]:{port}" for port in range(9464, 9473)]
    last = Config(metrics={"listen": "127.0.0.1:65535"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        metrics_address(last, "main")


def test_others_can_connect_only_with_a_configured_token() -> None:
    for token in ({}, {"token": ""}):
        with pytest.raises(ValueError, match="needs token or token-file"):
            Config(metrics={"listen": "0.0.0.0:9464", **token})  # type: ignore[arg-type]
    Config(metrics={"listen": "0.0.0.0:9464", "token": "x"})  # type: ignore[arg-type]
    Config(metrics={"listen": ""})  # type: ignore[arg-type]

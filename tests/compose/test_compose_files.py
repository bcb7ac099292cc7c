"""The docker compose stack says what the embedded one says, and what the program expects to read."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import compose
from compose.databases import MySQL
from tailrace.config.model import Config

FOLDER = Path(compose.__file__).parent
STACK: dict[str, Any] = yaml.safe_load((FOLDER / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
MONITORING = ("prometheus", "grafana")
TOML = tomllib.loads((FOLDER / "tailrace.toml").read_text())


def test_the_services_are_the_whole_flow() -> None:
    assert set(SERVICES) == {"upstream", "downstream", "kafka", "producer", "consumer", *MONITORING}


@pytest.mark.parametrize("name", ["upstream", "downstream", "kafka"])
def test_a_server_has_a_health_check_and_keeps_its_data(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["volumes"][0].split(":")[0] in STACK["volumes"]


@pytest.mark.parametrize("name", ["upstream", "downstream"])
def test_a_database_logs_whole_rows_with_gtids(name: str) -> None:
    wanted = {"--binlog-row-image=FULL", "--binlog-row-metadata=FULL", "--gtid-mode=ON"}
    assert wanted <= set(SERVICES[name]["command"])


@pytest.mark.parametrize("name", ["upstream", "downstream"])
def test_the_account_has_the_privileges_of_the_embedded_stack(name: str) -> None:
    sql = (FOLDER / f"accounts-{name}.sql").read_text()
    [granted] = re.findall(r"GRANT (.+?) ON \*\.\*", sql, re.DOTALL)
    assert " ".join(granted.split()) == MySQL._grants[name]  # type: ignore[index]


@pytest.mark.parametrize("name", ["producer", "consumer"])
def test_a_process_waits_for_what_it_needs_and_may_finish_its_batch(name: str) -> None:
    service = SERVICES[name]
    assert {need["condition"] for need in service["depends_on"].values()} == {"service_healthy"}
    assert set(service["depends_on"]) <= set(SERVICES)
    assert service["stop_grace_period"] == "60s"
    # Its first process knows better which errors another start may repair.
    assert service["restart"] == "no"


def test_every_mounted_file_is_there_and_every_volume_is_declared() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (FOLDER / source).is_file() if source.startswith("./") else source in STACK["volumes"]


def test_only_the_loopback_address_is_published() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_configuration_is_valid_and_names_the_services() -> None:
    environment = SERVICES["producer"]["environment"]
    metrics = TOML["metrics"] | {"token": environment["TAILRACE_METRICS_TOKEN"]}
    config = Config(**TOML | {"metrics": metrics})
    assert config.source is not None
    assert config.target is not None
    assert "@upstream:" in config.source.url
    assert "@downstream:" in config.target.url
    assert config.kafka.bootstrap_servers == "kafka:9092"


def test_each_folder_of_the_configuration_is_a_volume_of_its_process() -> None:
    assert f"relay:{TOML['relay']['dir']}" in SERVICES["producer"]["volumes"]
    assert f"checkpoint:{TOML['consumer']['checkpoint-dir']}" in SERVICES["consumer"]["volumes"]


def test_the_image_copies_only_what_is_there() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    sources = re.findall(r"^COPY (\S+)", text, re.MULTILINE)
    assert sources
    assert all((FOLDER.parent / source).exists() for source in sources)


def test_the_image_runs_as_a_user_of_its_own_under_the_supervisor() -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    [entry] = re.findall(r'^ENTRYPOINT \["/opt/tailrace/source/(.+)"\]$', "\n".join(lines), re.MULTILINE)
    assert os.access(FOLDER.parent / entry, os.X_OK)
    assert lines.index("USER tailrace") < next(
        n for n, line in enumerate(lines) if line.startswith("ENTRYPOINT")
    )

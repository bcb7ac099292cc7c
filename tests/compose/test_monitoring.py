"""Prometheus and Grafana ask for metrics that exist, with the right secret, and the alerts tell what happens."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import compose
from tailrace.config.addresses import metrics_address
from tailrace.config.model import Config
from tailrace.metrics.definitions import ALL
from tests.support.paths import CHECKOUT

FOLDER = Path(compose.__file__).parent / "monitoring"
PROMTOOL = CHECKOUT / ".cache/promtool"
STACK: dict[str, Any] = yaml.safe_load((FOLDER.parent / "docker-compose.yaml").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())


def _promtool(*arguments: str) -> str:
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, cwd=FOLDER)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _metrics(expression: str) -> set[str]:
    """The metrics that a query names, without what a summary adds."""
    found = set(re.findall(r"\btailrace_\w+", re.sub(r"\(channel\|published\)", "channel", expression)))
    return {re.sub(r"_seconds_(sum|count)$", "_seconds", name) for name in found}


def test_the_alerts_tell_what_happens() -> None:
    _promtool("check", "rules", "rules.yml")
    _promtool("test", "rules", "rules_test.yml")


def test_prometheus_reads_its_configuration(tmp_path: Path) -> None:
    text = (FOLDER / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(text.replace("/etc/prometheus/", f"{FOLDER}/"))
    _promtool("check", "config", str(tmp_path / "prometheus.yml"))
    _promtool("check", "web-config", "web.yml")


def test_each_alert_is_tested_described_and_says_what_to_do() -> None:
    tests, page = (FOLDER / "rules_test.yml").read_text(), (CHECKOUT / "docs/METRICS.md").read_text()
    for rule in RULES:
        assert f'"{rule["alert"]}"' in tests
        assert f"| `{rule['alert']}` |" in page
        assert {"summary", "remedy"} == set(rule["annotations"])
    assert len(re.findall(r"^\| `Tailrace\w+` \|", page, re.MULTILINE)) == len(RULES)


@pytest.mark.parametrize(
    "expression",
    [rule["expr"] for rule in RULES]
    + [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]],
)
def test_queries_name_metrics_that_exist(expression: str) -> None:
    assert _metrics(expression) <= set(ALL)


def test_the_dashboard_shows_what_an_operator_asks_for() -> None:
    shown = {
        name for p in DASHBOARD["panels"] for target in p["targets"] for name in _metrics(target["expr"])
    }
    assert len(shown) > 30
    places = [tuple(panel["gridPos"].values()) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)


def test_prometheus_asks_each_process_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_METRICS_LISTEN", raising=False)
    [job] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    config = Config(metrics={"listen": "127.0.0.1:9464"})  # type: ignore[arg-type]
    wanted = {"producer": metrics_address(config), "consumer": metrics_address(config, "main")}
    targets = [one["targets"][0].split(":") for one in job["static_configs"]]
    assert {name: int(port) for name, port in targets} == {
        name: address.port for name, address in wanted.items() if address
    }
    token = (FOLDER / "token").read_text().strip()
    assert {STACK["services"][name]["environment"]["TAILRACE_METRICS_TOKEN"] for name in wanted} == {token}


def test_neither_of_them_is_open() -> None:
    services = STACK["services"]
    assert "--web.config.file=/etc/prometheus/web.yml" in services["prometheus"]["command"]
    source = yaml.safe_load((FOLDER / "grafana-datasource.yml").read_text())["datasources"][0]
    assert source["basicAuth"]
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"]
    assert not any("ANONYMOUS" in name for name in services["grafana"]["environment"])

"""The JSON interface without servers: what it says, and who may ask."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tailrace.web.actions import ACTIONS
from tailrace.web.api import routes
from tailrace.web.guard import LARGEST
from tailrace.web.openapi import PREFIX, document
from tailrace.web.serve import application
from tailrace.web.site import Site
from tests.support.pages import reports
from tests.support.pages.served import TOKEN, site_of
from tests.support.waiting import wait_until

BEARER = {"Authorization": f"Bearer {TOKEN}"}
OF_ACTIONS = {
    "pause": {"part": "channel", "channel": "main"},
    "resume": {"part": "mirror"},
    "skip": {"channel": "main", "event": "4671:12"},
    "replace": {"channel": "main", "event": "4671:ddl", "sql": "SELECT 'secret'"},
    "rewind": {"channel": "main", "to": "epoch:7"},
    "copy": {"tables": "shop.orders\n-x.y"},
    "validate": {"channel": "main", "repair": "yes"},
}
COMMANDS = {
    "pause": "'pause', 'channel', 'main', '--config'",
    "resume": "'resume', 'mirror', '--config'",
    "skip": "'error', 'skip', '--channel=main', '--event=4671:12', '--config'",
    "replace": "'error', 'replace', '--channel=main', '--event=4671:ddl', '--sql=-', '--config'",
    "rewind": "'channel', 'rewind', '--channel=main', '--to=epoch:7', '--yes', '--config'",
    "copy": "tailrace.toml', '--', 'shop.orders', '-x.y']",
    "validate": "'validate', '--channel=main', '--repair', '--config'",
}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_of(tmp_path, reports.in_trouble())


@pytest.fixture
def client(site: Site) -> TestClient:
    return TestClient(application(site), base_url="http://127.0.0.1:8686")


def test_the_document_names_exactly_the_routes(site: Site) -> None:
    described = {
        (path, method.upper()) for path, methods in document()["paths"].items() for method in methods
    }
    assert described == {
        (route.path, method) for route in routes(site) for method in (route.methods or ()) if method != "HEAD"
    }
    assert set(ACTIONS) == set(OF_ACTIONS)
    refs = json.dumps(document()).count("#/components/schemas/")
    assert refs > len(ACTIONS)


def test_reading_needs_the_token(client: TestClient) -> None:
    for path in document()["paths"]:
        if path.endswith("/openapi.json"):
            assert client.get(path).status_code == 200
        elif "/actions/" not in path:
            assert client.get(path).status_code == 401, path
            assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get(f"{PREFIX}/status", headers=BEARER).json()["report"]["ok"] is False


def test_what_was_seen(client: TestClient) -> None:
    def get(path: str) -> Any:
        return client.get(PREFIX + path, headers=BEARER).json()

    notices = get("/attention")["notices"]
    assert [notice["level"] for notice in notices] == ["error"] * 3 + ["warning"] * 2
    assert notices[0]["commands"] == [
        "tailrace error show --channel main",
        "tailrace error skip --channel main --event 4671:12",
    ]
    assert "--table 'shop.a b;c' --repair" in notices[1]["commands"][0]
    assert len(get("/history")["points"]) == 120
    assert get("/epochs")["epochs"][0]["epoch"] == 4711
    assert get("/rows?table=shop.orders&key=id=7")["changes"][0]["key"] == {"id": "7"}
    assert get("/rows?table=shop.orders&key=id")["error"]["code"] == "TR164"
    assert get("/structures?table=shop.orders&at=epoch:5")["difference"][0]["name"] == "note"
    assert client.get(f"{PREFIX}/rows?table=x&key=id=7", headers=BEARER).status_code == 400


QUERIES = {"/rows": "?table=shop.orders&key=id%3D7", "/structures": "?table=shop.orders"}


def test_answers_have_the_documented_fields(client: TestClient, site: Site) -> None:
    run = client.post(f"{PREFIX}/actions/copy", json=OF_ACTIONS["copy"], headers=BEARER).json()
    wait_until(lambda: site.runner.get(run["id"]).state != "running")
    schemas = document()["components"]["schemas"]
    for path, methods in document()["paths"].items():
        if "get" not in methods or path.endswith("openapi.json"):
            continue
        found = client.get(
            path.replace("{id}", run["id"]) + QUERIES.get(path.removeprefix(PREFIX), ""), headers=BEARER
        ).json()
        schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        if len(found) == 1:
            # One item stands for all of a list.
            ((name, (found, *_)),) = found.items()
            schema = schema["properties"][name]["items"]
        schema = schemas["Run"] if "$ref" in schema else schema
        assert set(found) == set(schema["properties"]), path
        for name, value in found.items():
            kinds = schema["properties"][name]["type"]
            assert _KINDS[type(value)] & set([kinds] if isinstance(kinds, str) else kinds), (path, name)


_KINDS = {
    str: {"string"},
    int: {"integer", "number"},
    float: {"number"},
    dict: {"object"},
    list: {"array"},
    type(None): {"null"},
}


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_an_action_is_a_command_with_checked_arguments(client: TestClient, site: Site, name: str) -> None:
    path = f"{PREFIX}/actions/{name}"
    assert client.post(path, json=OF_ACTIONS[name]).status_code == 401
    assert client.post(path, json={**OF_ACTIONS[name], "x": "y"}, headers=BEARER).status_code == 400
    assert not site.runner.record.path.exists()
    begun = client.post(path, json=OF_ACTIONS[name], headers=BEARER)
    assert begun.status_code == 202
    wait_until(lambda: site.runner.get(begun.json()["id"]).state != "running")
    run = client.get(f"{PREFIX}/actions/{begun.json()['id']}", headers=BEARER).json()
    assert COMMANDS[name] in run["output"]
    assert (run["state"], run["exit_code"]) == (("failed", 1) if name == "rewind" else ("done", 0))
    if name == "replace":
        arguments, given = run["output"].split("\n", 1)
        assert "secret" not in arguments
        assert given.strip() == OF_ACTIONS[name]["sql"]
    lines = [json.loads(line) for line in site.runner.record.path.read_text().splitlines()]
    assert [(line["action"], line["state"], line["by"]) for line in lines] == [
        (name, "running", "token"),
        (name, run["state"], "token"),
    ]
    assert stat.S_IMODE(site.runner.record.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("pause", {"part": "everything"}),
        ("pause", {"part": "mirror", "channel": "main"}),
        ("skip", {"channel": "--help", "event": "1:2"}),
        ("skip", {"channel": "main", "event": "all"}),
        ("skip", {"channel": "main"}),
        ("rewind", {"channel": "main", "to": "--yes"}),
        ("rewind", {"channel": "main", "to": "epoch:\ud800"}),
        ("copy", {}),
        ("copy", {"tables": "shop.*", "all": "yes"}),
        ("copy", {"tables": ["shop.*"]}),
    ],
)
def test_what_is_no_valid_field_does_nothing(client: TestClient, site: Site, name: str, given: Any) -> None:
    answer = client.post(f"{PREFIX}/actions/{name}", content=json.dumps(given), headers=BEARER)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "TR161")
    assert not site.runner.record.path.exists()


def test_bodies_are_small_and_objects(client: TestClient) -> None:
    path = f"{PREFIX}/actions/copy"
    assert client.post(path, content=b"x" * (LARGEST + 1), headers=BEARER).status_code == 413
    chunks = iter([b"x" * LARGEST, b"x"])
    assert client.post(path, content=chunks, headers=BEARER).status_code == 413
    for body in (b"[]", b"{", b"[" * 30_000, b"\xff"):
        assert client.post(path, content=body, headers=BEARER).status_code == 400


def test_an_action_that_cannot_be_recorded_does_not_happen(client: TestClient, site: Site) -> None:
    site.runner.record.path.mkdir(parents=True)
    answer = client.post(f"{PREFIX}/actions/copy", json={"all": "yes"}, headers=BEARER)
    assert answer.json()["error"]["code"] == "TR162"
    assert not site.runner._runs

"""Who may see the page and act: tokens, sessions, other hosts and sites, and what the answers forbid a browser."""

from __future__ import annotations

import re
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from schemas.errors import ConfigError
from tailrace.config.addresses import token_of
from tailrace.config.file import load
from tailrace.config.listen import ListenAddress
from tailrace.config.secret_files import readable_by_others
from tailrace.config.text import effective_toml
from tailrace.web.access import Access, check_address, check_token, kept_token
from tailrace.web.serve import PunctualProtocol, application
from tailrace.web.site import Site
from tests.support.pages import reports
from tests.support.pages.served import TOKEN, served, site_of
from tests.support.waiting import wait_until

PAGES = ("/", "/row", "/structure", "/actions")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_of(tmp_path, reports.in_trouble())


@pytest.fixture
def client(site: Site) -> TestClient:
    return TestClient(application(site), base_url="http://127.0.0.1:8686", follow_redirects=False)


def _log_in(client: TestClient) -> str:
    """Log in, and return the secret of the session's forms."""
    answer = client.post("/login", data={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert TOKEN not in answer.headers["set-cookie"]
    return re.findall(r'name="form_key" value="([0-9a-f]{64})"', client.get("/actions").text)[0]


def test_pages_lead_to_the_login_without_a_session(client: TestClient) -> None:
    for page in PAGES:
        assert (client.get(page).status_code, client.get(page).headers["location"]) == (303, "/login")
    assert client.post("/login", data={"token": "wrong"}).status_code == 403
    assert client.get("/static/page.css").status_code == 200
    _log_in(client)
    assert {client.get(page).status_code for page in PAGES} == {200}
    assert TOKEN not in "".join(client.get(page).text for page in PAGES)
    client.post("/logout")
    assert client.get("/").status_code == 303


def test_the_terminals_link_logs_in_once(client: TestClient, site: Site) -> None:
    link = f"/login?once={site.access.new_link()}"
    assert client.get("/login?once=").status_code == 200
    assert client.get(link).headers["location"] == "/"
    client.cookies.clear()
    assert client.get(link).status_code == 200


def test_where_reading_is_free_acting_is_not(tmp_path: Path) -> None:
    site = site_of(tmp_path, reports.at_rest(), reads_freely=True)
    client = TestClient(application(site), base_url="http://localhost:8686", follow_redirects=False)
    assert {client.get(page).status_code for page in PAGES} == {200}
    assert "form_key" not in client.get("/actions").text
    assert client.post("/actions/copy", data={"all": "yes", "confirmed": "yes"}).status_code == 401
    assert client.post("/api/v1/actions/copy", json={"all": "yes"}).status_code == 401
    assert not site.runner.record.path.exists()


def test_a_form_acts_only_with_the_sessions_key(client: TestClient, site: Site) -> None:
    key = _log_in(client)
    form = {"all": "yes", "confirmed": "yes"}
    other = Access("another-token-of-the-tests-01", site.access.listen)
    for wrong in ({}, {"form_key": ""}, {"form_key": other.form_key(client.cookies[site.access.cookie])}):
        assert client.post("/actions/copy", data=form | wrong).status_code == 401
    # A session's cookie is not enough for the JSON interface, whose requests need no form.
    assert client.post("/api/v1/actions/copy", json={"all": "yes"}).status_code == 401
    assert client.post("/actions/copy", data={"all": "yes", "form_key": key}).status_code == 400
    assert client.post("/actions/nothing", data=form | {"form_key": key}).status_code == 400
    assert not site.runner.record.path.exists()
    assert client.post("/actions/copy", data=form | {"form_key": key}).status_code == 303
    wait_until(lambda: site.runner.last(1)[0]["state"] == "done")
    assert site.runner.last(1)[0]["by"] == "session"
    assert "&#39;copy&#39;, &#39;--all&#39;" in client.get("/actions").text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:8686"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://127.0.0.1:8686", "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Host": "[::1]:8686"}, 303),
        ({"Host": "localhost"}, 303),
    ],
)
def test_requests_for_other_hosts_and_from_other_sites(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    assert client.post("/login", data={"token": TOKEN}, headers=headers).status_code == status


def test_the_browser_is_told_to_run_and_keep_nothing(client: TestClient) -> None:
    _log_in(client)
    for path in (*PAGES, "/login", "/nothing", "/static/page.js"):
        headers = client.get(path).headers
        assert "script-src 'self';" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
    for page in PAGES:
        text = client.get(page).text
        assert not re.search(r"<script(?! src=\"/static/)| on\w+=\"| style=|https?://(?!127)", text), page


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE", "OPTIONS"])
def test_other_methods_are_refused(client: TestClient, method: str) -> None:
    assert client.request(method, "/").status_code == 405


def test_what_a_database_says_is_text(client: TestClient) -> None:
    _log_in(client)
    query = "table=shop.orders&key=id%3D7"
    for path in (
        "/",
        f"/row?{query}",
        "/structure?table=shop.orders",
        f"/row?table={reports.HOSTILE}&key=x%3D1",
    ):
        text = client.get(path).text
        assert reports.HOSTILE not in text
        assert "&lt;script&gt;" in text, path


def test_silent_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PunctualProtocol, "patience", 0.2)
    with served(tmp_path, reports.at_rest()) as site:
        address = ("127.0.0.1", site.access.listen.port)
        with socket.create_connection(address) as silent, socket.create_connection(address) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert slow.recv(12) == b"HTTP/1.1 303"
            slow.sendall(b"GET / HT")
            for connection in (silent, slow):
                connection.settimeout(10)
                while connection.recv(1 << 16):
                    pass


def test_sessions_end_and_belong_to_their_token() -> None:
    now = [1000.0]
    listen = ListenAddress("127.0.0.1", 1)
    access = Access(TOKEN, listen, clock=lambda: now[0])
    session = access.new_session()
    assert access.is_session(session)
    assert not Access(TOKEN + "x", listen, clock=lambda: now[0]).is_session(session)
    for wrong in ("", ".", "..", "1.2.3", session[:-1], "9" + session, session.replace(".", "..", 1)):
        assert not access.is_session(wrong)
    now[0] += 13 * 3600
    assert not access.is_session(session)


def test_the_random_token_is_kept_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "serve" / "token"
    token = kept_token(path)
    assert len(token) >= 40
    assert kept_token(path) == token
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    path.chmod(0o644)
    assert kept_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("short")
    with pytest.raises(ConfigError, match="TR160"):
        kept_token(path)


def test_an_address_that_others_reach_needs_a_token_of_its_own() -> None:
    def check(host: str, **facts: Any) -> None:
        check_address(ListenAddress(host, 8686), **({"has_token": False, "reads_freely": False} | facts))

    check("::1", reads_freely=True)
    check("0.0.0.0", has_token=True)
    for facts in ({}, {"has_token": True, "reads_freely": True}):
        with pytest.raises(ConfigError, match="TR160"):
            check("0.0.0.0", **facts)
    for weak in ("short", "x" * 15, "with a space in it", "ümlaut-in-the-token", "x" * 2000):
        with pytest.raises(ConfigError, match="TR160"):
            check_token(weak)


def test_the_configured_token_is_read_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    file = tmp_path / "tailrace.toml"
    file.write_text('[serve]\ntoken-file = "token"\n')
    file.chmod(0o600)
    (tmp_path / "token").chmod(0o644)
    config = load(file)
    assert token_of(config.serve) == TOKEN
    assert readable_by_others(file, config) == [tmp_path / "token"]
    assert config.serve.actions_file == tmp_path / "serve" / "actions.jsonl"
    monkeypatch.setenv("TAILRACE_SERVE_TOKEN", "one-of-the-environment")
    config = load(file)
    assert token_of(config.serve) == "one-of-the-environment"
    assert "one-of-the-environment" not in effective_toml(config)

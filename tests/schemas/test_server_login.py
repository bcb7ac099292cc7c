"""TLS and logins at servers: what is proved, what is refused, and when a password is said."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from schemas.access.server_login import connect, connection_options, login_hint
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError
from tests.support.processes.certificates import Authority
from tests.support.processes.greeter import Greeter

PASSWORD = "not-for-everybody"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def url(port: int, query: str = "", host: str = "127.0.0.1") -> ServerUrl:
    return ServerUrl.parse(f"mysql://me:{PASSWORD}@{host}:{port}/?{query}")


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("", "preferred"),
        ("?ssl-mode=REQUIRED", "required"),
        ("?ssl-mode=verify_ca", "verify-ca"),
        ("?ssl-mode=VERIFY_IDENTITY&ssl-ca=a", "verify-identity"),
        ("?ssl-ca=a", "verify-ca"),
        ("?ssl-ca=a&ssl-mode=required", "verify-ca"),
        ("?ssl-cert=c&ssl-key=k", "required"),
        ("?unix-socket=/s", "disabled"),
        ("?unix-socket=/s&ssl-mode=preferred", "preferred"),
        ("?ssl-mode=disabled", "disabled"),
    ],
)
def test_modes(query: str, mode: str) -> None:
    assert ServerUrl.parse(f"mysql://h/{query}").ssl_mode == mode


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mysql://h/?ssl-mode=on", "ssl-mode is 'on'"),
        ("mysql://h/?ssl=1", "unknown parameter 'ssl'"),
        ("mysql://h/?ssl-mode=required&ssl-mode=disabled", "ssl-mode is empty or given twice"),
        ("mysql://h/?ssl-ca=", "ssl-ca is empty"),
        ("mysql://h/?ssl-mode=disabled&ssl-ca=a", "does not use ssl-ca"),
        ("mysql://h/?ssl-mode=preferred&ssl-cert=a", "does not use ssl-cert"),
        ("mysql://h/?ssl-key=a", "ssl-key needs ssl-cert"),
        ("mysql://h/?ssl-ca=%00", "control character"),
        ("mysql://u:a%00b@h/", "control character"),
        ("mysql://h\nost/", "control character"),
        ("mysql://h:0/", "port"),
        ("mysql://h:99999/", "port"),
        ("mysql://" + "h" * 70 + "/", "host"),
        ("mysql:///", "host"),
        ("postgres://h/", "scheme"),
    ],
)
def test_addresses_that_cannot_be_used(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"TR150: .*{why}"):
        ServerUrl.parse(text)
    with pytest.raises(ConfigError, match=r"TR150: .*password"):
        ServerUrl.parse("mysql://h/", "two\nlines")


def broken(folder: Path) -> dict[str, Path]:
    """Files that no certificate can be read from."""
    found = {name: folder / name for name in ("missing", "folder", "empty", "binary", "text", "unreadable")}
    found["folder"].mkdir()
    found["empty"].touch()
    found["binary"].write_bytes(bytes(range(256)))
    found["text"].write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    found["unreadable"].symlink_to("/proc/self/mem")
    return found


@pytest.mark.parametrize("name", ["ssl-ca", "ssl-cert", "ssl-key"])
@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "binary", "text", "unreadable"])
def test_files_that_cannot_be_used(name: str, kind: str, tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.sign("mine")
    named = {"ssl-cert": certificate, "ssl-key": key} if name != "ssl-ca" else {}
    named[name] = broken(tmp_path)[kind]
    query = "&".join(f"{key}={value}" for key, value in named.items())
    with pytest.raises(ConfigError, match=r"TR104: ssl-(ca|cert|key) .* cannot be (read|used)"):
        connection_options(url(1, query))


def test_a_key_that_is_not_the_certificates_or_is_encrypted(tmp_path: Path, authority: Authority) -> None:
    (mine, key), (_, other) = authority.sign("mine"), authority.sign("other")
    with pytest.raises(ConfigError, match="TR104"):
        connection_options(url(1, f"ssl-cert={mine}&ssl-key={other}"))
    from cryptography.hazmat.primitives import serialization as s

    loaded = s.load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    form = (s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"x"))
    locked.write_bytes(loaded.private_bytes(*form))
    with pytest.raises(ConfigError, match=r"TR104: .*the key is encrypted"):
        connection_options(url(1, f"ssl-cert={mine}&ssl-key={locked}"))


def test_certificates_that_are_not_good(authority: Authority, tmp_path: Path) -> None:
    good, expired = authority.sign("good"), authority.sign("expired", days=-1)
    elsewhere, stranger = authority.sign("elsewhere", host="db.example"), Authority(tmp_path, "stranger")
    early = authority.sign("early", days=30)
    for certificate, query, why in (
        (good, f"ssl-ca={stranger.pem}", "ssl-ca in the url must contain"),
        (good, "ssl-mode=verify-ca", "ssl-ca in the url must contain"),
        (expired, f"ssl-ca={authority.pem}", "it has expired"),
        (early, f"ssl-ca={authority.pem}", "clocks"),
        (elsewhere, f"ssl-ca={authority.pem}&ssl-mode=verify-identity", "another address"),
        (stranger.alone(), f"ssl-ca={authority.pem}", "it is self-signed"),
    ):
        with (
            Greeter(certificate) as server,
            pytest.raises(ConfigError, match=rf"TR151: .*not valid.*Hint: .*{why}"),
        ):
            connect(url(server.port, query))
        # Nobody has said who he is.
        assert b"me\0" not in server.heard
    with (
        Greeter(elsewhere) as server,
        pytest.raises(ConfigError, match=r"TR151: .*Hint: .*another name"),
    ):
        connect(url(server.port, f"ssl-ca={authority.pem}&ssl-mode=verify-identity", "localhost"))


def test_a_server_without_tls(authority: Authority) -> None:
    for query in ("ssl-mode=required", "ssl-mode=verify-identity", f"ssl-ca={authority.pem}"):
        with (
            Greeter() as server,
            pytest.raises(ConfigError, match=r"TR151: .*offers no TLS, and ssl-mode is"),
        ):
            connect(url(server.port, query))
        assert b"me\0" not in server.heard


@pytest.mark.parametrize("method", ["mysql_clear_password", "dialog"])
@pytest.mark.parametrize("query", ["", "ssl-mode=disabled", "ssl-mode=required"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_no_password_is_said_to_who_has_proved_nothing(
    method: str, query: str, encrypted: bool, authority: Authority
) -> None:
    certificate = authority.sign("any") if encrypted else None
    with Greeter(certificate, method) as server, pytest.raises(ConfigError) as met:
        connect(url(server.port, query))
    assert met.value.code == ("TR151" if query == "ssl-mode=required" and not encrypted else "TR152")
    assert PASSWORD.encode() not in server.heard
    assert PASSWORD not in str(met.value)


def test_a_password_in_the_clear_is_said_to_who_has_proved_himself(authority: Authority) -> None:
    with Greeter(authority.sign("proved")) as server, pytest.raises(pymysql.MySQLError):
        connect(url(server.port, f"ssl-ca={authority.pem}"))  # it knows no more than to ask
    assert PASSWORD.encode() in server.heard


@pytest.mark.parametrize("method", ["mysql_old_password", "client_ed25519", "parsec", "no such", "\x01"])
def test_ways_to_log_in_that_are_not_known(method: str) -> None:
    with Greeter(method=method) as server, pytest.raises(ConfigError, match="TR152: cannot log in"):
        connect(url(server.port))
    assert PASSWORD.encode() not in server.heard


@pytest.mark.parametrize(
    "greeting",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\x00\x00\x00hello", b"\x01\x00\x00\x00\x0a", b"\0" * 64],
    ids=repr,
)
def test_what_is_no_server_cannot_be_reached(greeting: bytes) -> None:
    with Greeter(greeting=greeting) as server, pytest.raises(pymysql.MySQLError):
        connect(url(server.port))


def test_a_refused_login_names_tls() -> None:
    denied = pymysql.err.OperationalError(1045, "Access denied")
    assert "REQUIRE SSL" in login_hint(url(1, "ssl-mode=disabled"), denied)
    assert "REQUIRE SSL" in login_hint(url(1), denied)
    assert "REQUIRE X509" in login_hint(url(1, "ssl-mode=required"), denied)
    assert login_hint(url(1, "ssl-cert=a"), denied) == ""
    assert login_hint(url(1), pymysql.err.OperationalError(2003, "away")) == ""


def test_passwords_are_utf8() -> None:
    assert connection_options(ServerUrl("h", password="pä☃"))["password"] == "pä☃".encode()

"""Addresses to listen at: what is accepted, and who can connect."""

import pytest
from pydantic import ValidationError

from tailrace.config.listen import ListenAddress, listen_text
from tailrace.config.model import Serve


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464, True),
        ("127.8.0.1:1", "127.8.0.1", 1, True),
        ("localhost:65535", "localhost", 65535, True),
        ("[::1]:9464", "::1", 9464, True),
        ("[::]:9464", "::", 9464, False),
        ("0.0.0.0:9464", "0.0.0.0", 9464, False),
        ("db-1.example:9464", "db-1.example", 9464, False),
    ],
)
def test_an_address_has_host_and_port(text: str, host: str, port: int, is_loopback: bool) -> None:
    address = ListenAddress.parse(text)
    assert (address.host, address.port, address.is_loopback, str(address)) == (host, port, is_loopback, text)


@pytest.mark.parametrize(
    "text",
    ["9464", ":9464", "host:", "host:0", "host:65536", "::1:9464", "[1.2.3.4]:5", "[::1]", "a b:1", "h:1\n"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write host:port"):
        ListenAddress.parse(text)
    with pytest.raises(ValueError, match="write host:port"):
        listen_text(text)


def test_an_empty_text_means_that_nothing_listens() -> None:
    assert listen_text("") == listen_text("off") == ""


def test_later_ports_end_at_the_last_one() -> None:
    assert str(ListenAddress.parse("[::1]:9464").later(2)) == "[::1]:9466"
    with pytest.raises(ValueError, match="host:port"):
        ListenAddress.parse("[::1]:65535").later(1)


def test_the_page_needs_an_address() -> None:
    with pytest.raises(ValidationError, match="write host:port"):
        Serve(listen="off")

"""Requests for copies: a file that anybody may have written, taken once."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from producer.copy.requests import REQUEST_NAME, CopyRequest, Requests, is_waiting, write_request
from schemas.errors import RelayError

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
_LIKE = st.fixed_dictionaries({"tables": _JSON, "cancel": _JSON, "copy": _JSON})


def test_a_request_waits_until_it_is_taken(tmp_path: Path) -> None:
    request = CopyRequest(("shop.orders", "c*.é"))
    write_request(tmp_path, request)
    file = tmp_path / REQUEST_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Requests(tmp_path).waiting() == request
    assert is_waiting(tmp_path, request)
    Requests(tmp_path).taken(CopyRequest(request.tables))
    assert is_waiting(tmp_path, request)
    Requests(tmp_path).taken(request)
    assert not file.exists()
    assert not is_waiting(tmp_path, request)


def test_a_cancellation_replaces_a_request_and_outlives_it(tmp_path: Path) -> None:
    first, cancel = CopyRequest(), CopyRequest(cancel=True)
    write_request(tmp_path, first)
    with pytest.raises(RelayError, match="TR324"):
        write_request(tmp_path, CopyRequest())
    write_request(tmp_path, cancel)
    # The publisher has read the first one before.
    Requests(tmp_path).taken(first)
    assert Requests(tmp_path).waiting() == cancel


@given(st.binary(max_size=60) | (_JSON | _LIKE).map(lambda value: json.dumps(value).encode()))
@example(b'{"tables": [], "cancel": false, "copy": []}')
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_no_request_is_removed(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / REQUEST_NAME
    file.write_bytes(text)
    assert Requests(tmp_path).waiting() is None
    assert not file.exists()


def test_what_is_no_file_is_left(tmp_path: Path) -> None:
    file = tmp_path / REQUEST_NAME
    file.mkdir()
    assert Requests(tmp_path).waiting() is None
    file.rmdir()
    file.symlink_to("elsewhere")
    assert Requests(tmp_path).waiting() is None
    assert file.is_symlink()

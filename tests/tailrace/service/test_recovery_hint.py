"""Whoever has lost the upstream or Kafka hears of `tailrace recover`, where there is something to recover from."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import DownstreamError, LogError, TailraceError, UpstreamError
from tailrace.service.lifecycle import recovery_hinted

LOST = [
    UpstreamError("TR201", "cannot be reached", hint="check it", retryable=True),
    LogError("TR500", "cannot be reached", hint="check it", retryable=True),
]
OTHERS = [
    UpstreamError("TR204", "purged", hint="check it"),
    DownstreamError("TR601", "cannot be reached", hint="check it", retryable=True),
]


def hint(root: Path, error: TailraceError) -> str:
    with pytest.raises(TailraceError) as raised, recovery_hinted(root):
        raise error
    assert (type(raised.value), raised.value.code) == (type(error), error.code)
    return raised.value.hint


@pytest.mark.parametrize("error", LOST, ids=lambda error: error.code)
def test_recover_is_mentioned_where_there_is_a_relay_log(tmp_path: Path, error: TailraceError) -> None:
    assert hint(tmp_path, error) == "check it"
    (tmp_path / "server-uuid.index").write_text("")
    assert hint(tmp_path, error).startswith("check it; if it is lost for good")
    assert "`tailrace recover`" in hint(tmp_path, error)


@pytest.mark.parametrize("error", OTHERS, ids=lambda error: error.code)
def test_it_is_not_where_it_would_not_help(tmp_path: Path, error: TailraceError) -> None:
    (tmp_path / "server-uuid.index").write_text("")
    assert hint(tmp_path, error) == "check it"

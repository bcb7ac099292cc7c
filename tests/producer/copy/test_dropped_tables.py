"""A table that is dropped while somebody asks for its copy."""

from __future__ import annotations

from typing import Any

import pytest

from producer.copy.table_lock import NotVisible
from producer.copy.upstream_reader import UpstreamReader
from producer.settings import CopySettings
from schemas.access.server_url import ServerUrl
from schemas.errors import UpstreamError
from schemas.tables import TableFilter


def test_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = UpstreamReader(ServerUrl("upstream"), TableFilter(), CopySettings())
    monkeypatch.setattr(reader, "_connected", lambda: (None, None))

    def dropped(*arguments: Any, **options: Any) -> None:
        raise NotVisible

    monkeypatch.setattr(reader, "_definition", dropped)
    with pytest.raises(UpstreamError, match=r"TR212.*dropped just now.*d\.t"):
        reader.check(("d", "t"))

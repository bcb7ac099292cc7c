"""State of a newer release is refused before anything is touched; without a version it is the first one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay_store.layout import directory as layout
from relay_store.layout.directory import Owner
from relay_store.write.writer import RelayWriter
from schemas.errors import TailraceError
from spark_consumer.apply.tables import channel_tables
from spark_consumer.sinks.parquet import folder

OWNER = Owner("shop", "8a1f0f2e-0000-4000-8000-000000000001")


def _listed(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("old", ["", "format = 1\n"])
def test_a_relay_directory_of_this_release_or_an_older_one_is_opened(tmp_path: Path, old: str) -> None:
    (tmp_path / layout.OWNER_NAME).write_text(f'prefix = "{OWNER.prefix}"\nlog-id = "{OWNER.log_id}"\n{old}')
    assert layout.check_owner(tmp_path, "shop") == OWNER
    RelayWriter.open(tmp_path).close()


def test_a_relay_directory_of_a_newer_release_is_not_touched(tmp_path: Path) -> None:
    layout.write_owner(tmp_path, OWNER)
    path = tmp_path / layout.OWNER_NAME
    path.write_text(path.read_text().replace(f"format = {layout.FORMAT}", f"format = {layout.FORMAT + 1}"))
    before = _listed(tmp_path)
    for start in (RelayWriter.open, layout.read_owner, lambda root: layout.check_owner(root, "other")):
        with pytest.raises(TailraceError, match="TR191"):
            start(tmp_path)
    assert _listed(tmp_path) == before


def _downstream(comment: str) -> Any:
    """A session with all tables; ``run`` are the statements that it is given."""
    tables = dict.fromkeys(channel_tables._TABLES, "") | {"relay_log_info": comment}
    run: list[str] = []
    return SimpleNamespace(rows=lambda sql: list(tables.items()), execute=run.append, run=run)


@pytest.mark.parametrize(
    "comment", ["Tailrace: position per channel", "Tailrace, format 1: position per channel"]
)
def test_a_downstream_of_this_release_or_an_older_one_needs_no_ddl(comment: str) -> None:
    session = _downstream(comment)
    channel_tables.install(session)
    assert session.run == []


def test_a_downstream_of_a_newer_release_is_not_touched() -> None:
    session = _downstream(f"Tailrace, format {channel_tables.FORMAT + 1}: position per channel")
    with pytest.raises(TailraceError, match="TR191"):
        channel_tables.install(session)
    assert session.run == []


def test_the_downstreams_own_comment_has_the_present_format() -> None:
    made = channel_tables._TABLES["relay_log_info"]
    found = channel_tables._FORMAT_IN_COMMENT.search(made)
    assert found is not None
    assert int(found[1]) == channel_tables.FORMAT


@pytest.mark.parametrize(("stored", "is_read"), [({}, True), ({"format": 1}, True), ({"format": 2}, False)])
def test_a_folder_of_change_files_is_read_up_to_its_format(
    tmp_path: Path, stored: dict[str, int], is_read: bool
) -> None:
    ours = tmp_path / folder.METADATA_DIR
    ours.mkdir()
    (ours / "position.json").write_text(json.dumps({"prefix": "shop", "files": {}, **stored}))
    if is_read:
        assert folder.read(tmp_path) == {"prefix": "shop", "files": {}, "format": 1}
        return
    before = _listed(tmp_path)
    with pytest.raises(TailraceError, match="TR191"):
        folder.read(tmp_path)
    assert _listed(tmp_path) == before

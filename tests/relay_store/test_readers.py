"""Registered readers: their marks on disk, and what a mark may never do."""

from __future__ import annotations

import errno
import json
import os

import pytest
from typer.testing import CliRunner

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.layout.inventory import bytes_after, relay_files
from relay_store.layout.locks import files_locked
from relay_store.layout.readers import Mark, forget, read_readers, register
from schemas.errors import RelayError
from tailrace.commands.app import app

SUBDIR = "3e11fa47-71ca-11e1-9e33-c80aa9429562.000001"
OLD = RelayPosition(SUBDIR, "mysql-bin.000009", 4711)
NEW = RelayPosition(SUBDIR, "mysql-bin.000010", 157)


def positions(root) -> dict[str, RelayPosition]:
    return {reader.name: reader.position for reader in read_readers(root)}


def full_disk(monkeypatch) -> None:
    """New files get no byte; what a file has already may be overwritten."""
    really = os.write

    def write(fd, data):
        if os.fstat(fd).st_size < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(fd, data)

    monkeypatch.setattr("relay_store.layout.directory.os.write", write)


def test_a_mark_is_a_small_toml_file(tmp_path):
    register(tmp_path, "channel-main", OLD)
    assert (tmp_path / "readers/channel-main.toml").read_text() == (
        f'subdir = "{SUBDIR}"\nbinlog-name = "mysql-bin.000009"\nbinlog-pos = 4711\n'
    )
    register(tmp_path, "publisher", NEW)
    assert positions(tmp_path) == {"channel-main": OLD, "publisher": NEW}
    assert [p.name for p in (tmp_path / "readers").iterdir() if p.name.startswith(".")] == []


def test_a_running_mark_is_written_once_a_second(tmp_path):
    now = 0.0
    mark = Mark(tmp_path, "publisher", lambda: now)
    mark.begin(OLD)
    mark.advance(NEW)
    assert positions(tmp_path) == {"publisher": OLD}
    now = 1.0
    mark.advance(NEW)
    assert positions(tmp_path) == {"publisher": NEW}
    last = RelayPosition(SUBDIR, "mysql-bin.000010", 300)
    mark.advance(last)
    mark.keep_up()
    assert positions(tmp_path) == {"publisher": NEW}
    now = 2.0
    mark.keep_up()
    assert positions(tmp_path) == {"publisher": last}
    last = RelayPosition(SUBDIR, "mysql-bin.000010", 500)
    mark.advance(last)
    mark.flush()
    assert positions(tmp_path) == {"publisher": last}


def test_a_reader_is_forgotten_once(tmp_path):
    register(tmp_path, "channel-old", OLD)
    assert forget(tmp_path, "channel-old")
    assert not forget(tmp_path, "channel-old")
    assert read_readers(tmp_path) == []


@pytest.mark.parametrize("name", ["", "../publisher", "a/b", ".hidden", "x" * 200, "a\nb"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    with pytest.raises(RelayError, match="TR306"):
        register(tmp_path, name, OLD)
    with pytest.raises(RelayError, match="TR306"):
        forget(tmp_path, name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "subdir = ",
        f'subdir = "{SUBDIR}"',
        'subdir = "x"\nbinlog-name = "mysql-bin.000001"\nbinlog-pos = 4',
        f'subdir = "{SUBDIR}"\nbinlog-name = "x"\nbinlog-pos = 4',
        f'subdir = "{SUBDIR}"\nbinlog-name = "mysql-bin.000001"\nbinlog-pos = true',
        f'subdir = "{SUBDIR}"\nbinlog-name = "mysql-bin.000001"\nbinlog-pos = 3',
        'subdir = 7\nbinlog-name = "mysql-bin.000001"\nbinlog-pos = 4',
    ],
)
def test_a_mark_that_cannot_be_read_is_named(tmp_path, text):
    register(tmp_path, "publisher", OLD)
    (tmp_path / "readers/publisher.toml").write_text(text)
    with pytest.raises(RelayError, match=r"TR306.*publisher\.toml"):
        read_readers(tmp_path)


def test_on_a_full_disk_a_mark_still_moves_in_its_own_place(tmp_path, monkeypatch):
    mark = Mark(tmp_path, "publisher", lambda: 0.0)
    mark.begin(OLD)
    full_disk(monkeypatch)
    mark.advance(NEW)
    mark.flush()
    assert positions(tmp_path) == {"publisher": NEW}
    with files_locked(tmp_path):
        mark.begin(OLD)
    assert positions(tmp_path) == {"publisher": OLD}
    monkeypatch.undo()
    register(tmp_path, "publisher", NEW)
    assert (tmp_path / "readers/publisher.toml").read_text().endswith("binlog-pos = 157\n")


def test_on_a_full_disk_a_first_mark_waits_for_room(tmp_path, monkeypatch):
    now = 0.0
    mark = Mark(tmp_path, "publisher", lambda: now)
    full_disk(monkeypatch)
    mark.begin(OLD)
    now = 5.0
    mark.advance(NEW)
    assert read_readers(tmp_path) == []
    monkeypatch.undo()
    now = 10.0
    mark.advance(NEW)
    assert positions(tmp_path) == {"publisher": NEW}


def test_another_disk_error_is_raised(tmp_path, monkeypatch):
    mark = Mark(tmp_path, "publisher", lambda: 0.0)
    mark.begin(OLD)

    def broken(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("relay_store.layout.directory.os.fsync", broken)
    mark.advance(NEW)
    with pytest.raises(RelayError, match="TR302"):
        mark.flush()


def test_the_bytes_after_a_position(tmp_path):
    folder = tmp_path / SUBDIR
    folder.mkdir()
    for name, size in (("mysql-bin.000008", 9000), ("mysql-bin.000009", 5000), ("mysql-bin.000010", 200)):
        (folder / name).write_bytes(bytes(size))
    files = relay_files(tmp_path, [SUBDIR, "gone.000002"])
    assert bytes_after(files, OLD) == 5000 - 4711 + 200
    assert bytes_after(files, RelayPosition(SUBDIR, "mysql-bin.000007", 4)) == 14200
    assert bytes_after(files, RelayPosition(SUBDIR, "mysql-bin.000011", 4)) == 0


def test_relay_readers_lists_and_forgets(tmp_path):
    config = tmp_path / "tailrace.toml"
    config.write_text('[relay]\ndir = "relay"\n')
    root = tmp_path / "relay"
    runner = CliRunner()
    arguments = ["relay", "readers", "--config", str(config)]
    assert "TR322" in str(runner.invoke(app, arguments).exception)
    root.mkdir()
    assert "no reader is registered" in runner.invoke(app, arguments).stderr
    (root / SUBDIR).mkdir()
    (root / SUBDIR / "mysql-bin.000009").write_bytes(bytes(5000))
    layout.write_index(root, [SUBDIR])
    register(root, "channel-main", OLD)
    (row,) = json.loads(runner.invoke(app, [*arguments, "--json"]).stdout)
    assert (row["reader"], row["file"], row["bytes_after"]) == ("channel-main", OLD.file, 289)
    assert f"{SUBDIR}/mysql-bin.000009:4711" in runner.invoke(app, arguments).stdout
    assert runner.invoke(app, [*arguments, "--forget", "channel-main"]).exit_code == 0
    assert read_readers(root) == []
    again = runner.invoke(app, [*arguments, "--forget", "channel-main"])
    assert isinstance(again.exception, RelayError)
    assert again.exception.code == "TR321"

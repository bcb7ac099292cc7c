"""Names from outside: what is let through as a file, a folder, a server; wherever it is read from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_store.check.verify import verify
from relay_store.layout import directory as layout
from relay_store.layout.directory import INDEX_NAME, META_NAME, START_NAME, RelayMeta
from relay_store.layout.epoch_ends import RECOVERED_NAME, read_epoch_ends
from relay_store.layout.readers import READERS_NAME, read_readers
from relay_store.read.start import initial_position
from relay_store.write.writer import RelayWriter
from schemas import names
from schemas.errors import RelayError

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
SUBDIR = f"{UUID}.000001"
FILES = [
    "../x.000001",
    "/x.000001",
    "a/b.000001",
    "x",
    "x.1",
    'x".000001',
    "x\\n.000001",
    "\\u001b[2J.000001",
]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("mysql-bin.000001", 1),
        ("binlog.999999", 999999),
        ("binlog.1000000", 1000000),
        ("a.b+c d[e]ü.2147483647", 2147483647),
        (".000001.000002", 2),
    ],
)
def test_what_servers_call_their_files_is_let_through(name, number):
    assert names.binlog_file(name) == (name, number)
    assert names.relay_file(f"{name}+77") == (name, number, 77)


def test_a_part_is_the_relay_logs_own_and_never_the_upstreams():
    assert names.relay_file("mysql-bin.000002+7") == ("mysql-bin.000002", 2, 7)
    for name in ("mysql-bin.000002+7", "mysql-bin.000002+0", "mysql-bin.000002+07", "mysql-bin.000002+"):
        with pytest.raises(names.UnfitName):
            names.binlog_file(name)
    for name in ("mysql-bin.000002+0", "mysql-bin.000002+07", "mysql-bin.000002+7+7"):
        with pytest.raises(names.UnfitName):
            names.relay_file(name)


@given(st.text(max_size=300))
def test_what_is_let_through_is_one_part_of_a_path_and_harmless_in_quotes(text):
    for read in (names.binlog_file, names.relay_file, names.server_uuid, names.relay_subdir):
        try:
            read(text)
        except names.UnfitName:
            continue
        assert text.isprintable()
        assert text not in (".", "..")
        assert not set(text) & set("/\\\"'`\n\0")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("file", [f"{SUBDIR}/{META_NAME}", START_NAME])
def test_metadata_that_names_another_place_is_refused(tmp_path, name, file):
    (tmp_path / SUBDIR).mkdir()
    (tmp_path / INDEX_NAME).write_text(f"{SUBDIR}\n")
    (tmp_path / file).write_text(f'binlog-name = "{name}"\nbinlog-pos = 4\nbinlog-gtid = ""\n')
    with pytest.raises(RelayError, match="TR306"):
        _opened(tmp_path)
    assert "TR306" in {finding.code for finding in verify(tmp_path).findings}


def _opened(root):
    RelayWriter.open(root).close()
    initial_position(root, "mysql")
    layout.read_start(root)


@pytest.mark.parametrize("pos", ["4.0", "true", "-4", "3", '"4"', "[[[" * 5000])
def test_a_position_that_is_none_is_refused(tmp_path, pos):
    (tmp_path / META_NAME).write_text(f'binlog-name = "x.000001"\nbinlog-pos = {pos}\nbinlog-gtid = ""\n')
    with pytest.raises(RelayError, match="TR306"):
        layout.read_meta(tmp_path)


@pytest.mark.parametrize(
    "line", ["../elsewhere.000001", f"/{SUBDIR}", "..", "x", f"{SUBDIR}/x", "\x1b[2J.000001"]
)
def test_an_index_that_names_another_place_is_refused(tmp_path, line):
    (tmp_path / INDEX_NAME).write_text(f"{line}\n")
    with pytest.raises(RelayError, match="TR306"):
        layout.read_index(tmp_path)
    with pytest.raises(RelayError, match="TR306"):
        RelayWriter.open(tmp_path)


@pytest.mark.parametrize(
    "place", ["../x.000001/y.000001:4", f"{SUBDIR}/../y.000001:4", "x:4", f"{SUBDIR}/y.000001:3"]
)
def test_marks_that_name_another_place_are_refused(tmp_path, place):
    (tmp_path / RECOVERED_NAME).write_text(f'positions = ["{place}"]\n')
    with pytest.raises(RelayError, match="TR306"):
        read_epoch_ends(tmp_path)
    (tmp_path / READERS_NAME).mkdir()
    name, _, pos = place.rpartition(":")
    subdir, _, file = name.rpartition("/")
    text = f'subdir = "{subdir}"\nbinlog-name = "{file}"\nbinlog-pos = {pos}\n'
    (tmp_path / READERS_NAME / "publisher.toml").write_text(text)
    with pytest.raises(RelayError, match="TR306"):
        read_readers(tmp_path)


@pytest.mark.parametrize("gtids", ['"', "\n", "\\", "\x1b[2J", "\x7f"])
def test_no_text_is_written_that_would_not_be_read_again(tmp_path, gtids):
    with pytest.raises(RelayError, match="TR306"):
        layout.write_meta(tmp_path, RelayMeta("x.000001", 4, gtids))
    assert list(tmp_path.iterdir()) == []

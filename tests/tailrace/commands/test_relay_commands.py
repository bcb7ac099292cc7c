"""`tailrace relay verify` as an operator runs it, on relay logs of real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.layout.readers import register
from relay_store.read import catalog
from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from schemas.errors import RelayError
from tests.support.binlogs.damage import LOGS, copy_of, events_of, flip
from tests.support.processes.relay_command import relay


@pytest.mark.parametrize("name", sorted(LOGS))
def test_verify_says_sound_or_what_is_wrong_and_what_to_do(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    result = relay(root, "verify")
    assert (result.exit_code, result.stdout.endswith("events: sound\n")) == (0, True)
    file = sorted(root.rglob("mysql-bin.000002"))[0]
    flip([file], 8 * 700)
    result = relay(root, "verify")
    assert result.exit_code == 5
    assert f"{file.parent.name}/{file.name}:" in result.stdout
    assert "remedy" in result.stdout
    found = json.loads(relay(root, "verify", "--json").stdout)
    assert not found["sound"]
    [finding] = found["findings"]
    assert finding["code"] == "TR304"
    assert finding["remedy"]


@pytest.mark.parametrize("window", [64, 65536])
@pytest.mark.parametrize("name", sorted(LOGS))
def test_list_says_what_a_pass_over_all_events_says(
    name: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_WINDOW", window)
    root = copy_of(name, tmp_path)
    [subdir] = layout.read_index(root)
    register(root, "publisher", RelayPosition(subdir, "mysql-bin.000002", 4))
    found = json.loads(relay(root, "list", "--json").stdout)
    files = found["subdirs"][0]["files"]
    scanner, gtids = GroupScanner(), dict[str, list[str]]()
    for file, _, event in events_of(root):
        if event[4] in (framing.GTID, framing.GTID_TAGGED, framing.MARIADB_GTID):
            scanner.feed(event[4], event, True)
            gtids.setdefault(file, []).append(scanner.gtid())
    assert [(f["first_gtid"], f["last_gtid"]) for f in files] == [(g[0], g[-1]) for g in gtids.values()]
    counts = [len(g) for g in gtids.values()][:-1] if name == "mysql" else [None, None]
    assert [f["transactions"] for f in files] == [*counts, None]
    assert [f["active"] for f in files] == [False, False, True]
    assert [f["needed_by"] for f in files] == [[], ["publisher"], ["publisher"]]
    assert [f["size"] for f in files] == [
        p.stat().st_size for p in sorted((root / subdir).glob("mysql-bin.*"))
    ]
    assert found["bytes"] == sum(f["size"] for f in files)
    assert all(f["first_time"] <= f["last_time"] for f in files)
    text = relay(root, "list").stdout
    assert f"{files[1]['first_gtid']} – {files[1]['last_gtid']}" in text
    assert "active  needed by publisher" in text


def test_list_shows_a_damaged_file_as_what_it_is(tmp_path: Path) -> None:
    root = copy_of("mysql", tmp_path)
    next(root.glob("*/mysql-bin.000002")).write_bytes(b"nonsense")
    [subdir] = json.loads(relay(root, "list", "--json").stdout)["subdirs"]
    assert [file.get("trouble") for file in subdir["files"]] == [
        None,
        "not a binlog file: it does not start with a binlog's magic",
        None,
    ]


CHANNELS = """
[target]
url = "mysql://applier@127.0.0.1:1"
[channel.copy]
safe-mode = true
[channel.lake.target]
url = "parquet:/lake"
"""


def test_channels_of_the_configuration_are_readers_from_the_start(tmp_path: Path) -> None:
    """Of change files `recover` knows nothing, so they need no relay file."""
    root = copy_of("mysql", tmp_path)
    [subdir] = layout.read_index(root)
    third = RelayPosition(subdir, "mysql-bin.000003", 4)
    register(root, "publisher", third)
    purge = ("purge", "--filename", "mysql-bin.000003")
    result = relay(root, *purge, more=CHANNELS)
    assert "deleted 0 files" in result.stdout
    assert "channel-copy, which has not started yet, channel-main, which has not started yet" in result.stdout
    listed = json.loads(relay(root, "readers", "--json", more=CHANNELS).stdout)
    assert [(one["reader"], one["file"], one["updated"] is None) for one in listed] == [
        ("channel-copy", "mysql-bin.000001", True),
        ("channel-main", "mysql-bin.000001", True),
        ("publisher", "mysql-bin.000003", False),
    ]
    assert "has not started yet" in relay(root, "readers", more=CHANNELS).stdout
    files = json.loads(relay(root, "list", "--json", more=CHANNELS).stdout)["subdirs"][0]["files"]
    assert [file["needed_by"] for file in files][:2] == [["channel-copy", "channel-main"]] * 2
    refused = relay(root, "readers", "--forget", "channel-main", more=CHANNELS)
    assert isinstance(refused.exception, RelayError)
    assert refused.exception.code == "TR323"
    # Two that have begun, or are out of the configuration, keep nothing that they do not need.
    register(root, "channel-main", third)
    named = CHANNELS.replace("[channel.copy]", "[consumer]")
    assert "deleted 2 files" in relay(root, *purge, more=named).stdout

"""`relay verify` and `relay cat` on relay logs of real servers, at rest, growing, and damaged."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from producer.settings import RelaySettings
from relay_store.check.verify import check_at_start, verify
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.read.catalog import list_relay_files
from tailrace.reader.relay_cat import EventSelection, events
from tests.support.binlogs.damage import events_of, flip
from tests.support.binlogs.mirroring import (
    catch_up,
    mirroring,
    relay_files,
    start_process,
    wait_for_mirror,
    work_on,
    write_odd_things,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


@pytest.fixture
def source(server, flavor):
    return server(flavor, role="upstream")


@pytest.fixture
def odd_log(source, flavor, tmp_path) -> Path:
    """A relay log with everything odd in it."""
    root = tmp_path / "relay"
    work_on(source, 20)
    write_odd_things(source, flavor)
    if flavor == "mariadb":
        source.execute("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
        work_on(source, 3, seed=2)
    source.restart()
    work_on(source, 10, seed=1)
    catch_up(source, root)
    return root


def test_a_log_with_everything_odd_is_sound_and_shown_as_mysqlbinlog_does(source, flavor, odd_log):
    report = verify(odd_log)
    assert report.findings == []
    check_at_start(odd_log)
    shown = list(events(odd_log, EventSelection()))
    assert report.events == len(shown)
    assert not any("not_read" in e or e["name"] == "UNKNOWN" for e in shown)
    json.dumps(shown)
    inside = [e for outer in shown for e in (outer, *outer.get("events", ()))]
    rows = [e for e in inside if "_ROWS" in e["name"] and e["name"] != "ANNOTATE_ROWS"]
    assert any("COMPRESSED" in e["name"] for e in rows) == (flavor == "mariadb")
    assert all(e["row_count"] for e in rows)
    for file in relay_files(odd_log):
        program = [*source.client_program("mysqlbinlog"), "--base64-output=decode-rows", str(file)]
        text = subprocess.run(program, check=True, capture_output=True).stdout.decode(errors="replace")
        theirs = {int(at) for at in re.findall(r"^# at (\d+)$", text, re.MULTILINE)}
        assert {e["position"] for e in shown if e["file"] == file.name} == theirs


def test_bits_flipped_at_random_are_found(odd_log, tmp_path):
    rng = random.Random(11)
    whole = events_of(odd_log)
    copy = tmp_path / "copy"
    for _ in range(60):
        shutil.copytree(odd_log, copy)
        files = sorted(path for path in copy.glob("*/*") if path.suffix[1:].isdigit())
        path = flip(files, rng.randrange(8 * sum(file.stat().st_size for file in files)))
        # Without checksums (SET GLOBAL binlog_checksum = NONE) there is nothing to hold a byte against.
        unprotected = _has_no_checksums(odd_log / path.relative_to(copy))
        assert not verify(copy).sound or unprotected, path
        shutil.rmtree(copy)
    assert events_of(odd_log) == whole


def _has_no_checksums(path: Path) -> bool:
    from relay_store.layout.file_head import read_head

    return not read_head(path).has_checksum


@pytest.mark.parametrize("max_file_size", [0, 8192])
def test_a_growing_log_raises_no_false_alarm(source, flavor, tmp_path, max_file_size):
    root, done = tmp_path / "relay", threading.Event()
    work_on(source, 2)
    loader = threading.Thread(target=lambda: [work_on(source, 10, seed) for seed in range(12)] and done.set())
    with mirroring(source, root, settings=RelaySettings(max_file_size=max_file_size)) as mirror:
        loader.start()
        checks = 0
        try:
            while not done.is_set():
                report = verify(root)
                assert report.findings == []
                checks += 1
        finally:
            loader.join()
        wait_for_mirror(mirror, source)
    assert checks > 5
    assert verify(root).findings == []
    assert verify(root).notes == []
    check_at_start(root)
    files = [file.name for file in relay_files(root)]
    assert any(layout.part_offset(name) for name in files) == (max_file_size > 0)
    shown = list(events(root, EventSelection()))
    assert {e["file"] for e in shown} == set(files)
    for e in shown:
        if layout.part_offset(e["file"]):
            assert (e["upstream_file"], e["upstream_position"]) == RelayPosition(
                "x.000001", e["file"], e["position"]
            ).upstream
    entries_of = {entry.name: entry for entry in list_relay_files(root)}
    assert [entries_of[name].is_active for name in files] == [False] * (len(files) - 1) + [True]


def test_what_kill_leaves_is_sound_for_the_next_start(source, flavor, tmp_path):
    root, rng, done = tmp_path / "relay", random.Random(5), threading.Event()

    def load():
        for seed in range(100):
            if not done.is_set():
                work_on(source, 20, seed)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        for _ in range(5):
            process = start_process(source, root)
            wait_until(lambda: layout.read_index(root), "the relay log has an index")
            time.sleep(rng.uniform(0.3, 1.2))
            process.kill()
            process.wait()
            assert verify(root).findings == []
            check_at_start(root)
    finally:
        done.set()
        loader.join()

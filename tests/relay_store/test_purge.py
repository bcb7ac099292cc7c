"""Purging the relay log: the seeds' own examples, the rules against a model, and what a crash leaves."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from producer.mirror.loop import Mirror
from producer.mirror.purging import Purging
from producer.settings import RelaySettings
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayMeta, RelayPosition, StartPosition
from relay_store.layout.inventory import RelayFile
from relay_store.layout.locks import files_locked
from relay_store.layout.readers import PUBLISHER, Reader, read_readers, register
from relay_store.purge.purge import GB, PurgeRules, RelayState, decide, look, purge
from relay_store.read.reader import RelayReader
from relay_store.read.start import InitialPosition, initial_position
from relay_store.write.writer import RelayWriter
from schemas.access.server_url import ServerUrl
from schemas.binlog import framing
from schemas.errors import RelayError
from schemas.gtid.sets import MysqlGtidSet
from schemas.wire.epoch import ORIGIN
from tailrace.commands.app import app
from tailrace.config.file import load
from tests.support.binlogs.relay_events import event, format_description, group
from tests.support.paths import CHECKOUT
from tests.support.waiting import wait_until

DEB = "deb76a2b-09cc-11e9-9129-5242cf3bb246"
E4E = "e4e0e8ab-09cc-11e9-9220-82cc35207219"
EVENTS_SOURCE = "00010203-0405-0607-0809-0a0b0c0d0e0f"  # of relay_events.gtid
NONE = PurgeRules(interval=0, remain_space=0)
ALL = replace(NONE, passed=True)
ALWAYS = replace(NONE, remain_space=1e6)
HOUR = 3600


def make(root: Path, tree: dict[str, list[str]]) -> None:
    """A relay log with these files, a transaction in each, as the mirror leaves it."""
    number = 0
    for subdir, names in tree.items():
        (root / subdir).mkdir(parents=True)
        for name in names:
            number += 1
            before = event(framing.PREVIOUS_GTIDS, gtids(number).encode())
            content = framing.MAGIC + format_description() + before + b"".join(group(number))
            (root / subdir / name).write_bytes(content)
        if names:
            size = (root / subdir / names[-1]).stat().st_size
            layout.write_meta(root / subdir, RelayMeta(names[-1], size, str(gtids(number + 1))))
    layout.write_index(root, list(tree))


def gtids(number: int) -> MysqlGtidSet:
    """Of everything before the transaction of this number."""
    return MysqlGtidSet.parse(f"{EVENTS_SOURCE}:1-{number - 1}" if number > 1 else "")


def logs(*numbers: int) -> list[str]:
    return [f"mysql-bin.{number:06d}" for number in numbers]


def tree(root: Path) -> dict[str, list[str]]:
    return {name: layout.binlog_files(root / name) for name in layout.read_index(root)}


def at(subdir: str, number: int, pos: int = 4) -> RelayPosition:
    [file] = logs(number)
    return RelayPosition(subdir, file, pos)


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "relay"


@pytest.fixture
def seed(root) -> Path:
    """The relay log in DM's text on manual purging, its publisher in the last file."""
    make(root, {f"{DEB}.000001": logs(1, 2, 3), f"{E4E}.000002": logs(1), f"{DEB}.000003": logs(1)})
    register(root, PUBLISHER, at(f"{DEB}.000003", 1, 157))
    return root


@pytest.fixture
def small(root) -> Path:
    """Two sub-directories; the publisher in the last file."""
    make(root, {f"{DEB}.000001": logs(7, 8, 9), f"{E4E}.000002": logs(1, 2)})
    register(root, PUBLISHER, at(f"{E4E}.000002", 2, 157))
    return root


def run(root: Path, *arguments: str):
    config = root.parent / "tailrace.toml"
    config.write_text(f'[relay]\ndir = "{root}"\n')
    return CliRunner().invoke(app, ["relay", "purge", "--config", str(config), *arguments])


# -- the seeds -------------------------------------------------------------------------------------


def test_dms_first_example_a_file_and_its_sub_directory(seed):
    done = run(seed, "--filename", "mysql-bin.000001", "--sub-dir", f"{E4E}.000002")
    assert done.exit_code == 0
    assert tree(seed) == {f"{E4E}.000002": logs(1), f"{DEB}.000003": logs(1)}
    assert not (seed / f"{DEB}.000001").exists()
    assert [line.split()[:2] for line in done.stdout.splitlines()[:4]] == [
        *[["deleted", f"{DEB}.000001/{name}"] for name in logs(1, 2, 3)],
        ["removed", f"{DEB}.000001"],
    ]
    assert f"kept from {E4E}.000002/mysql-bin.000001 on: only files before" in done.stdout


def test_dms_second_example_a_file_of_the_current_sub_directory(seed):
    assert run(seed, "--filename", "mysql-bin.000001").exit_code == 0
    assert tree(seed) == {f"{DEB}.000003": logs(1)}
    assert sorted(p.name for p in seed.iterdir() if p.is_dir()) == [f"{DEB}.000003", "readers"]


def test_dms_configuration_is_ours(tmp_path):
    file = tmp_path / "tailrace.toml"
    file.write_text("[purge]\ninterval = 3600\nexpires = 24\nremain-space = 15\n")
    found = load(file).purge
    assert (found.interval, found.expires, found.remain_space, found.passed) == (3600, 24, 15, False)
    file.write_text("")
    found = load(file).purge
    assert (found.interval, found.expires, found.remain_space, found.passed) == (3600, 0, 15, False)


def test_drainers_rule_deletes_what_all_have_passed_and_never_the_file_being_written(small):
    register(small, "channel-main", at(f"{DEB}.000001", 9, 300))
    assert [file.name for file in purge(small, ALL).deleted] == logs(7, 8)
    register(small, "channel-main", at(f"{E4E}.000002", 2, 300))
    report = purge(small, ALL)
    assert [file.name for file in report.deleted] == [*logs(9), *logs(1)]
    assert report.why == "the mirror writes to it"
    assert tree(small) == {f"{E4E}.000002": logs(2)}


# -- the rules against a model ---------------------------------------------------------------------

SUBDIRS = [f"{DEB}.000001", f"{E4E}.000002", f"{DEB}.000004"]
MARKS = st.builds(
    at, st.sampled_from([*SUBDIRS, f"{E4E}.000001", f"{DEB}.000009"]), st.integers(1, 6), st.integers(4, 999)
)


def part_mark(subdir: str, number: int, offset: int, pos: int) -> RelayPosition:
    [file] = logs(number)
    return RelayPosition(subdir, layout.part_name(file, offset), pos)


MARKS |= st.builds(
    part_mark, st.sampled_from(SUBDIRS), st.integers(1, 6), st.integers(0, 30), st.integers(4, 40)
)


@st.composite
def states(draw) -> RelayState:
    files = []
    for subdir in SUBDIRS:
        first, count = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        for name in logs(*range(first, first + count)):
            offset = 0
            for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
                size, age = draw(st.sampled_from([9, 17, GB, 3 * GB])), draw(st.integers(-2, 50))
                files.append(RelayFile(subdir, layout.part_name(name, offset), size, -age * HOUR))
                offset += size - 4
    active = draw(st.one_of(st.none(), st.sampled_from(files))) if files else None
    readers = draw(st.dictionaries(st.sampled_from([PUBLISHER, "channel-a", "channel-b"]), MARKS))
    return RelayState(
        tuple(SUBDIRS),
        tuple(files),
        active.start if active else None,
        tuple(Reader(name, mark, 0) for name, mark in readers.items()),
        draw(st.integers(0, 20 * GB)),
    )


RULES = st.builds(
    PurgeRules,
    interval=st.just(0),
    expires=st.sampled_from([0, 1, 24, 0.5]),
    remain_space=st.sampled_from([0, 1, 15, 20.5]),
    passed=st.booleans(),
)


def may_go(state: RelayState, file: RelayFile) -> bool:
    """Said once more, by places in the list: before the active file, and before each reader's own file."""
    place = state.files.index(file)
    if state.active and [f.start for f in state.files].index(state.active) <= place:
        return False
    if PUBLISHER not in [reader.name for reader in state.readers]:
        return False
    for reader in state.readers:
        if reader.position.subdir not in state.subdirs:
            return False
        if reader.position.subdir != file.subdir:
            if state.subdirs.index(file.subdir) > state.subdirs.index(reader.position.subdir):
                return False
            continue
        number, _, offset = file.name.partition("+")
        their_number, _, their_offset = reader.position.file.partition("+")
        begin, end = int(offset or 0), int(offset or 0) + file.size
        there = int(their_offset or 0) + reader.position.pos
        if number > their_number:
            return False
        if number == their_number and (begin >= int(their_offset or 0) or end >= there):
            return False
    return True


@settings(max_examples=500)
@given(state=states(), rules=RULES)
def test_the_rules_delete_exactly_what_the_model_says(state, rules):
    free, expected = state.free, []
    for file in state.files:
        old = rules.expires and -file.updated / HOUR > rules.expires
        scarce = rules.remain_space and free < rules.remain_space * GB
        if not ((old or scarce or rules.passed) and may_go(state, file)):
            break
        expected.append(file)
        free += file.size
    decision = decide(state, rules, now=0)
    assert list(decision.delete) == expected
    left = state.files[len(expected) :]
    assert decision.kept == (left[0] if left else None)
    assert decision.why
    if rules == NONE:
        assert not decision.delete


@settings(max_examples=300)
@given(state=states(), rules=RULES, now=st.integers(-100 * HOUR, 100 * HOUR))
def test_whatever_the_rules_no_needed_file_goes_and_none_before_an_older_one(state, rules, now):
    decision = decide(state, rules, now)
    assert decision.delete == state.files[: len(decision.delete)]
    assert all(may_go(state, file) for file in decision.delete)
    more = decide(state, replace(rules, passed=True), now)
    assert more.delete[: len(decision.delete)] == decision.delete


# -- on disk ---------------------------------------------------------------------------------------


def test_a_dry_run_says_the_same_and_deletes_nothing(small):
    before = tree(small)
    dry = json.loads(run(small, "--filename", "mysql-bin.000002", "--dry-run", "--json").stdout)
    assert tree(small) == before
    wet = json.loads(run(small, "--filename", "mysql-bin.000002", "--json").stdout)
    assert (dry.pop("dry_run"), wet.pop("dry_run")) == (True, False)
    assert dry == wet
    assert [file["file"] for file in wet["deleted"]] == [*logs(7, 8, 9), *logs(1)]
    assert wet["removed_subdirs"] == [f"{DEB}.000001"]
    assert wet["kept_from"]["file"] == "mysql-bin.000002"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--filename", "mysql-bin.000003"], "mysql-bin.000001 to mysql-bin.000002"),
        (["--filename", "mysql-bin.000001", "--sub-dir", f"{DEB}.000001"], "000007 to mysql-bin.000009"),
        (["--filename", "mysql-bin.000001", "--sub-dir", "../relay"], f"{DEB}.000001, {E4E}.000002"),
    ],
)
def test_a_file_that_is_not_there_is_refused(small, arguments, hint):
    before = tree(small)
    done = run(small, *arguments)
    assert isinstance(done.exception, RelayError)
    assert done.exception.code == "TR322"
    assert hint in done.exception.hint
    assert tree(small) == before


def test_without_a_relay_log_nothing_is_purged(root):
    assert run(root, "--filename", "mysql-bin.000001").exception.code == "TR322"
    root.mkdir()
    assert run(root, "--filename", "mysql-bin.000001").exception.code == "TR322"
    assert purge(root, ALL).deleted == ()


def test_a_relay_log_that_was_never_published_is_kept(small):
    (small / "readers/publisher.toml").unlink()
    register(small, "channel-main", at(f"{E4E}.000002", 2))
    report = purge(small, PurgeRules(expires=1, remain_space=1e6, passed=True))
    assert (report.deleted, report.blocked) == ((), True)
    assert "nothing has been published yet" in run(small, "--filename", "mysql-bin.000002").stdout


def test_a_reader_keeps_its_file_and_is_named(small):
    register(small, "channel-slow", at(f"{DEB}.000001", 8, 5000))
    done = run(small, "--filename", "mysql-bin.000002")
    assert tree(small)[f"{DEB}.000001"] == logs(8, 9)
    assert "kept from " + f"{DEB}.000001/mysql-bin.000008 on: needed by channel-slow\n" in done.stdout


def test_a_mark_that_cannot_be_read_keeps_everything(small):
    (small / "readers/channel-x.toml").write_text("subdir = ")
    before = tree(small)
    with pytest.raises(RelayError, match=r"TR306.*channel-x"):
        purge(small, ALL)
    assert tree(small) == before


def test_a_file_stays_while_relay_meta_vouches_for_no_later_one(small):
    """The mirror has created the next file, and not yet written that it has."""
    (small / f"{E4E}.000002" / "mysql-bin.000003").write_bytes(framing.MAGIC)
    register(small, PUBLISHER, at(f"{E4E}.000002", 3))
    purge(small, ALL)
    assert tree(small) == {f"{E4E}.000002": logs(2, 3)}
    RelayWriter.open(small).close()
    assert tree(small) == {f"{E4E}.000002": logs(2)}


def test_a_new_sub_directory_without_its_first_file_keeps_what_says_how_far_we_are(small):
    subdirs = [f"{DEB}.000001", f"{E4E}.000002", f"{DEB}.000003"]
    (small / subdirs[2]).mkdir()
    layout.write_index(small, subdirs)
    register(small, PUBLISHER, at(subdirs[2], 1))
    assert len(purge(small, ALL).deleted) == 5
    assert tree(small) == {subdirs[1]: [], subdirs[2]: []}
    relay = RelayWriter.open(small)
    assert relay.executed_gtids == f"{EVENTS_SOURCE}:1-5"
    relay.rotate("mysql-bin.000001")
    relay.close()
    purge(small, ALL)
    assert tree(small) == {subdirs[2]: logs(1)}


def test_only_as_much_goes_as_the_space_needs(small, monkeypatch):
    sizes = [file.size for file in look(small).files]
    usage = (100 * GB, 90 * GB, 10 * GB)
    monkeypatch.setattr("relay_store.purge.purge.shutil.disk_usage", lambda _: _Usage(*usage))
    assert purge(small, PurgeRules(remain_space=10)).deleted == ()
    wanted = 10 + (sizes[0] + 1) / GB
    assert [file.name for file in purge(small, PurgeRules(remain_space=wanted)).deleted] == logs(7, 8)


class _Usage:
    def __init__(self, total: int, used: int, free: int) -> None:
        self.total, self.used, self.free = total, used, free


def test_a_file_expires_by_its_last_update(small):
    now = time.time()
    for name, hours in zip(logs(7, 8, 9), (30, 25, 23), strict=True):
        os.utime(small / f"{DEB}.000001" / name, (now, now - hours * HOUR))
    report = purge(small, replace(NONE, expires=24), clock=lambda: now)
    assert [file.name for file in report.deleted] == logs(7, 8)
    assert report.why == "it was updated 23.0 hours ago"


def test_parts_of_one_file_go_one_by_one(root):
    relay = RelayWriter.open(root)
    relay.open_subdir(DEB)
    relay.rotate("mysql-bin.000001")
    end = 4
    for number in range(1, 5):
        events = [format_description(), *group(number)] if number == 1 else group(number)
        end += sum(map(len, events))
        relay.append(events, end)
        relay.sync()
        if number < 4:
            assert relay.begin_part(gtids(number + 1))
    subdir, here = relay.subdir, relay.position
    relay.close()
    names = layout.binlog_files(root / subdir)
    assert len(names) == 4
    layout.write_start(root, StartPosition("mysql-bin.000001", 4, "", subdir, ORIGIN))
    register(root, PUBLISHER, RelayPosition(subdir, names[2], 200))
    assert initial_position(root, "mysql").position == RelayPosition(subdir, names[0], 4)
    assert [file.name for file in purge(root, ALL).deleted] == names[:2]
    with pytest.raises(RelayError, match="TR313"):
        initial_position(root, "mysql")
    register(root, PUBLISHER, here)
    report = purge(root, ALL)
    assert ([file.name for file in report.deleted], report.why) == (names[2:3], "the mirror writes to it")
    again = RelayWriter.open(root)
    assert again.position == here
    again.close()


def test_a_mark_of_a_part_that_is_now_inside_a_larger_one_keeps_that(small):
    """The relay log was cut back and fetched again with another `max-file-size`."""
    folder = small / f"{DEB}.000001"
    size = (folder / "mysql-bin.000008").stat().st_size
    inside = RelayPosition(f"{DEB}.000001", "mysql-bin.000008+40", size - 41)
    register(small, "channel-main", inside)
    assert [file.name for file in purge(small, ALL).deleted] == logs(7)
    register(small, "channel-main", RelayPosition(inside.subdir, inside.file, inside.pos + 2))
    assert [file.name for file in purge(small, ALL).deleted] == logs(8)


# -- readers in other processes --------------------------------------------------------------------

READER = """
import sys
from pathlib import Path
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayReader
reader = RelayReader(Path(sys.argv[1]), RelayPosition(sys.argv[2], sys.argv[3], 4))
while block := reader.read_block():
    print(block.file, len(block.data), flush=True)
    if not sys.stdin.readline():
        break
print("end", flush=True)
"""


def test_a_file_that_another_process_reads_stays(small):
    """It is registered nowhere; that it has the file open is enough."""
    arguments = [sys.executable, "-c", READER, str(small), f"{DEB}.000001", "mysql-bin.000008"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline().startswith("mysql-bin.000008 ")
        dry = purge(small, ALL, dry_run=True)
        report = purge(small, ALL)
        assert [file.name for file in report.deleted] == [file.name for file in dry.deleted] == logs(7)
        assert (report.kept.name, report.why) == ("mysql-bin.000008", "a process is reading it")
        for name in ("mysql-bin.000009", "mysql-bin.000001", "mysql-bin.000002"):
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(name)
            purge(small, ALL)
            assert tree(small)[f"{E4E}.000002"][-1] == "mysql-bin.000002"
        process.stdin.close()
    assert tree(small) == {f"{E4E}.000002": logs(2)}


def test_a_purge_waits_for_one_that_is_at_work(small):
    done = threading.Event()

    def work() -> None:
        purge(small, ALL)
        done.set()

    with files_locked(small):
        thread = threading.Thread(target=work)
        thread.start()
        assert not done.wait(0.2)
        assert len(tree(small)) == 2
    thread.join()
    assert len(tree(small)) == 1


def test_a_running_mirror_keeps_its_index_whatever_is_purged(root):
    relay = RelayWriter.open(root)
    for serial, uuid in enumerate((DEB, E4E, DEB), 1):
        relay.open_subdir(uuid)
        relay.rotate("mysql-bin.000001")
        relay.append([format_description()], 4 + len(format_description()))
        relay.sync()
        register(root, PUBLISHER, at(f"{uuid}.{serial:06d}", 1))
        purge(root, ALL)
        assert layout.read_index(root) == [f"{uuid}.{serial:06d}"]
    relay.close()
    RelayWriter.open(root).close()


# -- readers that have not begun -------------------------------------------------------------------


def test_a_reader_that_is_awaited_needs_everything_until_it_registers(small):
    rule = ("mysql-bin.000002", f"{E4E}.000002")
    for wanted in (ALL, rule):
        report = purge(small, wanted, awaited=["channel-main", "channel-lake"])
        assert report.deleted == ()
        assert report.blocked
        assert (
            report.why
            == "needed by channel-lake, which has not started yet, channel-main, which has not started yet"
        )
    register(small, "channel-main", at(f"{DEB}.000001", 9))
    register(small, "channel-lake", at(f"{DEB}.000001", 8))
    assert [
        file.name for file in purge(small, rule, awaited=["channel-main", "channel-lake"]).deleted
    ] == logs(7)
    # Where there is no file, nothing is needed.
    assert read_readers(small / "none", ["channel-main"]) == []


# -- where a log begins ----------------------------------------------------------------------------


def test_what_a_purge_left_is_no_begin(small):
    first, second = layout.read_index(small)
    layout.write_start(small, StartPosition("mysql-bin.000007", 200, f"{DEB}:1-77", first, ORIGIN))
    begin = InitialPosition(at(first, 7, 200), MysqlGtidSet.parse(f"{DEB}:1-77"), ORIGIN)
    assert initial_position(small, "mysql") == begin
    for needed in (at(first, 8), at(second, 2)):
        register(small, "channel-main", needed)
        purge(small, ALL)
        with pytest.raises(RelayError, match=f"TR313.*before {needed.subdir}/{needed.file}"):
            initial_position(small, "mysql")


def test_a_begin_stays_while_its_file_does(small):
    first = f"{DEB}.000001"
    layout.write_start(small, StartPosition("mysql-bin.000008", 200, f"{DEB}:1-77", first, ORIGIN))
    register(small, "channel-main", at(first, 8))
    purge(small, ALL)
    assert initial_position(small, "mysql").position == at(first, 8, 200)


# -- crashes ---------------------------------------------------------------------------------------

PURGE = """
import sys
from pathlib import Path
from relay_store.purge.purge import PurgeRules, purge
purge(Path(sys.argv[1]), PurgeRules(passed=True))
"""
POINTS = [*[f"purge.after_unlink:{n}" for n in (1, 2, 3, 4)], "purge.after_index", "purge.after_meta"]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_leaves_a_relay_log_that_goes_on(small, point):
    layout.write_start(small, StartPosition("mysql-bin.000009", 200, f"{DEB}:1-77", f"{DEB}.000001", ORIGIN))
    whole = tree(small)
    files = [(subdir, name) for subdir, names in whole.items() for name in names]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "TAILRACE_CRASH_AT": point}
    done = subprocess.run([sys.executable, "-c", PURGE, str(small)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL

    left = [(subdir, name) for subdir, names in tree(small).items() for name in names]
    assert left == files[len(files) - len(left) :]
    if (f"{DEB}.000001", "mysql-bin.000009") in left:
        assert initial_position(small, "mysql").position == at(f"{DEB}.000001", 9, 200)
    else:
        with pytest.raises(RelayError, match="TR313"):
            initial_position(small, "mysql")
    relay = RelayWriter.open(small)
    assert relay.position.file == "mysql-bin.000002"
    reader = RelayReader(small, None, relay.tail)
    assert [b.file for b in iter(lambda: reader.read_block(), None)] == [name for _, name in left]
    reader.close()

    purge(small, ALL)
    assert tree(small) == {f"{E4E}.000002": logs(2)}
    assert sorted(p.name for p in small.iterdir() if p.is_dir()) == [f"{E4E}.000002", "readers"]
    relay.close()


def test_an_index_entry_whose_directory_was_removed_by_hand_is_taken_out(small):
    """No crash leaves it, so a start asks first; a purge is an answer."""
    for path in (small / f"{DEB}.000001").iterdir():
        path.unlink()
    (small / f"{DEB}.000001").rmdir()
    register(small, PUBLISHER, at(f"{E4E}.000002", 1))
    with pytest.raises(RelayError, match="TR332"):
        RelayWriter.open(small)
    assert purge(small, ALL).removed_subdirs == (f"{DEB}.000001",)
    assert tree(small) == {f"{E4E}.000002": logs(1, 2)}
    RelayWriter.open(small).close()


def test_directories_that_are_not_ours_to_remove_stay(small):
    (small / "notes").mkdir()
    (small / f"{E4E}.000009").mkdir()  # one that the mirror is just about to open
    (small / f"{DEB}.000000").mkdir()  # older than the index, but with a file in it
    (small / f"{DEB}.000000" / "mysql-bin.000001").write_bytes(framing.MAGIC)
    (small / f"{DEB}.000001" / "README").write_text("the operator's own")
    purge(small, ALL)
    left = sorted(p.name for p in small.iterdir() if p.is_dir())
    assert left == [f"{DEB}.000000", f"{DEB}.000001", f"{E4E}.000002", f"{E4E}.000009", "notes", "readers"]
    assert layout.read_index(small) == [f"{E4E}.000002"]
    assert (small / f"{DEB}.000001" / "README").exists()


def test_a_purge_on_a_disk_without_any_room_still_deletes_files(small, monkeypatch):
    really = os.open

    def full(path, flags, *mode):
        if flags & os.O_CREAT and str(path).endswith(".tmp"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        assert len(purge(small, ALL).deleted) == 4
    assert tree(small) == {f"{DEB}.000001": [], f"{E4E}.000002": logs(2)}
    purge(small, ALL)
    assert tree(small) == {f"{E4E}.000002": logs(2)}


# -- in the background -----------------------------------------------------------------------------


def test_the_background_purges_at_its_interval(small):
    purging = Purging(small, replace(ALWAYS, interval=1))
    purging.start()
    wait_until(lambda: len(tree(small)) == 1, "the background purges")
    purging.stop()
    assert tree(small) == {f"{E4E}.000002": logs(2)}


def test_an_interval_of_nothing_leaves_it_to_a_full_disk(small):
    purging = Purging(small, ALWAYS)
    purging.start()
    purging.join(10)
    assert len(tree(small)) == 2
    assert purging.purge()
    assert not purging.purge()
    purging.stop()


def test_a_purge_that_fails_does_not_end_the_background(small):
    (small / "readers/channel-x.toml").write_text("")
    purging = Purging(small, replace(ALL, interval=1))
    assert not purging.purge()
    (small / "readers/channel-x.toml").unlink()
    assert purging.purge()


def test_a_lock_on_the_active_file_is_not_asked_for(small):
    """What is not to be deleted is not even opened."""
    with (small / f"{E4E}.000002" / "mysql-bin.000002").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert len(purge(small, ALL).deleted) == 4


def test_an_upstream_that_is_lost_while_the_disk_is_full_is_no_reason_to_end(root, monkeypatch):
    relay = RelayWriter.open(root)
    relay.open_subdir(DEB)
    relay.rotate("mysql-bin.000001")
    relay.append([format_description()], 4 + len(format_description()))
    really = layout.write_atomically

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    asked: list[str | None] = []
    stop = threading.Event()

    def make_room() -> bool:
        asked.append(mirror.progress.paused)
        monkeypatch.setattr(layout, "write_atomically", really)
        return True

    monkeypatch.setattr(layout, "write_atomically", full)
    mirror = Mirror(
        ServerUrl.parse("mysql://root@127.0.0.1:1/"), relay, RelaySettings(), server_id=1, make_room=make_room
    )
    thread = threading.Thread(target=mirror.run, args=(stop,))
    thread.start()
    wait_until(lambda: mirror.progress.reconnects >= 2, "the mirror tries again")
    assert thread.is_alive()
    stop.set()
    thread.join()
    assert asked == ["disk full, writing relay.meta: No space left on device"]
    relay.close()

"""The mirror against real servers: its files are the upstream's own, whatever dies in between."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import threading
import time
import zlib
from pathlib import Path

import pytest

from producer.mirror.loop import Mirror
from producer.mirror.start import MirrorStart
from producer.settings import RelaySettings
from producer.upstream.connect import describe, synthetic_uuid
from producer.upstream.history import file_before, first_commit_after
from relay_store.layout import directory as layout
from relay_store.read.reader import RelayReader
from relay_store.read.start import gtids_before, initial_position
from relay_store.write.writer import RelayWriter
from schemas.access.server_url import ServerUrl
from schemas.binlog import framing
from schemas.errors import ConfigError, UpstreamError
from schemas.gtid.sets import Flavor, MysqlGtidSet, empty_gtid_set
from schemas.tables import TableFilter
from schemas.wire.epoch import ORIGIN
from tests.support.binlogs.mirroring import (
    assert_same_files,
    catch_up,
    mirroring,
    purge_upstream,
    relay_files,
    settled_end,
    start_process,
    url_of,
    wait_for_mirror,
    work_on,
    write_odd_things,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

CRASH_POINTS = ["relay.before_fsync", "relay.after_fsync", "relay.before_meta", "relay.after_meta"]


@pytest.fixture
def source(server, flavor):
    """An upstream of the test's own, so that it may be killed and its files compared."""
    return server(flavor, role="upstream")


def assert_reads_back(source, root: Path) -> None:
    reader = RelayReader(root)
    data = b"".join(block.data for block in iter(lambda: reader.read_block(), None))
    files = [(source.data / file.name).read_bytes()[4:] for file in relay_files(root)]
    assert len(data) == sum(map(len, files))


# The stack's MariaDB runs without TLS.
@pytest.mark.parametrize(
    ("flavor", "tls"), [("mysql", "disabled"), ("mysql", "verify-ca"), ("mariadb", "preferred")]
)
def test_files_are_equal_through_rotation_restart_and_odd_things(source, flavor, tmp_path, tls):
    root = tmp_path / "relay"
    ca = f"&ssl-ca={source.data}/ca.pem" if tls == "verify-ca" else ""
    address = ServerUrl.parse(f"{source.url('tailrace')}?ssl-mode={tls}{ca}")
    work_on(source, 20)
    with mirroring(source, root) as mirror:
        mirror.url = address
        work_on(source, 20, seed=1)
        write_odd_things(source, flavor)
        wait_for_mirror(mirror, source)
        source.restart()
        work_on(source, 10, seed=2)
        wait_for_mirror(mirror, source)
        executed = describe(url_of(source)).executed
    assert_same_files(source, root)
    assert_reads_back(source, root)
    meta = layout.read_meta(root / layout.read_index(root)[-1])
    assert meta.gtid_set == str(executed)


def test_events_of_more_than_sixteen_megabytes(source, flavor, tmp_path):
    source.execute("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGBLOB)")
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL max_allowed_packet = 1073741824")
    source.execute("INSERT m.t (v) VALUES (REPEAT('l', 40000000))", "INSERT m.t (v) VALUES ('s')")
    catch_up(source, tmp_path / "relay")
    assert_same_files(source, tmp_path / "relay")
    assert_reads_back(source, tmp_path / "relay")


def test_kills_at_any_moment_leave_equal_files(source, flavor, tmp_path):
    root, rng = tmp_path / "relay", random.Random(7)
    done = threading.Event()

    def load():
        for seed in range(100):
            if not done.is_set():
                work_on(source, 20, seed)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        for _ in range(8):
            process = start_process(source, root)
            time.sleep(rng.uniform(0.3, 1.5))
            process.kill()
            process.wait()
    finally:
        done.set()
        loader.join()
    catch_up(source, root)
    assert_same_files(source, root)


PART = 8192


def split_header(part: Path) -> tuple[bytes, bytes]:
    """What a part begins with of its own (magic, FORMAT_DESCRIPTION, the set of GTIDs), and the rest."""
    data = part.read_bytes()
    end = 4
    for _ in range(2 if layout.part_offset(part.name) else 0):
        end += framing.header(data, end).size
    return data[:end], data[end:]


def assert_parts_make_the_files(source, root: Path, flavor: Flavor) -> None:
    """Parts without their headers are the upstream's bytes, at the places that their names say."""
    parts = relay_files(root)
    assert len(parts) > 10
    for name, _ in describe(url_of(source)).files:
        mine = [part for part in parts if layout.upstream_file(part.name) == name]
        whole = bytearray()
        for part in mine:
            header, rest = split_header(part)
            assert layout.part_offset(part.name) in (0, len(whole) - len(header))
            whole += rest if len(header) > 4 else header + rest
        theirs = bytearray((source.data / name).read_bytes())
        theirs[4 + 17] &= ~framing.FLAG_IN_USE
        whole[4 + 17] &= ~framing.FLAG_IN_USE
        assert whole == theirs
        assert all(part.stat().st_size >= PART for part in mine[:-1])
    sets = [gtids_before(part, flavor) for part in parts]
    assert all(later.contains(before) for before, later in itertools.pairwise(sets))
    for part in parts:
        program = [*source.client_program("mysqlbinlog"), "--verify-binlog-checksum", str(part)]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)


def test_large_files_are_kept_in_parts(source, flavor, tmp_path):
    """Killed at any moment, too; and a reader does not see where one part ends."""
    root, rng = tmp_path / "relay", random.Random(3)
    work_on(source, 15)
    for turn in range(5):
        process = start_process(source, root, PART)
        work_on(source, 8, seed=turn)
        time.sleep(rng.uniform(0.2, 0.8))
        process.kill()
        process.wait()
    catch_up(source, root, settings=RelaySettings(max_file_size=PART))
    assert_parts_make_the_files(source, root, flavor)
    reader = RelayReader(root)
    blocks = list(iter(lambda: reader.read_block(), None))
    headers = sum(len(split_header(part)[0]) - 4 for part in relay_files(root))
    size = sum(size - 4 for _, size in describe(url_of(source)).files)
    assert sum(len(block.data) for block in blocks) == size + headers
    assert blocks[-1].end.upstream == describe(url_of(source)).files[-1]
    # Another size from now on, and none at all: what is there stays.
    catch_up(source, root, settings=RelaySettings(max_file_size=3 * PART))
    work_on(source, 5, seed=9)
    catch_up(source, root)
    assert relay_files(root)[-1].stat().st_size > 0


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_crash_points_leave_equal_files(source, flavor, tmp_path, point):
    root = tmp_path / "relay"
    work_on(source, 30)
    for count in (1, 2, 5):
        process = start_process(source, root, TAILRACE_CRASH_AT=f"{point}:{count}")

        def work_and_look(process: subprocess.Popen[bytes] = process) -> bool:
            source.execute("INSERT m.t (v) VALUES ('more')")
            return process.poll() is not None

        wait_until(work_and_look, f"it dies at {point}, time {count}")
        assert process.returncode == -signal.SIGKILL
    catch_up(source, root)
    assert_same_files(source, root)


def test_a_killed_upstream_is_followed_again(source, flavor, tmp_path):
    root = tmp_path / "relay"
    work_on(source, 5)
    with mirroring(source, root) as mirror:
        wait_for_mirror(mirror, source)
        source.kill()
        source.start()
        work_on(source, 5)
        wait_for_mirror(mirror, source)
        assert mirror.progress.reconnects >= 1
    assert_same_files(source, root, was_killed=True)


def test_a_start_at_current_mirrors_whole_files_and_says_where_to_begin(source, flavor, tmp_path):
    root = tmp_path / "relay"
    work_on(source, 5)
    source.execute("FLUSH BINARY LOGS", "INSERT m.t (v) VALUES ('before')")
    info = settled_end(source)
    with mirroring(source, root, start=MirrorStart(position="current")) as mirror:
        wait_for_mirror(mirror, source)
        source.execute("INSERT m.t (v) VALUES ('after')")
        wait_for_mirror(mirror, source)
    [file] = relay_files(root)
    assert file.name == info.file
    begin = initial_position(root, flavor)
    # MySQL's set is exact, and its position may lie behind a transaction that is not in the set yet.
    pos = 4 if flavor == "mysql" else info.position
    assert (begin.position.file, begin.position.pos, begin.executed) == (info.file, pos, info.executed)
    assert begin.log_begins == "source.start is current"
    assert file.stat().st_size > info.position
    if flavor == "mysql":
        assert begin.executed.contains(gtids_before(file, flavor))


def test_a_start_at_a_file_or_behind_a_set(source, flavor, tmp_path):
    """relay-binlog-name and relay-binlog-gtid, each for an empty relay log only."""
    work_on(source, 2)
    source.execute("FLUSH BINARY LOGS", "INSERT m.t (v) VALUES ('before')")
    info = describe(url_of(source))
    source.execute("INSERT m.t (v) VALUES ('after')", "FLUSH BINARY LOGS", "INSERT m.t (v) VALUES ('late')")
    named, behind = tmp_path / "named", tmp_path / "behind"
    catch_up(source, named, start=MirrorStart(file=info.file))
    catch_up(source, behind, start=MirrorStart(gtid_set=str(info.executed), file="mysql-bin.000099"))
    for root in (named, behind):
        assert relay_files(root)[0].name == info.file
        catch_up(source, root, start=MirrorStart(position="current"))
        assert relay_files(root)[0].name == info.file
    begin = initial_position(named, flavor)
    assert begin.executed == gtids_before(relay_files(named)[0], flavor)
    assert begin.log_begins == "relay.relay-binlog-name"
    begin = initial_position(behind, flavor)
    assert (begin.executed, begin.log_begins) == (info.executed, "relay.relay-binlog-gtid")
    with pytest.raises(UpstreamError, match=r"(?s)TR204.*mysql-bin\.000099.*relay-binlog-name"):
        catch_up(source, tmp_path / "none", start=MirrorStart(file="mysql-bin.000099"))
    unknown = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3" if flavor == "mysql" else "9-9-9"
    with pytest.raises(UpstreamError, match=r"TR207.*lacks transactions that relay\.relay-binlog-gtid has"):
        catch_up(source, tmp_path / "errant", start=MirrorStart(gtid_set=unknown))
    with pytest.raises(ConfigError, match="TR106"):
        catch_up(source, tmp_path / "wrong", start=MirrorStart(gtid_set="nonsense"))


@pytest.mark.parametrize("groups", [1, 7, 0])
def test_what_sync_relay_log_promises(source, flavor, tmp_path, groups):
    """After each group, after so many, or only when somebody asks; equal files in the end in any case."""
    root = tmp_path / "relay"
    work_on(source, 1)
    catch_up(source, root)
    with mirroring(source, root, settings=RelaySettings(sync_relay_log=groups)) as mirror:
        wait_for_mirror(mirror, source)
        before, metas = mirror.relay.syncs, (root / mirror.relay.subdir / layout.META_NAME).read_text()
        for _ in range(3):
            source.execute(*["INSERT m.t (v) VALUES ('one')"] * 21)
        wait_for_mirror(mirror, source)
        time.sleep(0.5)
        fsyncs = mirror.relay.syncs - before
        if groups == 0:
            assert fsyncs == 0
            assert (root / mirror.relay.subdir / layout.META_NAME).read_text() == metas
            mirror.relay.tail.wait_until_durable(mirror.relay.tail.position)
            assert mirror.relay.syncs - before == 1
        else:
            assert fsyncs >= 63 // groups
    assert_same_files(source, root)


def test_what_is_purged_upstream_stops_with_a_remedy(source, flavor, tmp_path):
    root = tmp_path / "relay"
    work_on(source, 2)
    catch_up(source, root)
    source.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    last = describe(url_of(source)).file
    purge_upstream(source, last)
    with pytest.raises(UpstreamError, match=f"(?s)TR204.*earliest binlog file is {last}.*relay-binlog-gtid"):
        catch_up(source, root)
    # Without a relay log it is no begin either, unless somebody says that it is one.
    with pytest.raises(UpstreamError, match=f"(?s)TR204: .*these transactions: .*{last}.*relay-binlog-name"):
        catch_up(source, tmp_path / "new")
    catch_up(source, tmp_path / "named", start=MirrorStart(file=last))
    assert initial_position(tmp_path / "named", flavor).log_begins == "relay.relay-binlog-name"


def test_the_upstreams_own_beginning_is_proved(source, flavor, tmp_path):
    """By the number of its first binlog file, by the GTIDs before it, and by its tables."""
    work_on(source, 2)
    catch_up(source, tmp_path / "whole")
    assert initial_position(tmp_path / "whole", flavor).log_begins == ORIGIN
    reset = "RESET BINARY LOGS AND GTIDS" if flavor == "mysql" else "RESET MASTER"

    def begin(name: str, *before: str, tables: TableFilter = TableFilter()) -> str:  # noqa: B008
        source.execute(reset, *before)
        catch_up(source, tmp_path / name, start=MirrorStart(tables=tables))
        return initial_position(tmp_path / name, flavor).log_begins

    # No transaction is missing, but somebody has left the tables' own out.
    newest = "SELECT MAX(create_time) < NOW() FROM information_schema.tables WHERE table_schema = 'm'"
    # Tables' times are in whole seconds.
    wait_until(lambda: source.execute(newest) == [(1,)], "the tables are older than now")
    assert begin("reset") == "the first binlog file is younger than the tables"
    assert (
        begin("new", "CREATE DATABASE n", "CREATE TABLE n.t (id INT)", tables=TableFilter(["n.*"])) == ORIGIN
    )
    # The server was made from a copy, and its own binlog begins behind that.
    other = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-500"
    copied = f"SET GLOBAL gtid_purged = '+{other}'" if flavor == "mysql" else "SET gtid_seq_no = 501"
    with pytest.raises(UpstreamError, match=r"TR204: .* no longer has these transactions: .*500;"):
        begin("copied", copied, "INSERT m.t (v) VALUES ('behind')")
    # A failover to such a server is none either.
    with pytest.raises(UpstreamError, match=r"TR204: .* no longer has these transactions: .*500;"):
        file_before(url_of(source), describe(url_of(source)), empty_gtid_set(flavor))
    if flavor == "mysql":
        with pytest.raises(UpstreamError, match=r"TR204: .*its first binlog files, those before number 7"):
            begin("number", "RESET BINARY LOGS AND GTIDS TO 7")


def test_another_history_is_refused(source, flavor, server, tmp_path):
    root = tmp_path / "relay"
    work_on(source, 2)
    catch_up(source, root)
    other = server(flavor, role="upstream", server_id=77)
    with pytest.raises(UpstreamError, match=r"TR207.*lacks transactions"):
        catch_up(other, root)


def test_a_wrong_password_stops_at_once(source, flavor, tmp_path):
    relay = RelayWriter.open(tmp_path / "relay")
    address = ServerUrl.parse(source.url("tailrace"), password="wrong")
    with pytest.raises(UpstreamError, match="TR202") as caught:
        Mirror(address, relay, RelaySettings(), server_id=990).run(threading.Event())
    assert "wrong" not in str(caught.value)
    relay.close()


def test_the_first_commit_after_a_position_is_found(source, flavor):
    work_on(source, 1)
    info = describe(url_of(source))
    position = info.file, info.position
    source.execute("FLUSH BINARY LOGS")
    assert first_commit_after(url_of(source), info, *position) is None
    before = int(time.time())
    source.execute("INSERT m.t (v) VALUES ('first')", "INSERT m.t (v) VALUES ('second')")
    found = first_commit_after(url_of(source), info, *position)
    assert before * 1000 <= found <= time.time() * 1000
    assert first_commit_after(url_of(source), info, info.files[0][0], 4) <= found


def test_the_upstream_describes_itself(source, flavor):
    source.execute("CREATE DATABASE m", "CREATE TABLE m.t (i INT)")
    info = settled_end(source)
    assert info.flavor == flavor
    assert info.log_bin
    assert (info.binlog_format, info.row_image, info.row_metadata) == ("ROW", "FULL", "FULL")
    assert info.executed
    assert (info.file, info.position) == info.files[-1]
    if flavor == "mariadb":
        assert info.server_uuid == synthetic_uuid(0, info.server_id)


def test_tagged_sets_have_the_servers_own_binary_form(server, tmp_path):
    source = server("mysql", role="upstream")
    work_on(source, 1)
    write_odd_things(source, "mysql")
    catch_up(source, tmp_path / "relay")
    data = relay_files(tmp_path / "relay")[-1].read_bytes()[4:]
    second = framing.header(data).size
    event = data[second : second + framing.header(data, second).size]
    assert zlib.crc32(event) == framing.CRC32_RESIDUE
    found = framing.previous_gtids(event, True)
    assert isinstance(found, MysqlGtidSet)
    assert ":blue:1" in str(found)
    assert found.encode() == event[framing.HEADER_SIZE : -4]

"""Small inputs that would take much memory or time: sizes are looked at first, and the stop is clear.

Each runs in a child process with so much memory and time as its bytes may take.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.epochs.open_epoch import PART_BYTES, PART_RECORDS, Records
from producer.events.compressed import unpacked
from producer.events.json_diff import json_patched
from producer.structures.interpret import Catalog, created, ddl_changes
from relay_store.layout.directory import RelayPosition
from schemas.binlog import framing
from schemas.binlog.mariadb_zlib import inflate, inflate_column
from schemas.ddl.classify import classify
from schemas.ddl.column_types import DdlContext
from schemas.ddl.dml import read_dml, verb_on
from schemas.ddl.kinds import Category
from schemas.ddl.names import CannotRename, in_lower_case
from schemas.errors import DecodeError
from schemas.gtid.sets import Flavor, MariadbGtidSet, MysqlGtidSet, MysqlGtidTracker
from schemas.structure import Column
from schemas.types.enum_set import SetTable
from schemas.types.json_avro import json_avro
from schemas.types.json_binary import MAX_DEPTH, json_text, json_tree, tree_text
from schemas.types.temporal import Temporal
from schemas.varint import read_more
from tests.support.binlogs.decoder import new_decoder, run
from tests.support.binlogs.relay_events import event, format_description, gtid, query, xid
from tests.support.processes.limits import bounded

MB = 1 << 20
SUBDIR, FILE = "00010203-0405-0607-0809-0a0b0c0d0e0f.000001", "mysql-bin.000001"


def decoded(*events: bytes, flavor: Flavor = "mysql") -> tuple[int, int]:
    """How many rows the events come to, and the most bytes of them that were held at a time; in little memory."""

    def work() -> tuple[int, int]:
        most = 0

        def take(records: Records) -> None:
            nonlocal most
            most = max(most, sum(map(len, records.values)))

        decoder = new_decoder(flavor)
        decoder.leave_file_for(SUBDIR, FILE)
        decoder.read_format(format_description(), SUBDIR, FILE)
        for one in events:
            run(decoder, one, take=take)
        take(decoder.state.epoch.hand_over_all())
        return decoder.state.epoch.seq, most

    found: tuple[int, int] = bounded(work, megabytes=300, seconds=60)
    return found


def refused(*events: bytes, flavor: Flavor = "mysql") -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decoded(*events, flavor=flavor)
    assert caught.value.where.position == 4
    assert caught.value.where.file == FILE
    return caught.value


def field(kind: int, number: int) -> bytes:
    value = b"\xfe" + struct.pack("<Q", number)
    return bytes((kind, len(value))) + value


def payload(data: bytes, stated: int | None) -> bytes:
    head = field(2, 0) + (field(3, stated) if stated is not None else b"")
    return event(framing.TRANSACTION_PAYLOAD, head + b"\0" + data)


def zeros(size: int) -> bytes:
    """So many zeros as zstd packs them."""
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    piece = bytes(MB)
    return b"".join([*(packer.compress(piece) for _ in range(size // MB)), packer.flush()])


def zipped(size: int, stated: int | None = None) -> bytes:
    """So many zeros as MariaDB packs them."""
    packer = zlib.compressobj(1)
    piece = bytes(MB)
    data = b"".join([*(packer.compress(piece) for _ in range(size // MB)), packer.flush()])
    return b"\x84" + (size if stated is None else stated).to_bytes(4, "big") + data


def table_map(
    codes: bytes, meta: bytes, names: list[str], *optional: tuple[int, bytes], key: bytes = b"\0"
) -> bytes:
    """``d.t`` with these columns, none of them nullable."""

    def size(number: int) -> bytes:
        return bytes((number,)) if number < 251 else b"\xfd" + number.to_bytes(3, "little")

    listed = b"".join(size(len(name)) + name.encode() for name in names)
    fields = [(4, listed), *([(8, key)] if key else []), *optional]
    said = b"".join(bytes((kind,)) + size(len(data)) + data for kind, data in fields)
    nulls = bytes((len(codes) + 7) // 8)
    body = b"\1d\0\1t\0" + size(len(codes)) + codes + size(len(meta)) + meta + nulls + said
    return event(framing.TABLE_MAP, b"\1\0\0\0\0\0\1\0" + body)


def rows_event(images: bytes, width: int = 1, kind: int = framing.WRITE_ROWS) -> bytes:
    size = bytes((width,)) if width < 251 else b"\xfc" + struct.pack("<H", width)
    head = b"\1\0\0\0\0\0\1\0\2\0" + size + b"\xff" * ((width + 7) // 8)
    return event(kind, head + images)


TINY = table_map(b"\1", b"", ["a"], (1, b"\0"))
BEGIN = (gtid(1), query(b"BEGIN"))


# -- compressed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stated", [80, 1 << 62, 0, None])
def test_a_payload_that_unpacks_to_more_or_less_than_it_states(stated):
    assert refused(gtid(1), payload(zeros(1024 * MB), stated)).code == "TR414"


def test_a_payload_of_gigabytes_is_read_in_the_memory_of_an_event(tmp_path):
    """MySQL writes such: 84 kB that unpack to 2.2 GB were seen on 9.7."""
    inside = [framing.HEADER.pack(1, framing.ROWS_QUERY, 1, 19 + MB, 0, 0) + bytes(MB)] * 1024
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    data = b"".join([*map(packer.compress, inside), packer.flush()])
    assert len(data) < MB
    assert decoded(gtid(1), payload(data, 1024 * (MB + 19))) == (0, 0)


@pytest.mark.parametrize("size", [0, 18, 1 << 31, 300])
def test_an_event_in_a_payload_leads_nowhere(size):
    inside = framing.HEADER.pack(1, framing.ROWS_QUERY, 1, size, 0, 0) + bytes(200)
    packed = zstandard.ZstdCompressor().compress(inside)
    assert refused(gtid(1), payload(packed, len(inside))).code == "TR414"


def test_rows_of_a_payload_are_handed_on_before_they_are_too_many():
    """Values of a megabyte, of which a block of unpacked events has a few."""
    blob = bytes(MB)
    table = table_map(b"\3\xfc", b"\4", ["a", "b"], (1, b"\0"), (2, b"\x3f"))
    row = rows_event(struct.pack("<BiI", 0, 7, MB) + blob, 2)
    inside = (table[:-4], *[row[:-4]] * 150)
    plain = [framing.HEADER.pack(1, one[4], 1, len(one), 0, 0) + one[19:] for one in inside]
    data = zstandard.ZstdCompressor(level=1).compress(b"".join(plain))
    rows, most = decoded(gtid(1), payload(data, sum(map(len, plain))))
    assert rows == 150
    assert most < 2 * PART_BYTES


@pytest.mark.parametrize("stated", [80, 0xFFFFFFFF, (1 << 30) + 1])
def test_compressed_events_of_mariadb_that_lie(stated):
    text = query(b"")[:-4]
    statement = event(framing.MARIADB_QUERY_COMPRESSED, text[19:] + zipped(128 * MB, stated))
    assert refused(statement, flavor="mariadb").code == "TR405"
    head = struct.pack("<6sHB", b"\1\0\0\0\0\0", 1, 1) + b"\xff"
    rows = event(166, head + zipped(128 * MB, stated))
    assert refused(TINY, rows, flavor="mariadb").code == "TR405"


def test_compressed_data_may_state_any_length():
    for data in (b"\x87" + b"\xff" * 7 + zlib.compress(b""), b"\x80", b"\x87", zipped(256 * MB, 3)):
        with pytest.raises(ValueError, match="compressed data"):
            bounded(lambda data=data: inflate(data), megabytes=64, seconds=5)
    with pytest.raises(ValueError, match="compressed data"):
        inflate_column(b"\x8f" + b"\xff" * 7)


def test_compressed_rows_of_mariadb_become_many_rows():
    """64 MB of rows of two bytes from a few kilobytes."""
    head = struct.pack("<6sHB", b"\1\0\0\0\0\0", 1, 1) + b"\xff"
    rows, most = decoded(TINY, event(166, head + zipped(4 * MB)), flavor="mariadb")
    assert rows == 2 * MB
    assert most < 4 * PART_RECORDS * 100


def test_compressed_columns_of_mariadb_become_large_values():
    """A kilobyte each in the log, a megabyte each behind it."""
    table = table_map(b"\x8c", b"\4", ["a"], (2, b"\x3f"), key=b"")
    packed = zipped(MB)
    image = b"\0" + struct.pack("<I", len(packed)) + packed
    rows, most = decoded(table, rows_event(image * 400), flavor="mariadb")
    assert rows == 400
    assert most < PART_BYTES + 2 * MB


# -- rows and tables ------------------------------------------------------------------------------


def test_a_large_event_of_small_rows_is_decoded_in_portions():
    rows, most = decoded(*BEGIN, TINY, rows_event(b"\0\7" * (2 * MB)), xid())
    assert rows == 2 * MB
    assert most < 4 * PART_RECORDS * 100


@pytest.mark.parametrize("cut", [1, 2, 3, 70_001])
def test_a_large_event_that_ends_within_a_row(cut):
    row = b"\0" + struct.pack("<i", 5)
    table = table_map(b"\3", b"", ["a"], (1, b"\0"))
    data = (row * 40_000)[:-cut] if cut % 5 else row
    assert refused(table, rows_event(data)).code == "TR405"


def columns(count: int) -> bytes:
    return table_map(
        b"\1" * count, b"", [f"c{n}" for n in range(count)], (1, bytes((count + 7) // 8)), key=b""
    )


@pytest.mark.parametrize("count", [0, 5000, 65535])
def test_a_table_with_columns_that_no_server_has(count):
    assert refused(columns(count), rows_event(b"\0" * count, count)).code == "TR405"


def test_a_table_with_as_many_columns_as_there_can_be():
    nulls = bytes((4096 + 7) // 8)
    assert decoded(columns(4096), rows_event((nulls + bytes(4096)) * 3, 4096))[0] == 3


def test_a_table_without_columns_has_no_rows_without_end():
    body = b"\1d\0\1t\0\0\0"
    table = event(framing.TABLE_MAP, b"\1\0\0\0\0\0\1\0" + body)
    rows = event(framing.DELETE_ROWS, b"\1\0\0\0\0\0\1\0\2\0\0" + bytes(50))
    assert refused(table, rows).code == "TR405"


BAD_COLUMNS = {
    "decimal(70,3)": (b"\xf6", b"\x46\3"),
    "decimal(3,5)": (b"\xf6", b"\3\5"),
    "decimal(0,0)": (b"\xf6", b"\0\0"),
    "decimal(255,255)": (b"\xf6", b"\xff\xff"),
    "bit(999)": (b"\x10", b"\xff\xff"),
    "bit(0)": (b"\x10", b"\0\0"),
    "time(200)": (b"\x13", b"\xc8"),
    "datetime(7)": (b"\x12", b"\7"),
    "timestamp(255)": (b"\x11", b"\xff"),
    "blob with a length of 0 bytes": (b"\xfc", b"\0"),
    "blob with a length of 255 bytes": (b"\xfc", b"\xff"),
    "json with a length of 9 bytes": (b"\xf5", b"\x09"),
    "enum of 9 bytes": (b"\xfe", b"\xf7\x09"),
    "set of 5 bytes": (b"\xfe", b"\xf8\5"),
}


@pytest.mark.parametrize(("code", "meta"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_a_column_whose_metadata_no_server_writes(code, meta):
    table = table_map(
        code, meta, ["a"], (1, b"\0"), (2, b"\x3f"), (10, b"\x2d"), (5, b"\0"), (6, b"\0"), key=b""
    )
    assert refused(table, rows_event(bytes(100))).code == "TR405"


@pytest.mark.parametrize(
    "optional",
    [
        (6, b"\xfe" + b"\xff" * 8),
        (6, b"\xfd\0\0\1" + b"\0" * (1 << 16)),
        (6, b"\xfd\xff\xff\0" + bytes(100)),
        (8, b"\0" * MB),
        (8, b"\xfe" + b"\xff" * 8),
        (4, b"\1a\1a"),
        (4, b""),
        (2, b""),
        (2, b"\x2d" * MB),
        (3, b"\xff"),
    ],
    ids=range(10),
)
def test_metadata_without_measure(optional):
    table = table_map(
        b"\xfe\xfe", b"\xf7\1\xf7\1", ["a", "b"], (10, b"\x2d"), (6, b"\1\1x\1\1y"), optional, key=b""
    )
    assert refused(table, rows_event(bytes(20), 2)).code in ("TR403", "TR405")


def test_as_many_members_as_there_can_be():
    members = b"".join(bytes((len(name),)) + name for name in (b"%d" % n for n in range(65_535)))
    table = table_map(b"\xfe", b"\xf7\2", ["a"], (10, b"\x2d"), (6, b"\xfd\xff\xff\0" + members), key=b"")
    assert decoded(table, rows_event(b"\0\1\0\0\2\0"))[0] == 2


def test_texts_that_are_kept_do_not_grow_without_end():
    dates = Temporal.names["PACKED_DATES"]
    for key in range(1 << 19):
        _ = dates[key << 4]
    assert len(dates) <= 1 << 18
    sets = SetTable(Column("a", "set", 248, 8, False, charset="utf8mb4", members=tuple(map(str, range(64)))))
    for bits in range(1 << 17):
        _ = sets[bits << 40]
    assert len(sets) <= 1 << 16


# -- JSON -----------------------------------------------------------------------------------------


def array(items: list[tuple[int, int]], size: int) -> bytes:
    """A small array whose entries are kinds and places."""
    return struct.pack("<HH", len(items), size) + b"".join(struct.pack("<BH", *item) for item in items)


def shared(levels: int, width: int) -> bytes:
    """Arrays whose children are all one array, which again..."""
    inner, size = b"", 4 + 3 * width
    for level in range(levels):
        place = size if level < levels - 1 else 0
        items = [(2, place)] * width if place else [(4, 1)] * width
        inner += array(items, size)
    # Places count from the array that they are in, so each is the next one.
    return b"\2" + inner


def nested(levels: int) -> bytes:
    data = struct.pack("<HH", 0, 4)
    for _ in range(levels - 1):
        data = array([(2, 7)], 7 + len(data)) + data
    return b"\2" + data


READERS = {
    "text": lambda data: json_text(data),
    "tree": lambda data: tree_text(json_tree(data)),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    "document",
    [
        shared(40, 16),
        shared(3, 400),
        b"\2" + array([(12, 4 + 3 * 20_000)] * 20_000, 0) + b"\xfe\x1f" + b"x" * 4000,
        b"\0"
        + struct.pack("<HH", 500, 0)
        + struct.pack("<HH", 4 + 7 * 500, 3000) * 500
        + b"\4\0\0" * 500
        + bytes(3000),
        b"\3" + struct.pack("<II", 0xFFFFFFFF, 8),
        b"\1" + struct.pack("<II", 0xFFFFFF, 8) + bytes(1000),
        b"\x0c" + b"\x80" * 200_000,
        b"\x0f\xfc" + b"\xff" * 200_000,
        b"\x0f\xf6\4" + b"\xff\xff\0\0",
        b"\x0f\xf6\4" + b"\0\0\0\0",
        b"\x0b" + struct.pack("<d", float("inf")),
        b"\2" + array([(2, 0)], 7),
    ],
    ids=range(12),
)
def test_a_document_whose_parts_lie_in_one_place_or_nowhere(read, document):
    with pytest.raises((ValueError, LookupError)):
        bounded(lambda: read(document), megabytes=64, seconds=3)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_document_may_be_as_deep_as_servers_let_it(read):
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    found = bounded(lambda: read(nested(MAX_DEPTH)), megabytes=64, seconds=3)
    assert found in (text, (text.encode(), False))
    for levels in (MAX_DEPTH + 1, 900, 9_000):
        with pytest.raises(ValueError, match="levels"):
            bounded(lambda levels=levels: read(nested(levels)), megabytes=64, seconds=3)


def diff(operation: int, path: str, document: bytes = b"") -> bytes:
    def counted(data: bytes) -> bytes:
        return b"\xfd" + len(data).to_bytes(3, "little") + data

    return bytes((operation,)) + counted(path.encode()) + (counted(document) if operation < 2 else b"")


def test_diffs_do_not_make_a_document_deeper_than_servers_let_it():
    step = nested(60)[:1] + nested(60)[1:]
    path = "$" + "[0]" * 59
    diffs = diff(1, path + "[0]", step) + diff(1, path + "[0]" + "[0]" * 59 + "[0]", step)
    with pytest.raises(ValueError, match="levels"):
        bounded(lambda: json_patched(step, diffs, b"\0", b"\2"), megabytes=64, seconds=3)
    with pytest.raises((ValueError, LookupError)):
        bounded(
            lambda: json_patched(step, diff(0, "$" + "[0]" * 100_000, b"\4\1"), b"\0", b"\2"),
            megabytes=64,
            seconds=5,
        )


def test_many_values_below_a_long_key_are_not_written_out_without_end():
    """Each typed value has its whole path."""
    count, key = 20_000, b"k" * 60_000
    numbers = struct.pack("<II", count, 0)
    place = 8 + 5 * count
    numbers += b"".join(struct.pack("<BI", 10, place) for _ in range(count)) + struct.pack("<Q", 1)
    document = (
        b"\1"
        + struct.pack("<IIIH", 1, 0, 8 + 6 + 5, len(key))
        + struct.pack("<BI", 3, 19 + len(key))
        + key
        + numbers
    )
    with pytest.raises(ValueError, match="characters"):
        bounded(lambda: json_avro(document, b"\0", b"\2"), megabytes=400, seconds=10)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_an_error(data):
    for read in READERS.values():
        try:
            read(data)
        except (ValueError, LookupError, struct.error, DecodeError):
            continue


# -- GTIDs and numbers ----------------------------------------------------------------------------


def test_sets_of_more_intervals_than_there_can_be():
    source = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    text = f"{source}:" + ":".join(map(str, range(1, 4_000_000, 2)))
    with pytest.raises(ValueError, match="intervals"):
        MysqlGtidSet.parse(text)
    for body in (
        struct.pack("<Q", 1) + bytes(16) + struct.pack("<Q", 1 << 61),
        struct.pack("<Q", (1 << 56) - 1),
        struct.pack("<Q", 1) + bytes(16) + struct.pack("<Q", 2_000_000) + bytes(32_000_000),
    ):
        with pytest.raises(ValueError, match="GTID set"):
            bounded(lambda body=body: MysqlGtidSet.decode(body), megabytes=200, seconds=5)
    with pytest.raises(ValueError, match="GTID list"):
        MariadbGtidSet.decode_list(struct.pack("<I", 0x0FFFFFFF))


@pytest.mark.parametrize(
    "bounds", [(0, 5), (-3, 5), (5, 5), (5, 4), (1, 5, 4, 9), (1, 5, 5, 9), (1, (1 << 63) - 1, 5, 6)]
)
def test_intervals_that_no_server_writes(bounds):
    body = struct.pack(f"<Q16sQ{len(bounds)}q", 1, bytes(16), len(bounds) // 2, *bounds)
    with pytest.raises(ValueError, match="not in order"):
        MysqlGtidSet.decode(body)


def test_gtids_out_of_order_are_added_in_time():
    def work() -> int:
        tracker = MysqlGtidTracker()
        for number in range(200_000, 0, -2):
            tracker.add(b"x" * 16, number)
        return tracker.snapshot().count()

    assert bounded(work, megabytes=200, seconds=60) == 100_000


def test_a_number_longer_than_a_long():
    with pytest.raises(ValueError, match="more bytes than a long"):
        bounded(lambda: read_more(b"\x80" * 5_000_000, 1, 0x80), megabytes=64, seconds=2)
    assert read_more(b"\xff" * 9 + b"\1", 1, 0xFF) == ((1 << 64) - 1, 10)


def test_a_payload_without_an_end_of_its_head():
    with pytest.raises((ValueError, LookupError, DecodeError)):
        list(unpacked(b"\1\0" * 100_000))


def test_positions_are_those_of_the_event():
    assert RelayPosition(SUBDIR, FILE, 4).order == (1, 1, 0, 4)


# -- statements -----------------------------------------------------------------------------------


def statements(text: str, flavor: Flavor) -> None:
    """Everything that reads a statement's text."""
    found, session = classify(text, "d", flavor), DdlContext(flavor, "d")
    read_dml(text, "d", flavor)
    verb_on(text, "d", "t", flavor)
    if found.category is Category.DDL:
        known = created("CREATE TABLE t (a INT, b INT)", session)
        ddl_changes(text, found, session, Catalog({("d", "t"): known}, {"d": "utf8mb4"}, complete=True))
    with suppress(ValueError):
        created(text, session)
    with suppress(CannotRename):
        in_lower_case(text, "d", flavor, sql_mode=0)


MANY = range(20_000)
TEXTS = {
    "parentheses": "CREATE TABLE t (a INT DEFAULT " + "(" * 20_000,
    "checks": "CREATE TABLE t (a INT CHECK " + "(" * 20_000 + "1" + ")" * 20_000 + ")",
    "columns": "CREATE TABLE t (" + ",".join(f"c{n} INT" for n in MANY) + ")",
    "keys": "CREATE TABLE t (a INT," + ",".join(f"KEY k{n} (a)" for n in MANY) + ")",
    "unnamed keys": "CREATE TABLE t (a INT" + ",KEY (a)" * 20_000 + ")",
    "new columns": "ALTER TABLE t " + ",".join(f"ADD COLUMN c{n} INT" for n in MANY),
    "new columns in parentheses": "ALTER TABLE t ADD (" + ",".join(f"c{n} INT" for n in MANY) + ")",
    "new keys": "ALTER TABLE t " + ",".join(f"ADD KEY k{n} (a)" for n in MANY),
    "new first columns": "ALTER TABLE t " + ",".join(f"ADD COLUMN c{n} INT FIRST" for n in MANY),
    "the same change": "ALTER TABLE t " + ",".join(["MODIFY a BIGINT FIRST"] * 20_000),
    "the same drop": "ALTER TABLE t " + ",".join(["DROP COLUMN a"] * 20_000),
    "tables": "DROP TABLE " + ",".join(f"t{n}" for n in MANY),
    "renamed tables": "RENAME TABLE " + ",".join(f"a{n} TO b{n}" for n in MANY),
    "members": "CREATE TABLE t (a ENUM(" + ",".join(f"'{n}'" for n in MANY) + "))",
    "partitions": "CREATE TABLE t (a INT) PARTITION BY LIST (a) ("
    + ",".join(f"PARTITION p{n} VALUES IN ({n})" for n in MANY),
    "comments": "CREATE TABLE t (a INT)" + "/* */" * 20_000,
    "executable comments": "CREATE TABLE t (a INT)" + "/*!40000 */" * 20_000,
    "open comments": "CREATE TABLE t (a INT)" + "/*!40000 " * 20_000,
    "comments of another version": "/*!999999 " * 20_000,
    "quotes": "CREATE TABLE t (a INT) COMMENT " + "'" * 20_001,
    "dots": "CREATE TABLE a" + ".a" * 20_000,
    "SET STATEMENT": "SET STATEMENT a=1 FOR " * 20_000 + "DROP TABLE t",
    "joins": "UPDATE t " + " ".join(f"JOIN t{n} ON 1" for n in MANY) + " SET a = 1",
    "joins in parentheses": "UPDATE " + "(" * 20_000 + "t" + ")" * 20_000 + " SET a = 1",
    "queries": "DELETE FROM t WHERE a IN " + "(SELECT " * 20_000,
    "WITH": "WITH " + ",".join(f"a{n} AS (SELECT 1)" for n in MANY) + " DELETE FROM t",
    "a long length": "CREATE TABLE t (a CHAR(" + "9" * 20_000 + "))",
    "blanks": "CREATE" + " " * 500_000 + "TABLE t (a INT)",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_statements_are_read_in_a_time_that_follows_their_length(text):
    bounded(lambda: statements(text, "mariadb"), megabytes=600, seconds=10)


def test_a_statement_that_is_too_long_to_be_read_whole_is_not_understood():
    text = "CREATE TABLE t (a INT)" + ",," * (9 << 20)
    found = bounded(lambda: classify(text, "d", "mysql"), megabytes=100, seconds=5)
    assert (found.category, found.reason[:14]) == (Category.UNKNOWN, "a statement of")


def test_a_statement_of_many_savepoints():
    def savepoint(text: str) -> bytes:
        return query(text.encode())

    row = rows_event(b"\0\7")
    each = [savepoint(f"SAVEPOINT s{n}") for n in range(20_000)]
    back = [savepoint(f"ROLLBACK TO s{n}") for n in range(19_999, 0, -1)]
    assert decoded(*BEGIN, TINY, row, *each, row, *back, xid())[0] == 1


def test_a_member_that_is_there_again_and_again():
    members = b"\1a" * 65_535
    table = table_map(b"\xfe", b"\xf7\2", ["a"], (10, b"\x2d"), (6, b"\xfd\xff\xff\0" + members), key=b"")
    assert refused(table, rows_event(b"\0\1\0")).code == "TR405"

"""Which downstream columns hold which upstream columns, which keys find a row, and what a misfit says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.structure import Column, TableStructure
from spark_consumer.target.compatibility import incompatibilities, may_set
from spark_consumer.target.row_locator import BY_ROW, RowLocator, RowMatch, locator_of
from spark_consumer.target.table import TargetKeyPart, TargetTable, Trigger, UniqueKey
from spark_consumer.target.type_capacity import SqlType, charset_lacks, lacks, parse_type
from tests.support.applying.targets import as_it_is, column, generated, unique
from tests.support.epochs.fake_topic import integer, text

# Each line: what the upstream has, what holds it, and behind the bar what does not.
MATRIX = """
tinyint: tinyint, tinyint(1), bool, smallint, int(11), bigint, decimal(3,0), float, double | tinyint unsigned, bit(8), \
varchar(20), decimal(2,0), int unsigned, enum('1')
tinyint unsigned: tinyint unsigned, tinyint(3) unsigned zerofill, smallint, decimal(3,0) unsigned | tinyint
int: int, integer, bigint, decimal(10,0), decimal(12,2), double | mediumint, int unsigned, float, decimal(9,0)
bigint: bigint, decimal(19,0) | int, bigint unsigned, double, decimal(18,0)
bigint unsigned: bigint unsigned, decimal(20,0), decimal(20,0) unsigned | bigint, int unsigned, double
decimal(10,2): decimal(10,2), decimal(12,4), numeric(10,2) | decimal(10,1), decimal(10,4), decimal(9,2), double, \
decimal(10,2) unsigned, bigint
decimal(5,0): int, decimal(5), double | smallint, decimal(4,0)
decimal(4,0) unsigned: smallint unsigned, smallint, int | tinyint unsigned
float: float, double, double(10,2) | decimal(10,2), float unsigned, int
double: double, real, float(53) | float, decimal(65,30)
year: year, year(4), smallint, int | tinyint, date
bit(8): bit(8), bit(64) | bit(7), bit, tinyint unsigned
date: date, datetime, datetime(6) | timestamp, varchar(10), time
datetime: datetime, datetime(3) | timestamp, date, timestamp(6)
datetime(6): datetime(6) | datetime, datetime(3)
timestamp(3): timestamp(3), timestamp(6), datetime(3) | timestamp, datetime, datetime(2)
time(2): time(2), time(6) | time, datetime(2)
varchar(60): varchar(60), varchar(255), text, longtext | varchar(59), char(60), char(255), tinyblob, varbinary(255), \
json, enum('a')
char(10): char(10), char(20), varchar(10), tinytext | char(9), varchar(9), binary(10)
text: text, mediumtext, longtext, varchar(65535) | tinytext, varchar(16000), blob
tinytext: tinytext, varchar(255), text | varchar(254), char(255)
longtext: longtext, json | mediumtext, longblob
varbinary(20): varbinary(20), varbinary(30), blob, tinyblob | varbinary(19), binary(20), varchar(20)
binary(16): binary(16), varbinary(16), uuid, inet6 | binary(17), binary(15), inet4, char(16)
binary(4): inet4 | inet6
blob: blob, longblob, varbinary(65535) | tinyblob, text, varbinary(100)
json: json, longtext | text, varchar(1000), blob
enum('a','b,c','d''e'): enum('a','b,c','d''e'), enum('x','d''e','b,c','a'), varchar(3), char(3) | enum('a','d''e'), \
set('a','b,c','d''e'), varchar(2), int
set('a','b'): set('b','a','c'), varchar(3) | set('a'), enum('a','b'), varchar(2)
geometry: geometry, point, geomcollection | blob, varbinary(100)
vector: vector(3) | blob
inet6: inet6 | varbinary(16)
"""


def matrix() -> list[tuple[str, str, bool]]:
    found = []
    for line in MATRIX.replace("\\\n", "").strip().splitlines():
        source, _, targets = line.partition(": ")
        for fits, part in zip((True, False), targets.split(" | "), strict=True):
            found += [(source, target.strip(), fits) for target in _types(part)]
    return found


def _types(part: str) -> list[str]:
    """A list of types, some with commas of their own."""
    found, depth = [""], 0
    for letter in part:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


@pytest.mark.parametrize(("source", "target", "fits"), matrix())
def test_a_type_holds_another_or_says_why_not(source: str, target: str, fits: bool) -> None:
    reason = lacks(parse_type(target), parse_type(source))
    assert (not reason) is fits, reason


@pytest.mark.parametrize(
    ("target", "source", "fits"),
    [
        ("utf8mb4", "latin1", True),
        ("utf8mb4", "utf8mb3", True),
        ("utf8mb3", "utf8mb4", False),
        ("utf8", "utf8mb3", True),
        ("utf8mb3", "gbk", True),
        ("utf8mb3", "gb18030", False),
        ("gb18030", "utf8mb4", True),
        ("latin1", "ascii", True),
        ("latin1", "latin2", False),
        ("latin1", "utf8mb3", False),
        ("ucs2", "utf8mb3", True),
        ("ascii", "latin1", False),
    ],
)
def test_a_charset_holds_another_or_not(target: str, source: str, fits: bool) -> None:
    assert (charset_lacks(target, source) == "") is fits
    kinds = [parse_type("varchar(10)", charset) for charset in (target, source)]
    assert (lacks(*kinds) == "") is fits


def test_compressed_columns_and_members_with_backslashes_are_read() -> None:
    assert lacks(parse_type("varchar(60) /*M!100301 COMPRESSED*/"), parse_type("varchar(60)")) == ""
    assert parse_type(r"enum('a\\','it''s')").members == ("a\\", "it's")
    # both servers show some characters escaped, whatever the sql_mode
    assert parse_type(r"enum('/*m*/','-- x','#y','n\nl','\\''')").members == (
        "/*m*/",
        "-- x",
        "#y",
        "n\nl",
        "\\'",
    )
    assert parse_type("set('/*','*/') /* mariadb-5.3 */").members == ("/*", "*/")
    shown = parse_type(r"enum('a\\b','n\nl','it''s')", "utf8mb4")
    member = ("it's", "n\nl", "a\\b")
    assert lacks(shown, SqlType("", "enum", members=member, charset="utf8mb4")) == ""
    assert "lacks the member '日'" in lacks(shown, SqlType("", "enum", members=("日",), charset="utf8mb4"))
    # the binlog's members, as they are
    source = Column("e", "enum('x)','y')", 247, 1, False, charset="utf8mb4", members=("x)", "y"))
    structure = TableStructure("d", "t", (source,))
    assert incompatibilities(structure, as_it_is(structure)) == []


TABLE = TableStructure("d", "t", (integer("id"), text("Name"), integer("v", nullable=True)), ("id",))


def codes(*columns: object, triggers: tuple[Trigger, ...] = ()) -> list[tuple[str, str]]:
    target = TargetTable(("d", "t"), columns, (unique("id"),), triggers=triggers)  # type: ignore[arg-type]
    return [(found.code, found.column) for found in incompatibilities(TABLE, target)]


ID, NAME, V = column("id", null=False), column("name", "varchar(60)", null=False), column("v")


def test_order_extra_columns_and_letters_of_names_do_not_matter() -> None:
    assert codes(V, NAME, column("extra"), column("stamp", null=False, default="0"), generated("g"), ID) == []


def test_each_misfit_has_its_code_and_column() -> None:
    assert codes(ID, NAME) == [("TR606", "v")]
    assert codes(ID, NAME, column("v", "smallint")) == [("TR650", "v")]
    assert codes(ID, NAME, replace(V, nullable=False)) == [("TR651", "v")]
    assert codes(ID, NAME, V, column("extra", null=False)) == [("TR652", "extra")]
    assert codes(column("id", "tinyint"), column("name", "varchar(9)")) == [
        ("TR650", "id"),
        ("TR650", "Name"),
        ("TR606", "v"),
    ]


def test_a_misfit_names_both_types_and_the_remedy() -> None:
    target = TargetTable(("d", "t"), (ID, column("name", "varchar(9) latin1"), V))
    [found] = incompatibilities(TABLE, target)
    assert (
        found.what
        == "column Name is varchar(60) utf8mb4 upstream and varchar(9) latin1 downstream: it is shorter"
    )
    assert found.remedy == "make it varchar(60) utf8mb4 downstream, or wider"


def test_triggers_that_may_change_a_replicated_column_are_found() -> None:
    def trigger(body: str, timing: str = "BEFORE", event: str = "INSERT") -> Trigger:
        return Trigger("tr", timing, event, body)

    assert may_set(trigger("SET NEW.v = 1"), "v")
    assert may_set(trigger("BEGIN SET new . `V`:=OLD.v + 1; END", event="UPDATE"), "v")
    assert may_set(trigger("SELECT a, b INTO @x, NEW.v FROM s"), "v")
    assert not may_set(trigger("SET NEW.extra = NEW.v"), "v")
    assert not may_set(trigger("SET NEW.v2 = 1"), "v")
    assert not may_set(trigger("SET NEW.v = 1", timing="AFTER"), "v")
    assert not may_set(trigger("SET @gone = OLD.v", event="DELETE"), "v")
    assert codes(ID, NAME, V, triggers=(trigger("SET NEW.v = 1"),)) == [("TR653", "v")]


def identity(
    *keys: UniqueKey, merged: bool = False, partial: bool = False, key: tuple[str, ...] = ("id",)
) -> RowLocator:
    structure = replace(TABLE, key=key)
    target = replace(as_it_is(TABLE), columns=(*as_it_is(TABLE).columns, generated("g")), keys=keys)
    return locator_of(structure, target, merged=merged, partial=partial)


def test_a_unique_key_within_the_upstreams_key_finds_a_row_by_it() -> None:
    by_primary = RowLocator(RowMatch.KEY, index="PRIMARY")
    assert identity(unique("id")) == by_primary
    nullable = identity(unique("id", name="u", nullable=True), merged=True)
    assert nullable == RowLocator(RowMatch.KEY, index="u")
    assert identity(unique("v"), unique("id", name="u"), key=("id", "v")) == by_primary
    # unique by its beginning is unique as a whole
    prefix = identity(UniqueKey("p", (TargetKeyPart("name", 3),)), key=("Name",))
    assert prefix == RowLocator(RowMatch.KEY, index="p")


def test_otherwise_a_unique_key_of_the_downstream_does() -> None:
    assert identity(unique("id", "name")) == RowLocator(RowMatch.UNIQUE, ("id", "Name"), "PRIMARY")
    by_name = RowLocator(RowMatch.UNIQUE, ("Name",), "PRIMARY")
    assert identity(unique("name"), merged=True, partial=True) == by_name
    # nothing of these tells rows apart: an expression, NULLs, the downstream's own column, a computed one
    expression = UniqueKey("f", (TargetKeyPart(None),))
    for useless in (expression, unique("v", nullable=True), unique("own"), unique("g")):
        assert identity(useless) == RowLocator(RowMatch.EXACT)
        assert identity(useless, merged=True) == BY_ROW
    # where changes are left out, other columns may be older there than in the log
    assert identity(unique("name"), partial=True) == RowLocator(RowMatch.EXACT)


def test_without_a_key_upstream_the_whole_row_is_compared() -> None:
    assert identity(unique("own"), key=()) == BY_ROW


def test_what_mariadb_adds_for_a_key_by_hash_is_looked_for_nowhere() -> None:
    added = replace(integer("DB_ROW_HASH_1"), sql_type="bigint unsigned", unsigned=True)
    structure = TableStructure("d", "t", (integer("id"), text("v"), added), ("id",))
    assert incompatibilities(structure, as_it_is(replace(structure, columns=structure.columns[:2]))) == []
    [missing] = incompatibilities(structure, as_it_is(replace(structure, columns=structure.columns[::2])))
    assert missing.column == "v"

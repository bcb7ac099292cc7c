"""ENUM and SET: each member has a text of its own on the wire, and is written so that no other is meant downstream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DownstreamError, Where
from schemas.structure import Column, TableStructure, WrittenColumn
from schemas.types.enum_set import ENUM, SET, EnumTable, SetTable, error_value, member_texts
from schemas.varint import read_bytes
from schemas.wire.avro_schema import row_schema
from spark_consumer.apply.prepared import sort_results
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.plan.plan import plan_slice
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.render import render
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.rules import Rules
from spark_consumer.target.members import AmbiguousMembers, written_column
from spark_consumer.target.table import TargetColumn, TargetTable
from spark_consumer.target.type_capacity import SqlType, parse_type
from tests.support.applying.targets import as_it_is, unique
from tests.support.epochs.fake_topic import Change, delete, insert, integer, row_key, row_value, text, update
from tests.support.epochs.records import epoch_record

GENERAL = "utf8mb4_general_ci"


def listed(kind: int, *members: str, name: str = "e", nullable: bool = False) -> Column:
    word = "enum" if kind == ENUM else "set"
    text = ",".join("'" + member.replace("'", "''") + "'" for member in members)
    return Column(name, f"{word}({text})", kind, 1, nullable, charset="utf8mb4", members=members)


def there(column: Column, *members: str, collation: str = GENERAL, base: str = "") -> TargetColumn:
    kind = SqlType("", base or column.base, (60,), members=members or column.members, charset="utf8mb4")
    return TargetColumn(column.name, kind, collation=collation)


def wire(table: EnumTable | SetTable, number: int) -> str:
    return read_bytes(table[number], 0)[0].decode()


@given(st.lists(st.sampled_from(["", "a", "b", "a\0", "\0", "a\0\0"]), min_size=1, max_size=7))
def test_no_two_members_have_one_text_on_the_wire(members: list[str]) -> None:
    column = listed(ENUM, *members)
    texts = [wire(EnumTable(column), n) for n in range(len(members) + 1)]
    assert len(set(texts)) == len(texts)
    assert texts[0] == error_value(column)
    # the first of its text keeps it
    assert all(texts[members.index(member) + 1] == member for member in members)
    bits = [wire(SetTable(listed(SET, *members)), n) for n in range(1 << len(members))]
    assert len(set(bits)) == len(bits)


def test_ordinary_members_are_what_they_were() -> None:
    assert member_texts(listed(ENUM, "b", "a")) == ("b", "a")
    assert wire(SetTable(listed(SET, "b", "a")), 3) == "b,a"
    assert [wire(EnumTable(listed(ENUM, "", "a")), n) for n in range(3)] == ["\0", "", "a"]


@pytest.mark.parametrize(
    ("members", "collation", "by_number"),
    [
        (("a", "b", "it's"), GENERAL, False),
        (("a", "b"), "utf8mb4_0900_ai_ci", False),
        (("a", "A"), GENERAL, True),
        (("a", "A"), "utf8mb4_bin", False),
        (("a", "A"), "utf8mb4_0900_as_cs", False),
        (("é", "ß"), "utf8mb4_bin", False),
        (("é", "e"), GENERAL, True),
        (("ß", "x"), "utf8mb4_unicode_ci", True),
        # there `i` and `y` are one letter
        (("i", "y"), "utf8mb4_lithuanian_ci", True),
        (("a", "b\t"), GENERAL, True),
        (("", "a"), "utf8mb4_bin", True),
        (("a", "a"), "utf8mb4_bin", True),
        (("a", "b"), "binary", True),
    ],
)
@pytest.mark.parametrize("kind", [ENUM, SET])
def test_members_that_a_collation_may_take_for_each_other_are_written_by_number(
    kind: int, members: tuple[str, ...], collation: str, by_number: bool
) -> None:
    column = listed(kind, *members)
    written = written_column(column, there(column, collation=collation))
    assert written == (
        WrittenColumn(**vars(column), numbers=(1, 2, 3)[: len(members)]) if by_number else column
    )


def test_lists_that_differ_are_paired_by_text_while_that_tells_which_is_which() -> None:
    column = listed(ENUM, "A", "b")
    assert written_column(column, there(column, "x", "b", "A")) is column
    # the downstream alone has two members that are equal under its collation
    assert written_column(column, there(column, "a", "b", "A")) == WrittenColumn(
        **vars(column), numbers=(3, 2)
    )
    with pytest.raises(AmbiguousMembers, match="occurs twice: 'A'"):
        written_column(column, there(column, "A", "b", "A"))
    twice = listed(SET, "a", "b", "a")
    with pytest.raises(AmbiguousMembers, match="occurs twice: 'a'"):
        written_column(twice, there(twice, "b", "a", "a"))
    with pytest.raises(AmbiguousMembers, match="two of its members have the same text: 'a'"):
        written_column(twice, there(twice, base="varchar"))
    assert written_column(column, there(column, base="varchar")) == WrittenColumn(**vars(column))


def table(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableStructure:
    return TableStructure("d", "t", (integer("id"), *columns), key)


def sql(
    structure: TableStructure,
    *changes: Change,
    target: TargetTable | None = None,
    safe: bool = False,
    **rules: Any,
) -> list[str]:
    """The statements for changes, against a downstream whose collation is a general one."""
    if target is None:
        plain = as_it_is(structure)
        columns = (replace(c, collation=GENERAL) if c.type.members else c for c in plain.columns)
        target = replace(plain, columns=tuple(columns))
    structures = {row_schema(structure).fingerprint.hex(): structure}
    plan = plan_slice(structures, {("d", "t"): target}, Rules(**rules), Limits(2_000), Where(), safe=safe)
    keys = [row_key(c.structure, c.after or c.before or {}) for c in changes]
    values = [row_value(change, 7, n, "g") for n, change in enumerate(changes)]
    results = list(render(plan, RangeRows(keys, values)))
    writes = sort_results(Slice((LoggedEpoch(epoch_record(7), 0),)), plan, results).writes
    merged = [statement.sql.decode() for _, statement in writes.merged]
    return [*merged, *(text.decode() for one in writes.ordered for text in (one.sql, *one.fallbacks))]


E, S = listed(ENUM, "a", "A", "a"), listed(SET, "a", "A", "", name="s")
BOTH = table(E, S)
ONE, TWO = {"id": 1, "e": "A", "s": "a,A"}, {"id": 1, "e": "a\0", "s": "\0"}
ZERO = {"id": 2, "e": "", "s": ""}


def test_rows_are_written_by_number() -> None:
    assert sql(BOTH, insert(BOTH, ONE), update(BOTH, ONE, TWO), insert(BOTH, ZERO)) == [
        "INSERT INTO `d`.`t` (`id`,`e`,`s`) VALUES (1,3,4),(2,0,0)"
    ]
    assert sql(BOTH, update(BOTH, ONE, TWO), safe=True, compact=False) == [
        "UPDATE `d`.`t` SET `id`=1,`e`=3,`s`=4 WHERE `id`=1 LIMIT 1",
        "INSERT INTO `d`.`t` (`id`,`e`,`s`) VALUES (1,3,4)",
    ]


def test_rows_are_found_by_number_and_never_in_a_list_of_tuples() -> None:
    """MySQL compares an ENUM in a tuple with a number as text."""
    keyed = table(E, S, key=("id", "e", "s"))
    assert sql(keyed, delete(keyed, ZERO), delete(keyed, ONE)) == [
        "DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t`"
        " WHERE (`id`=1 AND `e`=2 AND `s`=3) OR (`id`=2 AND `e`=0 AND `s`=0)"
    ]
    alone = table(E, key=("e",))
    assert sql(alone, delete(alone, ZERO), delete(alone, ONE)) == [
        "DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t` WHERE `e` IN (0,2)"
    ]
    # by a key that only the downstream has
    target = replace(as_it_is(BOTH), keys=(unique("e", "id"),))
    named = replace(BOTH, key=("s",))
    assert sql(named, delete(named, ONE), target=target) == [
        "DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t` WHERE (`e`=2 AND `id`=1)"
    ]
    unkeyed = table(E, S, key=())
    assert sql(unkeyed, delete(unkeyed, TWO), update(unkeyed, ONE, TWO)) == [
        "DELETE FROM `d`.`t` WHERE `id` <=> 1 AND `e` <=> 3 AND `s` <=> 4 LIMIT 1",
        "UPDATE `d`.`t` SET `id`=1,`e`=3,`s`=4 WHERE `id` <=> 1 AND `e` <=> 2 AND `s` <=> 3 LIMIT 1",
    ]


@pytest.mark.parametrize(
    ("collation", "where"),
    [
        ("latin1_swedish_ci", "(`id`=1 AND `v`='x') OR (`id`=2 AND `v`='y')"),
        ("utf8mb3_general_ci", "(`id`,`v`) IN ((1,'x'),(2,'y'))"),
        ("", "(`id`,`v`) IN ((1,'x'),(2,'y'))"),
    ],
)
def test_text_of_other_character_sets_is_never_in_a_list_of_tuples(collation: str, where: str) -> None:
    keyed = table(text("v"), key=("id", "v"))
    plain = as_it_is(keyed)
    target = replace(
        plain, columns=tuple(replace(c, collation=collation if c.name == "v" else "") for c in plain.columns)
    )
    gone = [delete(keyed, {"id": n, "v": v}) for n, v in ((1, "x"), (2, "y"))]
    (found,) = sql(keyed, *gone, target=target)
    assert found == f"DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t` WHERE {where}"


def test_index_0_of_an_ordinary_enum_is_text_in_a_tuple() -> None:
    """Beside text, MySQL and MariaDB do not find the number there."""
    keyed = table(listed(ENUM, "a", "b"), key=("id", "e"))
    gone = [delete(keyed, {"id": n, "e": e}) for n, e in ((2, "b"), (1, ""))]
    assert sql(keyed, *gone) == [
        "DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t` WHERE (`id`,`e`) IN ((1,''),(2,'b'))"
    ]
    assert sql(keyed, insert(keyed, {"id": 1, "e": ""})) == ["INSERT INTO `d`.`t` (`id`,`e`) VALUES (1,0)"]


def test_a_set_of_64_members_is_a_signed_number() -> None:
    many = listed(SET, *(f"{case}{n}" for n in range(32) for case in "xX"))
    keyed = table(many, key=("e",))
    row = {"id": 1, "e": "x0,X31"}
    assert sql(keyed, insert(keyed, row)) == [f"INSERT INTO `d`.`t` (`id`,`e`) VALUES (1,{1 - (1 << 63)})"]
    assert sql(keyed, delete(keyed, row)) == [
        f"DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t` WHERE `e` IN ({1 - (1 << 63)})"
    ]


def test_an_enum_becomes_the_text_that_servers_show_and_is_found_by_its_bytes() -> None:
    unkeyed = table(listed(ENUM, "", "a", "A"), key=())
    plain = as_it_is(unkeyed)
    text = TargetColumn("e", parse_type("varchar(9)", "utf8mb4"), collation=GENERAL)
    target = replace(plain, columns=(plain.columns[0], text))
    rows = [{"id": 1, "e": e} for e in ("\0", "", "A")]
    assert sql(unkeyed, *(insert(unkeyed, row) for row in rows), target=target) == [
        "INSERT INTO `d`.`t` (`id`,`e`) VALUES (1,''),(1,''),(1,'A')"
    ]
    assert sql(unkeyed, delete(unkeyed, rows[2]), target=target) == [
        "DELETE FROM `d`.`t` WHERE `id` <=> 1 AND CAST(CONVERT(`e` USING utf8mb4) AS BINARY) <=>"
        " CAST(CONVERT('A' USING utf8mb4) AS BINARY) LIMIT 1"
    ]


def test_what_cannot_be_told_apart_stops() -> None:
    twice = table(listed(ENUM, "a", "a"))
    target = replace(
        as_it_is(twice), columns=(as_it_is(twice).columns[0], there(twice.columns[1], "a", "a", "b"))
    )
    with pytest.raises(DownstreamError, match=r"TR650.*one member occurs twice: 'a'"):
        sql(twice, insert(twice, {"id": 1, "e": "a"}), target=target)

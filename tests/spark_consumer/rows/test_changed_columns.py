"""Changes in place set only the columns that changed, with the effect of whole rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Where
from schemas.structure import TableStructure
from schemas.wire.avro_schema import AFTER_AT, envelope, read_record, row_schema
from schemas.wire.rows import HEADER_SIZE, widened
from spark_consumer.plan.plan import SlicePlan, plan_slice
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.changed_columns import ChangedRow, divide
from spark_consumer.rows.render import render
from spark_consumer.rows.results import Deletes, InsertedRows, Updates
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.rules import Rules
from spark_consumer.target.table import TargetKeyPart, TargetTable, UniqueKey
from tests.support.applying.targets import column, generated, unique
from tests.support.epochs.fake_topic import (
    Change,
    Image,
    delete,
    insert,
    integer,
    row_key,
    row_value,
    text,
    update,
)

COLUMNS = ("a", "id", "b", "c", "d", "e", "f", "g", "h")
WIDE = TableStructure("d", "t", tuple(integer(name, nullable=name > "f") for name in COLUMNS), ("id",))
TARGET = TargetTable(
    ("d", "t"),
    tuple(replace(column(one.name, null=one.nullable), default_sql=b"0") for one in WIDE.columns),
    (unique("id"),),
)
SCHEMA = fastavro.parse_schema(json.loads(row_schema(WIDE).text))


def plan(
    *structures: TableStructure, target: TargetTable = TARGET, doubtful: bool = True, **more: Any
) -> SlicePlan:
    by_name = {row_schema(one).fingerprint.hex(): one for one in structures or (WIDE,)}
    targets = {("d", "t"): target}
    return plan_slice(
        by_name, targets, Rules(), Limits(2_000), Where(), doubtful=lambda name: doubtful, **more
    )


def records(changes: Sequence[Change]) -> tuple[list[bytes], list[bytes]]:
    keys = [row_key(change.structure, change.after or change.before or {}) for change in changes]
    return keys, [widened(row_value(change, 7, seq, "g")) for seq, change in enumerate(changes)]


def row(id_: int, **values: int | None) -> Image:
    return dict.fromkeys(COLUMNS, 0) | {"id": id_} | values


def changed(*pairs: tuple[Image, Image]) -> list[ChangedRow]:
    keys, values = records([update(WIDE, before, after) for before, after in pairs])
    return [ChangedRow(key, value, value) for key, value in zip(keys, values, strict=True)]


IMAGES = st.fixed_dictionaries(
    {
        name: st.integers(0, 1) if name < "g" else st.sampled_from((None, 0, 1))
        for name in COLUMNS
        if name not in ("id", "b", "c", "d")
    }
)


@given(st.lists(st.tuples(IMAGES, IMAGES), max_size=5))
def test_columns_that_are_left_out_are_as_they_were(pairs: list[tuple[Image, Image]]) -> None:
    before = {id_: row(id_, **old) for id_, (old, _) in enumerate(pairs)}
    after = {id_: row(id_, **new) for id_, (_, new) in enumerate(pairs)}
    [table] = plan().tables
    divided = divide(table, changed(*((before[id_], after[id_]) for id_ in before)))
    made = {}
    for some in divided.some:
        image: Any = envelope(some.plan.structure)["fields"][1]["type"][1]
        schema = fastavro.parse_schema(image)
        assert some.plan.writable == tuple(field["name"] for field in image["fields"])
        for _, value in some.rows:
            found = read_record(schema, value[AFTER_AT + 1 :])
            made[found["id"]] = before[found["id"]] | found
    assert not divided.replaced
    for left in divided.whole:
        found = read_record(SCHEMA, left.last[HEADER_SIZE:])["after"]
        made[found["id"]] = found
    assert made == after


def sql(*changes: Change, of: SlicePlan | None = None) -> list[str]:
    keys, values = records(changes)
    results = list(render(of or plan(), RangeRows(keys, values)))
    assert not any(isinstance(one, Deletes | InsertedRows) for one in results)
    return [one.sql.decode() for one in results if isinstance(one, Updates)]


def test_only_the_key_and_changed_columns_are_set() -> None:
    changes = [update(WIDE, row(n), row(n, e=n)) for n in (300, 4, 5)]
    assert sql(*changes) == [
        "INSERT INTO `d`.`t` (`id`,`e`,`a`,`b`,`c`,`d`,`f`,`g`,`h`) VALUES"
        " (4,4,0,0,0,0,0,NULL,NULL),(5,5,0,0,0,0,0,NULL,NULL),(300,300,0,0,0,0,0,NULL,NULL) AS n"
        " ON DUPLICATE KEY UPDATE `id`=n.`id`,`e`=n.`e`"
    ]


def test_a_single_row_is_an_update() -> None:
    changes = [
        update(WIDE, row(3), row(3, e=5, h=None)),
        update(WIDE, row(3, e=5, h=None), row(3, e=6, h=None)),
    ]
    assert sql(*changes) == ["UPDATE `d`.`t` SET `id`=3,`e`=6,`h`=NULL WHERE `id`=3"]


def test_what_changes_back_is_still_looked_for() -> None:
    changes = [update(WIDE, row(3), row(3, e=5)), update(WIDE, row(3, e=5), row(3))]
    assert sql(*changes) == ["UPDATE `d`.`t` SET `id`=3 WHERE `id`=3"]


def test_a_row_that_comes_back_is_compared_with_the_one_that_went() -> None:
    assert sql(delete(WIDE, row(3, c=7)), insert(WIDE, row(3, c=7, a=2))) == [
        "UPDATE `d`.`t` SET `a`=2,`id`=3 WHERE `id`=3"
    ]


def test_what_the_server_would_do_by_itself_it_does_not_do() -> None:
    columns = list(TARGET.columns)
    columns[-1] = replace(columns[-1], default_sql=None, touched=True)
    columns[-2] = replace(columns[-2], default_sql=b"DEFAULT")
    there = plan(target=replace(TARGET, columns=tuple(columns)))
    [statement] = sql(*(update(WIDE, row(n), row(n, a=n)) for n in (4, 5)), of=there)
    assert "(`a`,`id`,`b`,`c`,`d`,`e`,`f`,`h`) VALUES" in statement
    assert statement.endswith("UPDATE `a`=n.`a`,`id`=n.`id`,`h`=`d`.`t`.`h`")


MANY: Image = dict.fromkeys("abcde", 9)


def test_where_too_much_changes_rows_are_written_as_a_whole() -> None:
    pairs = [(row(n), row(n, a=n + 1)) for n in range(600)] + [
        (row(n), row(n, **MANY)) for n in range(600, 700)
    ]
    [table] = plan().tables
    divided = divide(table, changed(*pairs))
    assert [(some.plan.writable, len(some.rows)) for some in divided.some] == [(("a", "id"), 512)]
    assert len(divided.whole) == 188


def test_columns_that_change_later_do_not_divide_what_is_alike() -> None:
    pairs = [(row(n), row(n, a=n + 1)) for n in range(1024)] + [
        (row(n), row(n, b=1)) for n in range(1024, 2000)
    ]
    [table] = plan().tables
    divided = divide(table, changed(*pairs))
    assert [(some.plan.writable, len(some.rows)) for some in divided.some] == [
        (("a", "id"), 1024),
        (("a", "id", "b"), 976),
    ]
    assert not divided.whole


@pytest.mark.parametrize(
    "made",
    [
        # something depends on the columns that are not named
        plan(
            target=replace(TARGET, definition="CREATE TABLE `t` (`a` int, CONSTRAINT `x` CHECK ((`a` > 1)))")
        ),
        plan(target=replace(TARGET, columns=(*TARGET.columns, generated("z")))),
        # it was refused before, or rows may be missing
        plan(doubtful=False),
        plan(safe=True),
        plan(is_repeat=True),
        plan(incomplete=[("d", "t")]),
        # a row's first whole image may be behind an UPDATE of some columns
        plan(WIDE, replace(WIDE, before_columns=("id",), after_columns=("a", "id"))),
    ],
)
def test_rows_are_written_as_a_whole_where_it_is_not_safe(made: SlicePlan) -> None:
    keys, values = records([update(WIDE, row(n), row(n, e=n)) for n in (300, 4, 5)])
    [whole] = [table for table in made.tables if table.structure.is_full]
    assert whole.unchanged is None
    updates = [one.sql for one in render(made, RangeRows(keys, values)) if isinstance(one, Updates)]
    assert len(updates) == bool(whole.in_place)
    assert all(b"`h`=n.`h`" in text for text in updates)


KEYS = (unique("id"), unique("b", "c", name="u"))
SEVERAL = replace(TARGET, keys=KEYS)


def test_beside_other_unique_keys_only_rows_that_keep_their_values_are_changed_in_place() -> None:
    made = plan(target=SEVERAL)
    changes = [update(WIDE, row(n, b=n), row(n, b=n, e=n)) for n in (300, 4, 5)]
    changes += [update(WIDE, row(7, b=1), row(7, b=2)), update(WIDE, row(8, b=2), row(8, b=1))]
    keys, values = records(changes)
    results = list(render(made, RangeRows(keys, values)))
    [updates] = [one.sql.decode() for one in results if isinstance(one, Updates)]
    is_it = "`id`=IF(`d`.`t`.`id`<=>n.`id` OR EXP(999+LENGTH(n.`id`)),`d`.`t`.`id`,`d`.`t`.`id`)"
    assert updates.startswith("INSERT INTO `d`.`t` (`id`,`b`,`c`,`e`,`a`,`d`,`f`,`g`,`h`) VALUES (4,4,0,4,")
    assert updates.endswith(f" ON DUPLICATE KEY UPDATE {is_it},`b`=n.`b`,`c`=n.`c`,`e`=n.`e`")
    [deletes] = [one for one in results if isinstance(one, Deletes)]
    assert deletes.sql == b"DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t` WHERE `id` IN (7,8)"
    inserted = [one for one in results if isinstance(one, InsertedRows)]
    assert sum(len(one.values) for one in inserted) == 2


@pytest.mark.parametrize("size", [3, 400])
def test_narrow_tables_with_other_unique_keys_are_changed_as_a_whole(size: int) -> None:
    columns = tuple(integer(name) for name in ("a", "b", "x", "y"))
    narrow = TableStructure("d", "t", columns, ("y", "b"))
    there = replace(
        TARGET,
        columns=tuple(column(one.name, null=False) for one in columns),
        keys=(unique("b", "y"), unique("x", name="u")),
    )
    made = plan(narrow, target=there)
    before = {"a": 0, "b": 1, "x": 5}
    after = [before | {"y": n, "a": n, "x": 5 + (n % 3 == 0)} for n in range(1, size)]
    changes = [update(narrow, before | {"y": one["y"]}, one) for one in after]
    keys, values = records(changes)
    results = list(render(made, RangeRows(keys, values)))
    updates = [one for one in results if isinstance(one, Updates)]
    assert sum(one.rows for one in updates) == sum(one["x"] == 5 for one in after)
    is_it = b"`d`.`t`.`y`<=>n.`y` AND `d`.`t`.`b`<=>n.`b` OR EXP(999+LENGTH(n.`b`))"
    is_it = b"`b`=IF(" + is_it + b",`d`.`t`.`b`,`d`.`t`.`b`)"
    assert all(one.sql.endswith(b"`a`=n.`a`," + is_it + b",`x`=n.`x`,`y`=n.`y`") for one in updates)


@pytest.mark.parametrize(
    "made",
    [
        # rows may be missing, or it was refused before, or several connections write
        plan(target=SEVERAL, doubtful=False),
        plan(target=SEVERAL, safe=True),
        plan(target=SEVERAL, is_repeat=True),
        plan(target=SEVERAL, incomplete=[("d", "t")]),
        # an expression, or a generated column, may depend on any column
        plan(target=replace(TARGET, keys=(KEYS[0], UniqueKey("u", (TargetKeyPart(None),))))),
        plan(target=replace(SEVERAL, columns=(*TARGET.columns[:2], generated("b"), *TARGET.columns[3:]))),
        # the images do not say whether a unique value stays
        plan(replace(WIDE, before_columns=("id",)), target=SEVERAL),
    ],
)
def test_beside_other_unique_keys_rows_are_replaced_where_it_is_not_safe(made: SlicePlan) -> None:
    [table] = made.tables
    assert not table.in_place
    assert not table.unique
    assert not table.is_doubtful


def test_a_long_value_that_stays_is_not_sent() -> None:
    few = TableStructure("d", "t", (integer("id"), integer("n"), text("long", length=9000)), ("id",))
    there = replace(
        TARGET,
        columns=(
            column("id", null=False),
            column("n", null=False),
            column("long", "varchar(9000) utf8mb4", null=False),
        ),
    )
    made = plan(few, target=there)
    for size, is_whole in ((100, True), (8000, False)):
        before = {"id": 1, "n": 1, "long": "x" * size}
        changes = [update(few, before | {"id": n}, before | {"id": n, "n": 2}) for n in range(3)]
        [statement] = sql(*changes, of=made)
        assert ("x" * 100 in statement) == is_whole


def test_damage_is_an_error() -> None:
    [table] = plan().tables
    [good] = changed((row(1), row(1, a=1)))
    for last in (good.last[: AFTER_AT + 4], good.last[:AFTER_AT] + b"\0" + good.last[AFTER_AT + 1 :]):
        with pytest.raises((ValueError, LookupError, EOFError)):
            divide(table, [good._replace(last=last)])
    inserted = records([insert(WIDE, row(1))])[1][0]
    with pytest.raises(ValueError, match="no before image"):
        divide(table, [good._replace(first=inserted)])

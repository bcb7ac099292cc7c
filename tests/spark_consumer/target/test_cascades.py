"""Foreign keys that act on a DELETE, as ``information_schema`` tells them."""

from __future__ import annotations

from spark_consumer.target.cascades import cascades_of

CASCADE, SET_NULL = "CASCADE", "SET NULL"


def test_a_parent_is_known_by_its_name_in_any_case_of_letters() -> None:
    row = ("d", "k", "d", "child", SET_NULL, "p", "d", "Parent", "id", "int", "")
    cascades = cascades_of([row])
    assert cascades.has_effect(("D", "PARENT"))
    assert not cascades.has_effect(("d", "child"))
    assert not cascades_of([]).has_effect(("d", "parent"))


def test_the_columns_of_a_key_belong_together() -> None:
    rows = [
        ("d", "k", "d", "child", CASCADE, "x", "d", "parent", "a", "varchar", "utf8mb4"),
        ("d", "k", "d", "child", CASCADE, "y", "d", "parent", "b", "int", None),
        ("d", "k", "d", "other", SET_NULL, "z", "d", "parent", "b", "int", None),
    ]
    first, second = cascades_of(rows).edges["d", "parent"]
    assert (first.child, first.columns, len(first.literals), first.removes) == (
        ("d", "child"),
        ("x", "y"),
        2,
        True,
    )
    assert (second.child, second.columns, second.removes) == (("d", "other"), ("z",), False)

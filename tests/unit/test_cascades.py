"""Which cascades are too deep for MySQL's foreign keys above InnoDB."""

from __future__ import annotations

import pytest

from spark_consumer.cascades import cascades_of

CASCADE, SET_NULL = "CASCADE", "SET NULL"


def edge(name: str, child: str, parent: str, rule: str = CASCADE) -> tuple[str, ...]:
    return ("d", name, "d", child, rule, "p", "d", parent, "id", "int", "")


@pytest.mark.parametrize(
    ("edges", "deep"),
    [
        ([], set()),
        ([edge("1", "b", "a"), edge("2", "c", "b")], set()),
        ([edge("1", "b", "a"), edge("2", "c", "b"), edge("3", "d", "c")], {"a"}),
        ([edge("1", "b", "a"), edge("2", "c", "b"), edge("3", "D", "C", SET_NULL)], {"a"}),
        # What becomes NULL goes no further.
        ([edge("1", "b", "a"), edge("2", "c", "b", SET_NULL), edge("3", "d", "c")], set()),
        ([edge("1", "a", "a")], {"a"}),
        ([edge("1", "a", "a", SET_NULL)], set()),
        ([edge("1", "b", "a"), edge("2", "a", "b")], {"a", "b"}),
        ([edge("1", "b", "a"), edge("2", "b", "b")], {"a", "b"}),
    ],
)
def test_three_levels_or_a_circle_are_too_deep(edges: list[tuple[str, ...]], deep: set[str]) -> None:
    cascades = cascades_of(edges)
    assert {name for name in "abcd" if cascades.deep(("D", name.upper()))} == deep


def test_the_columns_of_a_key_belong_together() -> None:
    rows = [
        ("d", "k", "d", "child", CASCADE, "x", "d", "parent", "a", "varchar", "utf8mb4"),
        ("d", "k", "d", "child", CASCADE, "y", "d", "parent", "b", "int", None),
        ("d", "k", "d", "other", SET_NULL, "z", "d", "parent", "b", "int", None),
    ]
    first, second = cascades_of(rows).edges["d", "parent"]  # type: ignore[arg-type]
    assert (first.child, first.columns, len(first.literals), first.removes) == (
        ("d", "child"),
        ("x", "y"),
        2,
        True,
    )
    assert (second.child, second.columns, second.removes) == (("d", "other"), ("z",), False)

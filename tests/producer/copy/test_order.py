"""Objects come after those that they need."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from producer.copy.order import in_order

_NAMES = st.tuples(st.just("d"), st.sampled_from("abcdefgh"))


@given(st.sets(_NAMES), st.dictionaries(_NAMES, st.sets(_NAMES)))
def test_each_name_once_and_needs_first(names, needs) -> None:
    """Needs of a name that comes later in the alphabet cannot be circles."""
    needs = {name: {one for one in needed if one > name} for name, needed in needs.items()}
    order = in_order(names, needs)
    assert sorted(order) == sorted(names)
    places = {name: place for place, name in enumerate(order)}
    for name in order:
        assert all(places[one] < places[name] for one in needs.get(name, ()) if one in names)


@given(st.sets(_NAMES), st.dictionaries(_NAMES, st.sets(_NAMES)))
def test_circles_are_cut(names, needs) -> None:
    """Each name comes once, in the same order each time."""
    order = in_order(names, needs)
    assert sorted(order) == sorted(names)
    assert order == in_order(sorted(names, reverse=True), needs)


def test_long_chains() -> None:
    """A chain that is longer than Python's stack."""
    names = [("d", f"{i:05}") for i in range(20_000)]
    needs = {name: [after] for name, after in pairwise(names)}
    assert in_order(names, needs) == names[::-1]

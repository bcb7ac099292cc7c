"""GTID sets against a plain model: sets of (source, number), and the last number per domain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gtid.sets import MariadbGtidSet, MysqlGtidSet, gtid_text, parse_gtid_set, source_key

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4d11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCES = [source_key(A), source_key(A, "blue"), source_key(A, "green"), source_key(B)]

# Few sources and small numbers, so that intervals touch, overlap and swallow each other.
members = st.frozensets(st.tuples(st.sampled_from(SOURCES), st.integers(1, 12)))
domains = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(1, 3), st.integers(1, 9)))


def mysql(model: frozenset[tuple[bytes, int]]) -> MysqlGtidSet:
    return MysqlGtidSet.parse(",".join(gtid_text(source, number) for source, number in model))


def mariadb(model: dict[int, tuple[int, int]]) -> MariadbGtidSet:
    return MariadbGtidSet.parse(",".join(f"{d}-{server}-{seq}" for d, (server, seq) in model.items()))


@given(members, members)
def test_mysql_sets_agree_with_sets_of_numbers(left, right):
    assert mysql(left).union(mysql(right)) == mysql(left | right)
    assert mysql(left).minus(mysql(right)) == mysql(left - right)
    assert mysql(left).contains(mysql(right)) == (left >= right)
    assert bool(mysql(left)) == bool(left)
    assert mysql(left).count() == len(left)
    assert (mysql(left) == mysql(right)) == (left == right)


@given(members)
def test_mysql_text_and_binary_forms_come_back_as_the_same_set(model):
    built = mysql(model)
    assert str(MysqlGtidSet.parse(str(built))) == str(built)
    assert MysqlGtidSet.decode(built.encode()) == built
    assert hash(MysqlGtidSet.parse(str(built))) == hash(built)


@given(members, st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 12))))
def test_mysql_tracker_takes_transactions_in_any_order(start, added):
    tracker = mysql(start).tracker()
    for source, number in added:
        tracker.add(source, number)
    assert tracker.snapshot() == mysql(start | frozenset(added))
    for source in SOURCES:
        for number in range(1, 13):
            assert tracker.contains(source, number) == ((source, number) in start | frozenset(added))


@given(members, st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 12), st.integers(0, 8))))
def test_mysql_tracker_takes_runs_of_numbers(start, added):
    tracker, model = mysql(start).tracker(), set(start)
    for source, first, more in added:
        run = {(source, number) for number in range(first, first + more + 1)}
        assert tracker.overlaps(source, first, first + more) == bool(run & model)
        tracker.add_run(source, first, first + more)
        model |= run
        assert tracker.snapshot() == mysql(frozenset(model))


@given(members, members)
def test_mysql_tracker_merges_whole_sets(left, right):
    tracker = mysql(left).tracker()
    tracker.merge(mysql(right))
    assert tracker.snapshot() == mysql(left | right)


@given(domains, domains)
def test_mariadb_sets_agree_with_last_numbers(left, right):
    highest = {d: max(left.get(d, (0, 0))[1], right.get(d, (0, 0))[1]) for d in left.keys() | right.keys()}
    union = mariadb(left).union(mariadb(right))
    assert {d: g.sequence for d, g in union.domains.items()} == highest
    ahead = {d for d in left if left[d][1] > right.get(d, (0, 0))[1]}
    assert set(mariadb(left).minus(mariadb(right)).domains) == ahead
    assert mariadb(right).contains(mariadb(left)) == (not ahead)
    assert MariadbGtidSet.parse(str(mariadb(left))) == mariadb(left)


def test_text_is_canonical():
    messy = f" {B.upper()}:7,\n{A}:3-5:1-2:blue:9:GREEN:1-2:3 , {A}:6"
    assert str(MysqlGtidSet.parse(messy)) == f"{A}:1-6:blue:9:green:1-3,{B}:7"
    assert str(MariadbGtidSet.parse("1-5-7, 0-1-100")) == "0-1-100,1-5-7"


def test_adding_leaves_the_old_value_alone():
    old = MysqlGtidSet.parse(f"{A}:1-5")
    assert str(old.add(f"{A}:6")) == f"{A}:1-6"
    assert str(old) == f"{A}:1-5"
    assert old.contains(f"{A}:2-4")
    assert not old.contains(f"{A}:5-6")
    assert str(MariadbGtidSet.parse("0-1-5").add("0-2-6")) == "0-2-6"


def test_a_tracker_is_independent_of_the_set_it_came_from():
    start = MysqlGtidSet.parse(f"{A}:1-5")
    start.tracker().add(source_key(A), 6)
    assert str(start) == f"{A}:1-5"


@pytest.mark.parametrize(
    ("flavor", "text"),
    [
        ("mysql", "nonsense"),
        ("mysql", A),
        ("mysql", f"{A}:0"),
        ("mysql", f"{A}:1-x"),
        ("mysql", f"{A}:tag!:1"),
        ("mysql", f"{A}:9223372036854775808"),
        ("mysql", "0-1-5"),
        ("mariadb", f"{A}:1"),
        ("mariadb", "0-1"),
        ("mariadb", "4294967296-1-1"),
    ],
)
def test_wrong_text_is_refused(flavor, text):
    with pytest.raises(ValueError, match=r"GTID|UUID|number"):
        parse_gtid_set(text, flavor)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\0\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\x07"])
def test_wrong_binary_form_is_refused(data):
    with pytest.raises(ValueError, match="binary GTID set"):
        MysqlGtidSet.decode(data)

"""Compaction and merging: the net effect of any run of changes equals applying them one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from schemas.wire.avro_schema import OP_AT
from spark_consumer.plan.statements import Limits, delete_head, insert_head, merged, merged_deletes
from spark_consumer.rows.compact import compact, compact_images

Table = dict[bytes, bytes]


def value(op: str, content: int) -> bytes:
    after = b"\0" if op == "d" else b"\2"
    return b"\xc3\x01" + bytes(8) + b"\x02" + op.encode() + after + content.to_bytes(2, "big")


@st.composite
def histories(draw: st.DrawFn) -> tuple[Table, list[tuple[bytes, bytes]]]:
    """A table before, and a log that is possible from there: few keys, so that they collide."""
    keys = [b"a", b"b", b"c"]
    before = {key: value("c", 0) for key in draw(st.sets(st.sampled_from(keys)))}
    present = set(before)
    log: list[tuple[bytes, bytes]] = []
    for content, key in enumerate(draw(st.lists(st.sampled_from(keys), max_size=12)), 1):
        op = draw(st.sampled_from("ud")) if key in present else "c"
        present ^= {key} if op != "u" else set()
        log.append((key, value(op, content)))
    return before, log


def one_by_one(before: Table, log: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    table = {key: content[13:] for key, content in before.items()}
    for key, content in log:
        if content[11:12] == b"d":
            del table[key]
        else:
            table[key] = content[13:]
    return table


@given(histories())
def test_the_net_effect_is_that_of_all_changes(history: tuple[Table, list[tuple[bytes, bytes]]]) -> None:
    before, log = history
    net = compact([key for key, _ in log], [content for _, content in log])
    table = {key: content[13:] for key, content in before.items()}
    for key, _ in net.gone:
        del table[key]  # the row must be there: DELETE is counted
    for key, content in net.written:
        assert key not in table  # and INSERT must not meet one
        table[key] = content[13:]
    assert table == one_by_one(before, log)


@given(histories())
def test_a_key_is_removed_once_and_written_once(history: tuple[Table, list[tuple[bytes, bytes]]]) -> None:
    _, log = history
    net = compact([key for key, _ in log], [content for _, content in log])
    assert len({key for key, _ in net.gone}) == len(net.gone)
    assert len({key for key, _ in net.written}) == len(net.written)


def test_insert_and_delete_in_one_batch_leave_nothing() -> None:
    net = compact([b"a", b"a"], [value("c", 1), value("d", 2)])
    assert (net.gone, net.written) == ([], [])


def test_delete_and_insert_become_a_replacement() -> None:
    net = compact([b"a", b"a"], [value("d", 1), value("c", 2)])
    assert net.gone == [(b"a", value("d", 1))]
    assert net.written == [(b"a", value("c", 2))]


def test_a_row_that_was_inserted_and_changed_has_begun() -> None:
    other = b"\x01" + value("c", 5)[1:]
    keys = [b"a", b"a", b"b", b"c", b"d", b"d", b"e", b"e"]
    values = [value(op, n) for n, op in enumerate("cucudu")]
    net = compact(keys, [*values, other, value("u", 6)])
    assert net.begun == {b"a": value("c", 0)}
    assert [key for key, _ in net.written] == [b"a", b"b", b"c", b"d", b"e"]


@given(st.lists(st.binary(min_size=1, max_size=40)), st.integers(1, 60), st.integers(1, 7))
def test_merging_keeps_every_row_and_its_order(rows: list[bytes], max_bytes: int, max_rows: int) -> None:
    made = list(merged(insert_head(b"`d`.`t`", b"`a`"), rows, b"", Limits(max_rows, max_bytes)))
    assert sum(one.rows for one in made) == len(rows)
    assert all(one.rows <= max_rows for one in made)
    head = len(b"INSERT INTO `d`.`t` (`a`) VALUES ")
    assert b",".join(one.sql[head:] for one in made) == b",".join(rows)


def test_a_row_larger_than_the_limit_is_a_statement() -> None:
    made = list(merged_deletes(delete_head(("d", "t")), b"`a`", [b"1", b"2" * 50, b"3"], Limits(100, 10)))
    assert [one.rows for one in made] == [1, 1, 1]


_IMAGES = st.sampled_from([b"a", b"b", b"c"])
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("c"), _IMAGES, st.none()),
        st.tuples(st.just("d"), st.none(), _IMAGES),
        st.tuples(st.just("u"), _IMAGES, _IMAGES),
    ),
    max_size=40,
)


@given(st.lists(_IMAGES, max_size=20), _CHANGES)
def test_counted_images_give_the_same_rows_as_the_changes_in_order(
    there: list[bytes], changes: list[tuple[str, bytes | None, bytes | None]]
) -> None:
    rows = Counter(there)
    values, images = [], {}
    for number, (op, after, before) in enumerate(changes):
        if before is not None:
            if not rows[before]:
                continue
            rows[before] -= 1
        if after is not None:
            rows[after] += 1
        value = bytes(OP_AT) + op.encode() + b"%d" % number
        values.append(value)
        images[value] = (after, before)
    net = compact_images(values, images.__getitem__)
    made = Counter(there)
    for value, count in net.gone:
        _, before = images[value]
        assert before is not None
        made[before] -= count
        assert made[before] >= 0
    made.update(after for after, _ in map(images.__getitem__, net.written) if after is not None)
    assert +made == +rows

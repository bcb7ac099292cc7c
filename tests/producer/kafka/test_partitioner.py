"""The partition of a key is the one that Java clients choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.kafka.partitioner import _FEW, partitions

# From Kafka's own test of the hash, org.apache.kafka.common.utils.UtilsTest.
_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("copies", [1, _FEW])
def test_known_hashes(copies: int) -> None:
    """Both ways, for few keys and for many, choose as Kafka does."""
    wanted = [(value & 0x7FFFFFFF) % 1009 for value in _HASHES.values()] * copies
    assert partitions(list(_HASHES) * copies, 1009) == wanted


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=30), st.integers(1, 100))
def test_few_and_many_keys(keys: list[bytes], count: int) -> None:
    """A key's partition does not depend on the keys beside it."""
    many = partitions(keys * _FEW, count)
    assert partitions(keys, count) * _FEW == many

"""Kafka's own default partitioner, murmur2 over the key, for a whole batch of keys at once.

The producer has to know each record's partition to name the offset ranges of an epoch, so it cannot leave the
choice to librdkafka; Java clients and librdkafka's ``murmur2_random`` choose the same. Source of the hash:
Kafka's ``org.apache.kafka.common.utils.Utils.murmur2``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)


def partitions(keys: list[bytes], count: int) -> list[int]:
    """For each key its partition of ``count``."""
    if count == 1:
        return [0] * len(keys)
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    hashes = np.empty(len(keys), dtype=np.uint32)
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length)
        same = keys if len(at) == len(keys) else [keys[i] for i in at]
        block = np.frombuffer(b"".join(same), dtype=np.uint8).reshape(len(at), int(length))
        hashes[at] = _murmur2(block)
    result: list[int] = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).tolist()
    return result


def _murmur2(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Hashes of keys of one length, one in each row."""
    length = keys.shape[1]
    h = np.full(keys.shape[0], _SEED ^ np.uint32(length), dtype=np.uint32)
    whole = length // 4
    if whole:
        words = np.ascontiguousarray(keys[:, : whole * 4]).view("<u4")
        for i in range(whole):
            k = words[:, i] * _M
            k ^= k >> _R
            k *= _M
            h *= _M
            h ^= k
    rest = length % 4
    if rest:
        for i in range(rest):
            h ^= keys[:, whole * 4 + i].astype(np.uint32) << np.uint32(8 * i)
        h *= _M
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    return h

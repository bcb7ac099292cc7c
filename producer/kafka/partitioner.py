"""Kafka's own default partitioner, murmur2 over the key, for a whole batch of keys at once.

The producer has to know each record's partition to name the offset ranges of an epoch, so it cannot leave the
choice to librdkafka; Java clients and librdkafka's ``murmur2_random`` choose the same. Source of the hash:
Kafka's ``org.apache.kafka.common.utils.Utils.murmur2``.
"""

from __future__ import annotations

import threading
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import uint8, uint32
    from numpy.typing import NDArray

_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
_UINT32, _POSITIVE = 0xFFFFFFFF, 0x7FFFFFFF
# numpy takes a third of a second to import, and pays from hundreds of keys on.
_FEW = 500
_WORD = Struct("<I").unpack_from


def load_numpy() -> None:
    """Import numpy in a thread, so that the first epoch of many rows does not wait for it."""
    threading.Thread(target=import_module, args=("numpy",), daemon=True).start()


def partitions(keys: list[bytes], count: int) -> list[int]:
    """For each key its partition of ``count``."""
    if count == 1:
        return [0] * len(keys)
    if len(keys) < _FEW:
        return [(_murmur2(key) & _POSITIVE) % count for key in keys]
    return _of_many(keys, count)


def _murmur2(key: bytes) -> int:
    h = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = _WORD(key, at)[0] * _M & _UINT32
        k = (k ^ k >> _R) * _M & _UINT32
        h = h * _M & _UINT32 ^ k
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _UINT32
    h = (h ^ h >> 13) * _M & _UINT32
    return h ^ h >> 15


def _of_many(keys: list[bytes], count: int) -> list[int]:
    import numpy as np

    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    hashes = np.empty(len(keys), dtype=np.uint32)
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length)
        same = keys if len(at) == len(keys) else [keys[i] for i in at]
        block = np.frombuffer(b"".join(same), dtype=np.uint8).reshape(len(at), int(length))
        hashes[at] = _murmur2_of_block(block)
    result: list[int] = ((hashes & np.uint32(_POSITIVE)) % np.uint32(count)).tolist()
    return result


def _murmur2_of_block(keys: NDArray[uint8]) -> NDArray[uint32]:
    """Hashes of keys of one length, one in each row."""
    import numpy as np

    m, length = np.uint32(_M), keys.shape[1]
    h = np.full(keys.shape[0], _SEED ^ length, dtype=np.uint32)
    whole = length // 4
    if whole:
        words = np.ascontiguousarray(keys[:, : whole * 4]).view("<u4")
        for i in range(whole):
            k = words[:, i] * m
            k ^= k >> np.uint32(_R)
            k *= m
            h *= m
            h ^= k
    rest = length % 4
    if rest:
        for i in range(rest):
            h ^= keys[:, whole * 4 + i].astype(np.uint32) << np.uint32(8 * i)
        h *= m
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    return h

"""The hash by which Kafka's own clients find a key's partition: murmur2, seed 0x9747b28c.

Java's clients take the hash's lower 31 bits modulo the number of partitions, and so does every
client that wants its records beside theirs."""

from __future__ import annotations

import struct
from functools import cache, lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
MAX_CACHED_BYTES = 64
_CACHED_KEYS = 16_384
"""Keys come again and again, and a lookup costs a twentieth of the hash."""


def murmur2(key: bytes) -> int:
    """The hash as an unsigned 32-bit number."""
    size = len(key)
    hashed = _SEED ^ size
    for word in _words(size >> 2).unpack_from(key):
        word = (word * _M) & _MASK
        word = ((word ^ (word >> 24)) * _M) & _MASK
        hashed = ((hashed * _M) & _MASK) ^ word
    tail = size & ~3
    if size > tail:
        hashed = ((hashed ^ int.from_bytes(key[tail:], "little")) * _M) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
    return hashed ^ (hashed >> 15)


def partition_of(key: bytes, partition_count: int) -> int:
    """Where Java's default partitioner puts a key."""
    if len(key) <= MAX_CACHED_BYTES:
        return positive_hash(key) % partition_count
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


@lru_cache(maxsize=_CACHED_KEYS)
def positive_hash(key: bytes) -> int:
    """Of a key of at most MAX_CACHED_BYTES."""
    return murmur2(key) & 0x7FFFFFFF


@cache
def _words(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")

"""Murmur2 as Kafka's Java client computes it: what decides a key's partition.

The hash is of 32 bits, seeded with 0x9747b28c and the length, four bytes at a time, little-endian.
Java takes it for signed, clears the sign, and divides by the number of partitions; a client that
differs in one bit sends equal keys to other partitions than everyone else."""

from __future__ import annotations

from struct import unpack_from

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash, signed as in Java."""
    hashed = _unsigned(data)
    return hashed - (1 << 32) if hashed >> 31 else hashed


def positive_hash(key: bytes) -> int:
    """The hash without its sign: what is divided by the number of partitions."""
    return _unsigned(key) & 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where Java's default partitioner puts a record with this key."""
    return (_unsigned(key) & 0x7FFFFFFF) % partition_count


def _unsigned(data: bytes) -> int:
    # Low bits of products and exclusive ors depend on low bits only, so a mask before each shift
    # to the right is enough.
    size = len(data)
    hashed = _SEED ^ size
    rest = size & 3
    for word in unpack_from(f"<{size >> 2}I", data):
        word = word * _M & _MASK
        hashed = (hashed * _M ^ (word ^ word >> 24) * _M) & _MASK
    if rest:
        hashed = (hashed ^ int.from_bytes(data[size - rest :], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15

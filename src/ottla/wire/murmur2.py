"""The murmur2 hash as Kafka's Java client computes it, which determines the partition of a key.

It is a 32-bit hash seeded with 0x9747b28c and the length, over little-endian words of four bytes.
Java treats it as signed, clears the sign bit, and takes the remainder modulo the number of
partitions. A client that computes a single bit differently sends keys to other partitions than
every other client.
"""

from __future__ import annotations

from struct import unpack_from

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash as a signed number, as in Java."""
    hashed = _unsigned(data)
    return hashed - (1 << 32) if hashed >> 31 else hashed


def positive_hash(key: bytes) -> int:
    """Return the hash with its sign bit cleared."""
    return _unsigned(key) & 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition that Java's default partitioner chooses for a key."""
    return (_unsigned(key) & 0x7FFFFFFF) % partition_count


def _unsigned(data: bytes) -> int:
    # The low bits of a product or an exclusive or depend only on low bits, so it is enough to mask
    # before each right shift.
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

"""Mapping of group ids to partitions of the offsets topic: Java's string hash, modulo the count."""

from __future__ import annotations

from functools import lru_cache

_INT_MIN = -(2**31)
MAX_REMEMBERED = 65_536


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: a signed 32-bit hash over the UTF-16 code units."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(encoded), 2):
            unit = encoded[index] << 8 | encoded[index + 1]
            value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@lru_cache(maxsize=MAX_REMEMBERED)
def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of the offsets topic that a group belongs to.

    Like Kafka, this uses the absolute value of the hash, and 0 for the lowest integer, which has no
    absolute value.
    """
    hashed = java_string_hash(group_id)
    return 0 if hashed == _INT_MIN else abs(hashed) % partition_count

"""A map of keys to their latest offsets, in a bounded amount of memory.

This is an open-addressing table with two columns, 16 bytes per slot: a 64-bit fingerprint of the
key, and its latest offset (-1: the slot is free). A dict of the keys would be faster, but take ten
times the memory.

The slot is derived from Python's hash of the key, which is randomly seeded, so that clients cannot
choose keys that collide. The fingerprint combines this hash with the CRC of the key. Two keys are
confused only if both agree: with 5 million keys, about once in 10^12 compactions.

The capacity is that of Kafka's map in the same memory (24 bytes per entry, times the load factor),
so a round covers as much of a log as it does there. The remaining free slots keep probing short.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from ottla.wire.records.crc import crc32c
from ottla.wire.records.record import KeyedRecord

BYTES_PER_ENTRY = 24
BYTES_PER_SLOT = 16
MIN_CAPACITY = 2
NOT_FOUND = -1


class OffsetMap:
    """The latest offset of each key."""

    __slots__ = ("_count", "_fingerprints", "_offsets", "_slots", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float, most_entries: int) -> None:
        """Allocate the table.

        Args:
            memory_bytes: Maximum memory for the table.
            load_factor: Maximum share of the memory to fill with entries.
            most_entries: Upper bound of the number of keys, to allocate no more than needed.
        """
        allowed = int(memory_bytes // BYTES_PER_ENTRY * load_factor)
        self.capacity = max(min(allowed, most_entries), MIN_CAPACITY)
        slots = min(self.capacity * 5 // 3, memory_bytes // BYTES_PER_SLOT)
        self._slots = max(slots, self.capacity + 1) | 1
        self._fingerprints = array("q", [0]) * self._slots
        self._offsets = array("q", [NOT_FOUND]) * self._slots
        self._count = 0
        self.latest_offset = -1
        """Offset up to which all records are in the map."""

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        return self._count / self.capacity

    def put_all(self, records: Iterable[KeyedRecord], start_offset: int) -> bool:
        """Add the offsets of records, which must be in ascending order.

        Returns:
            False if the map was full before the last record; `latest_offset` is then the offset of
            the last record that was added.
        """
        fingerprints, offsets, slots, checksum = (
            self._fingerprints,
            self._offsets,
            self._slots,
            crc32c,
        )
        for offset, _, key, _ in records:
            if key is None or offset < start_offset:
                continue
            if self._count >= self.capacity:
                return False
            hashed = hash(key)
            fingerprint = hashed ^ (checksum(key) << 31)
            slot = hashed % slots
            while offsets[slot] >= 0 and fingerprints[slot] != fingerprint:
                slot = slot + 1 if slot + 1 < slots else 0
            if offsets[slot] < 0:
                fingerprints[slot] = fingerprint
                self._count += 1
            offsets[slot] = offset
            self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the latest offset of `key`, or -1 if it is not in the map."""
        hashed = hash(key)
        fingerprint = hashed ^ (crc32c(key) << 31)
        offsets, slots = self._offsets, self._slots
        slot = hashed % slots
        while (offset := offsets[slot]) >= 0:
            if self._fingerprints[slot] == fingerprint:
                return offset
            slot = slot + 1 if slot + 1 < slots else 0
        return NOT_FOUND

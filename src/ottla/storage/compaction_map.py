"""Which offset is the latest of each key, in a bounded amount of memory.

An open-addressing table of two columns, 16 bytes a slot: a 64-bit fingerprint of the key and its
latest offset (-1: the slot is free). A dict of the keys would be faster and take ten times as much.

The slot comes from Python's hash of the key, which is keyed by chance, so that nobody can choose
keys that collide. The fingerprint adds the key's CRC to it. Two keys are taken for one only if both
agree: with 5 million keys that happens once in some 10^12 compactions.

Capacity is what Kafka's map has in the same memory (24 bytes an entry, times the load factor), so a
round covers as much of a log as it does there; the slots that remain free keep searches short."""

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
    __slots__ = ("_count", "_fingerprints", "_offsets", "_slots", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float, most_entries: int) -> None:
        """`most_entries` is how many there can be at all: no need for more room than that."""
        allowed = int(memory_bytes // BYTES_PER_ENTRY * load_factor)
        self.capacity = max(min(allowed, most_entries), MIN_CAPACITY)
        slots = min(self.capacity * 5 // 3, memory_bytes // BYTES_PER_SLOT)
        self._slots = max(slots, self.capacity + 1) | 1
        self._fingerprints = array("q", [0]) * self._slots
        self._offsets = array("q", [NOT_FOUND]) * self._slots
        self._count = 0
        self.latest_offset = -1
        """Everything up to here is in the map."""

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        return self._count / self.capacity

    def put_all(self, records: Iterable[KeyedRecord], start_offset: int) -> bool:
        """Note the records' offsets, which must grow. False if the map became full before the
        last of them; `latest_offset` then tells how far it got."""
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
        """The latest offset of `key`; -1 if the map has not seen it."""
        hashed = hash(key)
        fingerprint = hashed ^ (crc32c(key) << 31)
        offsets, slots = self._offsets, self._slots
        slot = hashed % slots
        while (offset := offsets[slot]) >= 0:
            if self._fingerprints[slot] == fingerprint:
                return offset
            slot = slot + 1 if slot + 1 < slots else 0
        return NOT_FOUND

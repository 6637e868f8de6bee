"""The state that a partition keeps about its idempotent and transactional producers.

For each producer ID it holds the producer epoch, the last five batches, so that a retry is detected
and answered with the original offset, and the first offset of the open transaction. `check` decides
whether a batch may be appended, `update` records one that was. Recovery calls only `update`.

Snapshots (`<offset>.snapshot`) hold the state just before `offset`, in Kafka's format:

    version i16 (1), crc u32 (CRC-32C of all that follows), count i32, then per producer
    producerId i64, producerEpoch i16, lastSequence i32, lastOffset i64, offsetDelta i32,
    timestamp i64, coordinatorEpoch i32, currentTxnFirstOffset i64 (-1: none)

They are taken when a segment is rolled and at a clean shutdown. A snapshot that is torn or has the
wrong CRC is ignored, because the log contains the same information.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.wire.records.batch import MAX_SEQUENCE, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader
from ottla.wire.records.crc import crc32c

CACHED_BATCHES = 5
"""Batches kept per producer. Producers have at most this many requests in flight."""
NO_EPOCH = -1
NO_TXN = -1

_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1


class MalformedSnapshot(Exception):
    """A snapshot is torn, corrupt or of an unknown version."""


class BatchMetadata(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=CACHED_BATCHES))
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = NO_TXN

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """The producers of one partition."""

    __slots__ = ("_open_txns", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self._open_txns: dict[int, int] = {}
        """Producer ID -> first offset of its open transaction, ordered by offset."""

    # ------------------------------------------------------------------------------- decisions

    def check(self, header: BatchHeader) -> BatchMetadata | None:
        """Decide whether a batch may be appended.

        Returns:
            None if it may be appended, or the original batch if this is a retry.

        Raises:
            KafkaError: The sequence is out of order, or the producer is fenced.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return None  # a new or expired producer may start with any sequence
        if header.producer_epoch < entry.epoch:
            raise _fenced(header, entry)
        if entry.txn_first_offset != NO_TXN and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction; its records must be "
                "transactional",
            )
        first = header.base_sequence
        if first == NO_SEQUENCE:
            return None  # written by a coordinator, which never retries
        if header.producer_epoch > entry.epoch:
            if first != 0 and entry.epoch != NO_EPOCH:
                raise _out_of_order(header, NO_SEQUENCE)
            return None
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first:
                return batch
        last = entry.last_sequence
        if first == (last + 1) & MAX_SEQUENCE:
            return None
        if last != NO_SEQUENCE and _is_at_or_before(last_sequence, last):
            raise KafkaError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent the duplicate sequence number {first}, "
                "which is no longer cached",
            )
        raise _out_of_order(header, last)

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Check that a marker may end the transaction of a producer.

        Repeating the same marker is allowed.

        Raises:
            KafkaError: A newer producer epoch or coordinator epoch is known.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise _fenced(header, entry)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker for producer {header.producer_id} has coordinator epoch "
                f"{coordinator_epoch}, which is older than {entry.coordinator_epoch}",
            )

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the producer has an open transaction in this producer epoch."""
        if producer_id not in self._open_txns:
            return False
        return self.producers[producer_id].epoch == producer_epoch

    # --------------------------------------------------------------------------------- changes

    def update(
        self, header: BatchHeader, base_offset: int, marker: tuple[bool, int] | None = None
    ) -> CompletedTxn | None:
        """Record an appended batch.

        Args:
            header: Header of the batch.
            base_offset: Offset that the batch was assigned.
            marker: For a control batch, (whether it is an abort, coordinator epoch).

        Returns:
            The transaction that a marker completed, or None.
        """
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return None
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        if header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        last_offset = base_offset + header.last_offset_delta
        if header.is_control:
            if marker is None:
                return None
            is_aborted, entry.coordinator_epoch = marker
            first_offset, entry.txn_first_offset = entry.txn_first_offset, NO_TXN
            self._open_txns.pop(producer_id, None)
            if first_offset == NO_TXN:
                return None
            return CompletedTxn(producer_id, first_offset, last_offset, is_aborted)
        entry.batches.append(
            BatchMetadata(
                header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp
            )
        )
        if header.is_transactional and entry.txn_first_offset == NO_TXN:
            entry.txn_first_offset = self._open_txns[producer_id] = base_offset
        return None

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest open transaction. Safe to read from any thread."""
        while True:
            try:
                return next(iter(self._open_txns.values()), None)
            except RuntimeError:
                continue  # a transaction began or ended during the iteration

    def stable_offset_without(self, producer_id: int, end_offset: int) -> int:
        """Return where the oldest open transaction of another producer began, or `end_offset`."""
        others = (first for each, first in self._open_txns.items() if each != producer_id)
        return next(others, end_offset)

    def txn_first_offset(self, producer_id: int) -> int | None:
        """Return the first offset of the open transaction of a producer, or None."""
        return self._open_txns.get(producer_id)

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Remove producers that have been idle too long and have no open transaction."""
        expired = [
            entry.producer_id
            for entry in self.producers.values()
            if entry.txn_first_offset == NO_TXN and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return expired

    def clear(self) -> None:
        self.producers.clear()
        self._open_txns.clear()

    # ------------------------------------------------------------------------------- snapshots

    def encode(self) -> bytes:
        entries = [
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.batches[-1].last_offset if entry.batches else -1,
                entry.batches[-1].offset_delta if entry.batches else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for entry in self.producers.values()
        ]
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        return _PREFIX.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    def restore(self, data: bytes) -> None:
        """Replace the state with that of a snapshot.

        Raises:
            MalformedSnapshot: The snapshot cannot be trusted. The state is empty.
        """
        self.clear()
        body = memoryview(data)[_PREFIX.size :]
        if len(data) < _PREFIX.size + _COUNT.size:
            raise MalformedSnapshot("too short")
        version, crc = _PREFIX.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise MalformedSnapshot(f"unknown version {version}")
        if crc32c(body) != crc:
            raise MalformedSnapshot("wrong CRC")
        (count,) = _COUNT.unpack_from(body)
        if count < 0 or len(body) < _COUNT.size + count * _ENTRY.size:
            raise MalformedSnapshot("too short for its entries")
        for index in range(count):
            self._restore_entry(*_ENTRY.unpack_from(body, _COUNT.size + index * _ENTRY.size))
        self._open_txns = dict(sorted(self._open_txns.items(), key=itemgetter(1)))

    def _restore_entry(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp: int,
        coordinator_epoch: int,
        txn_first_offset: int,
    ) -> None:
        entry = ProducerEntry(producer_id, epoch, last_timestamp=timestamp)
        entry.coordinator_epoch = coordinator_epoch
        if last_offset >= 0:
            entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        if txn_first_offset >= 0:
            entry.txn_first_offset = self._open_txns[producer_id] = txn_first_offset
        self.producers[producer_id] = entry


def _is_at_or_before(sequence: int, last: int) -> bool:
    """Return whether `sequence` is at or before `last`, modulo 2^31."""
    return (last - sequence) & MAX_SEQUENCE < (MAX_SEQUENCE + 1) // 2


def _fenced(header: BatchHeader, entry: ProducerEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} has epoch {header.producer_epoch}, which is older than "
        f"the current epoch {entry.epoch}",
    )


def _out_of_order(header: BatchHeader, last: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"out of order sequence number for producer {header.producer_id} with epoch "
        f"{header.producer_epoch}: {header.base_sequence} (incoming), {last} (last appended)",
    )

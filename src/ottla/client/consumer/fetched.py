"""Data fetched from one partition, decoded batch by batch as it is consumed (pure).

`wire.records.fetched` defines which batches are visible. Its `iter_fetched` decodes a whole fetch
at once; here batches are decoded on demand, and verifying checksums is optional."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.consumer.record import Record
from ottla.client.consumer.subscription import PartitionState
from ottla.client.errors import ClientError, RecordTooLarge
from ottla.wire.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LAST_COMPRESSION,
    MAGIC,
    BatchHeader,
    iter_headers,
    read_header,
    validate,
)
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import BatchError, CorruptBatch, InvalidBatch
from ottla.wire.records.fetched import AbortedProducers, check_offsets
from ottla.wire.records.record import decode_records

_new_tuple = tuple.__new__


class FetchedPartition:
    """Data of one partition in a fetch response, from `next_offset` on, which `advance` moves."""

    __slots__ = (
        "state", "version", "records", "aborted", "next_offset", "next_epoch", "end_offset",
        "at", "is_final",
        "_check_crcs", "_pending", "_pending_at", "_batch_end", "_void",
    )  # fmt: skip

    def __init__(
        self,
        state: PartitionState,
        version: int,
        records: Buffer,
        offset: int,
        aborted: Iterable[tuple[int, int]] | None = None,
        check_crcs: bool = True,
    ) -> None:
        self.state = state
        self.version = version
        self.records = records
        self.aborted = None if aborted is None else tuple(aborted)
        """(producer ID, first offset) of aborted transactions, or None to return all records."""
        self.next_offset = offset
        self.next_epoch = -1
        """Leader epoch of the last record that was consumed."""
        self.end_offset = _end_offset(records, offset)
        """Offset after the last complete batch."""
        self.at = 0
        """Index in `records` at which the next batch starts."""
        self.is_final = False
        """Whether the records are deserialized already."""
        self._check_crcs = check_crcs
        self._pending: list[Record] = []
        self._pending_at = 0
        self._batch_end = offset
        """Offset after the batch whose records are pending."""
        self._void = self._aborted_producers()

    def _aborted_producers(self) -> AbortedProducers | None:
        return None if self.aborted is None else AbortedProducers(self.aborted)

    @classmethod
    def of_records(
        cls, state: PartitionState, version: int, records: list[Record], end: int
    ) -> FetchedPartition:
        """Create an instance from records that were taken but not returned to the user."""
        made = cls(state, version, b"", records[0].offset)
        made.is_final = True
        made._pending = records
        made._batch_end = made.end_offset = end
        return made

    @property
    def is_current(self) -> bool:
        """Whether the partition's position has not been set since this was fetched."""
        return self.state.version == self.version

    @property
    def size(self) -> int:
        """Number of remaining bytes."""
        return len(self.records) - self.at

    @property
    def is_exhausted(self) -> bool:
        return self._pending_at >= len(self._pending) and len(self.records) - self.at < HEADER_SIZE

    def skip_to(self, offset: int) -> None:
        """Skip everything before an offset, because it was consumed as a table."""
        self.next_offset = max(self.next_offset, offset)
        self.at = 0 if offset < self.end_offset else len(self.records)
        self._pending, self._pending_at = [], 0
        self._batch_end = self.next_offset
        self._void = self._aborted_producers()
        self.next_epoch = self._epoch_before(offset)

    def _epoch_before(self, offset: int) -> int:
        for header in iter_headers(self.records):
            if header.next_offset >= offset:
                return header.leader_epoch
        return -1

    def peek(self, limit: int) -> list[Record]:
        """Return the next records: at least one, unless the data is exhausted.

        Raises:
            ClientError: The next batch is corrupt. Each call raises again until the user seeks
                past it.
        """
        while self._pending_at >= len(self._pending):
            if not self._read_batch():
                return []
        at = self._pending_at
        if not at and limit >= len(self._pending):
            return self._pending
        return self._pending[at : at + limit]

    def advance(self, records: list[Record]) -> None:
        """Consume these records, which are all or the first of those that `peek` returned."""
        self._pending_at += len(records)
        self.next_epoch = records[-1].leader_epoch
        if self._pending_at >= len(self._pending):
            self.next_offset = self._batch_end
            self._pending, self._pending_at = [], 0  # the user owns the old list now
            self._skip_unwanted()
        else:
            self.next_offset = records[-1].offset + 1

    def _skip_unwanted(self) -> None:
        """Consume batches without visible records as soon as everything before them is consumed."""
        try:
            while self._pending_at >= len(self._pending) and self._read_batch():
                pass
        except ClientError:
            pass  # the next `peek` raises it

    def _read_batch(self) -> bool:
        """Decode the next batch into `_pending`, which stays empty if the batch is not visible.

        Returns:
            False at the end of the data.
        """
        if len(self.records) - self.at < HEADER_SIZE:
            return False
        try:
            header = read_header(self.records, self.at)
            if HEADER_SIZE <= header.size > len(self.records) - self.at:
                return self._cut_off(header)
            self._check(header)
            found = self._decode(header) if self._is_wanted(header) else []
        except BatchError as error:
            raise self.unreadable(error) from error
        self.at += header.size
        self._pending, self._pending_at = found, 0
        self._batch_end = max(self._batch_end, header.next_offset)
        if not found:
            self.next_offset = self._batch_end
        return True

    def unreadable(self, error: BatchError) -> ClientError:
        tp = self.state.tp
        return ClientError(
            f"{tp}: the data at offset {self.next_offset} is invalid: {error}",
            code=error.code, topic=tp.topic, partition=tp.partition,
        )  # fmt: skip

    def _cut_off(self, header: BatchHeader) -> bool:
        if self.at == 0:
            raise self.too_large(header)
        self.at = len(self.records)
        return False

    def too_large(self, header: BatchHeader) -> RecordTooLarge:
        tp = self.state.tp
        return RecordTooLarge(
            f"{tp}: the batch at offset {header.base_offset} has {header.size} bytes, but the "
            f"broker sent {len(self.records)}: increase max.partition.fetch.bytes",
            topic=tp.topic, partition=tp.partition,
        )  # fmt: skip

    def _check(self, header: BatchHeader) -> None:
        if self._check_crcs:
            validate(self.records, header.position, header)
        elif header.magic != MAGIC or header.size < HEADER_SIZE:
            raise CorruptBatch(f"a batch of {header.size} bytes with magic {header.magic}")
        elif header.attributes & COMPRESSION_MASK > LAST_COMPRESSION:
            raise InvalidBatch(f"unknown compression {header.attributes & COMPRESSION_MASK}")
        check_offsets(header)

    def _is_wanted(self, header: BatchHeader) -> bool:
        return not (
            (self._void is not None and self._void.covers(self.records, header))
            or header.is_control
            or header.last_offset < self.next_offset
        )

    def _decode(self, header: BatchHeader) -> list[Record]:
        found = decode_batch(self.records, header, *self.state.tp)
        if header.base_offset < self.next_offset:
            return [record for record in found if record.offset >= self.next_offset]
        return found


def _end_offset(records: Buffer, offset: int) -> int:
    try:
        for header in iter_headers(records):
            offset = max(offset, header.next_offset)
    except BatchError:
        pass  # the reader of that batch raises it
    return offset


def decode_batch(batch: Buffer, header: BatchHeader, topic: str, partition: int) -> list[Record]:
    """Return the records of the batch at `header.position`. Its checksum was verified before."""
    kind, epoch, new, record = header.timestamp_type, header.leader_epoch, _new_tuple, Record
    return [
        new(record, (topic, partition, offset, time, kind, key, value, headers, epoch))
        for offset, time, key, value, headers in decode_records(batch, header)
    ]

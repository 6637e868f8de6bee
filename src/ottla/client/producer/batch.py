"""Records of one partition that are sent and acknowledged together.

    open     records are encoded into the buffer as they arrive, behind space for the header
    closed   no more records; compressed once, sealed (header and CRC) before each attempt
    done     acknowledged, failed, or split into smaller batches that replace this one

Invariant: the buffer of an open batch is written only under the accumulator's lock, that of a
closed one only by the sender, and never while a connection may still read it: a batch is sealed
again only after its last request was answered or its connection was closed."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from ottla.client.errors import ClientError
from ottla.wire.records.batch import (
    CHECKED_FROM,
    CRC_AT,
    HEADER_SIZE,
    HEADER_STRUCT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    read_header,
    stamp_producer,
)
from ottla.wire.records.builder import encode_record
from ottla.wire.records.compression import NONE, compress
from ottla.wire.records.crc import crc32c
from ottla.wire.records.record import iter_records
from ottla.wire.records.varint import encode_varint

Headers = Sequence[tuple[str, bytes | None]]

MAX_RECORD_OVERHEAD = 36
"""Maximum size of a record without headers, excluding its key and value: length (5 bytes),
attributes (1), timestamp delta (10), offset delta (5), two lengths (5 each), header count (5)."""
MAX_HEADER_OVERHEAD = 10

_TWO_BYTES = 1 << 13
VARINTS = tuple(encode_varint(number) for number in range(_TWO_BYTES))
"""Precomputed varints of all lengths and deltas that take at most two bytes."""
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_callbacks_lock = threading.Lock()
"""Shared by all batches: it is held only briefly, and only if a caller waits for a record."""


class ProducerBatch:
    __slots__ = (
        "topic", "partition", "buffer", "limit", "reserved_bytes", "sent_bytes", "created_s",
        "count", "base_timestamp", "max_timestamp", "attempts", "not_before_s", "was_retried",
        "in_request", "producer_id", "producer_epoch", "base_sequence", "sequence_was_reset",
        "may_be_written", "is_transactional", "sealed", "is_done", "base_offset",
        "append_time_ms", "error", "record_errors", "parts", "last_error", "_callbacks", "_time",
        "_last_timestamp",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, limit: int, reserved_bytes: int, now_s: float
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.buffer = bytearray(HEADER_SIZE)
        self.limit = limit
        """Target size of the buffer in bytes. Only a single record may exceed it."""
        self.reserved_bytes = reserved_bytes
        self.sent_bytes = 0
        """Uncompressed size of the batch, or 0 if it was never sent."""
        self.created_s = now_s
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.attempts = 0
        self.not_before_s = 0.0
        self.was_retried = False
        self.in_request = False
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.sequence_was_reset = False
        """Whether the sequence changed since the batch was last sent."""
        self.may_be_written = False
        """Whether an attempt ended without a response, so that the batch may have been written."""
        self.is_transactional = False
        self.sealed: bytearray | memoryview | None = None
        """The encoded batch as it is sent; None before the first attempt."""
        self.is_done = False
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: BaseException | None = None
        self.record_errors: Mapping[int, BaseException] = {}
        self.parts: list[tuple[int, ProducerBatch]] | None = None
        """Batches that replace this one, each with the index of its first record in this one."""
        self.last_error: ClientError | None = None
        """Error of the last attempt, if the batch is to be retried."""
        self._callbacks: list[tuple[int, Callable[[], None]]] | None = None
        self._time = b""
        self._last_timestamp = -1

    # -------------------------------------------------------------------------------- records

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int
    ) -> int:
        """Encode a record, append it to the buffer and return its index."""
        index = self.count
        if timestamp != self._last_timestamp or not index:
            self._set_time(timestamp)
        if (
            not headers
            and value is not None
            and index < _TWO_BYTES
            and len(value) < _TWO_BYTES
            and (key is None or len(key) < _TWO_BYTES)
        ):  # the common case, and the producer's hottest code path
            if key is None:
                body = b"".join(
                    (self._time, VARINTS[index], _NULL, VARINTS[len(value)], value, _NO_HEADERS)
                )
            else:
                body = b"".join(
                    (
                        self._time, VARINTS[index], VARINTS[len(key)], key, VARINTS[len(value)],
                        value, _NO_HEADERS,
                    )
                )  # fmt: skip
            size = len(body)
            piece = (VARINTS[size] if size < _TWO_BYTES else encode_varint(size)) + body
        else:
            piece = encode_record(index, timestamp - self.base_timestamp, key, value, headers)
        # No call may come between these two statements: a signal handler that raises there would
        # leave the buffer and the count inconsistent.
        self.buffer += piece
        self.count = index + 1
        return index

    def _set_time(self, timestamp: int) -> None:
        """Encode attributes and timestamp once for all records of the same millisecond."""
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self._last_timestamp = timestamp
        self._time = b"\0" + encode_varint(timestamp - self.base_timestamp)

    @property
    def size_bytes(self) -> int:
        return len(self.buffer if self.sealed is None else self.sealed)

    # ------------------------------------------------------------------------ sending

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    def set_producer_state(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = epoch
        self.base_sequence = base_sequence

    def seal(self, codec: int, level: int | None) -> bytearray | memoryview:
        """Return the batch in wire format.

        It is compressed only once, but its header and CRC are rewritten each time, because
        the producer state and the sequence may have changed."""
        if self.sealed is None:
            self.sent_bytes = len(self.buffer)
            if codec != NONE:
                with memoryview(self.buffer) as view:
                    packed = bytearray(HEADER_SIZE)
                    packed += compress(codec, view[HEADER_SIZE:], level)
                self.sealed = packed
            else:
                self.sealed = self.buffer
        sealed = self.sealed
        self.sequence_was_reset = False
        attributes = codec | (TRANSACTIONAL_BIT if self.is_transactional else 0)
        HEADER_STRUCT.pack_into(
            sealed, 0, 0, len(sealed) - LOG_OVERHEAD, -1, MAGIC, 0, attributes, self.count - 1,
            self.base_timestamp, self.max_timestamp, self.producer_id, self.producer_epoch,
            self.base_sequence, self.count,
        )  # fmt: skip
        with memoryview(sealed) as view:
            checksum = crc32c(view[CHECKED_FROM:])
        sealed[CRC_AT : CRC_AT + 4] = checksum.to_bytes(4, "big")
        return sealed

    def split(self) -> list[ProducerBatch]:
        """Split the records into two batches that keep their sequences.

        Callbacks of this batch's records move to the parts."""
        whole = self._uncompressed()
        half = (self.count + 1) // 2
        parts: list[tuple[int, ProducerBatch]] = []
        for index, record in enumerate(iter_records(whole, read_header(whole))):
            if index in (0, half):
                part = ProducerBatch(self.topic, self.partition, 0, 0, self.created_s)
                part.is_transactional = self.is_transactional
                part.may_be_written = self.may_be_written
                parts.append((index, part))
            part.append(record.key, record.value, record.headers, record.timestamp)
        smaller = [part for _, part in parts]
        # The parts share the memory that was reserved for this batch.
        share, rest = divmod(self.reserved_bytes, len(smaller))
        for part in smaller:
            part.reserved_bytes = share
        smaller[0].reserved_bytes += rest
        self.reserved_bytes = 0
        if self.has_sequence:
            for first, part in parts:
                sequence = advance(self.base_sequence, first)
                part.set_producer_state(self.producer_id, self.producer_epoch, sequence)
        self._move_callbacks(parts)
        return smaller

    def _uncompressed(self) -> bytes:
        """Return an uncompressed batch whose records can be read."""
        HEADER_STRUCT.pack_into(
            self.buffer, 0, 0, len(self.buffer) - LOG_OVERHEAD, -1, MAGIC, 0, 0, self.count - 1,
            self.base_timestamp, self.max_timestamp, -1, -1, -1, self.count,
        )  # fmt: skip
        return bytes(self.buffer)

    def _move_callbacks(self, parts: list[tuple[int, ProducerBatch]]) -> None:
        with _callbacks_lock:
            waiting, self._callbacks = self._callbacks or [], None
            self.parts = parts
            self.is_done = True
            for index, callback in waiting:
                part, there = self.part_of(index)
                part._callbacks = [*(part._callbacks or ()), (there, callback)]

    def part_of(self, index: int) -> tuple[ProducerBatch, int]:
        assert self.parts is not None
        position = bisect_right(self.parts, index, key=lambda part: part[0]) - 1
        first, part = self.parts[position]
        return part, index - first

    # ---------------------------------------------------------------------------- completion

    def acknowledge(self, base_offset: int, append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self._finish()

    def fail(
        self, error: BaseException, record_errors: Mapping[int, BaseException] | None = None
    ) -> None:
        self.error = error
        self.record_errors = record_errors or {}
        self._finish()

    def error_of(self, index: int) -> BaseException | None:
        return self.record_errors.get(index, self.error)

    def add_callback(self, index: int, callback: Callable[[], None]) -> bool:
        """Register a callback for the batch's completion.

        Returns:
            False if the batch is complete already; the callback is not called then.
        """
        with _callbacks_lock:
            if self.parts is None:
                if self.is_done:
                    return False
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append((index, callback))
                return True
        part, there = self.part_of(index)
        return part.add_callback(there, callback)

    def _finish(self) -> None:
        with _callbacks_lock:
            waiting, self._callbacks = self._callbacks, None
            self.is_done = True
        self.buffer = bytearray()
        self.sealed = None
        for _, callback in waiting or ():
            callback()


class EncodedBatch(ProducerBatch):
    """Batch of table rows that were encoded and compressed up front.

    The CRC of the records is computed where the batch is made, not by the sender: the records are
    still in the processor's cache, and the event loop stays free."""

    __slots__ = ("_records_crc",)

    def __init__(
        self, topic: str, partition: int, data: memoryview, count: int, now_s: float
    ) -> None:
        super().__init__(topic, partition, len(data), len(data), now_s)
        self.sealed = data
        self.count = count
        self._records_crc = crc32c(data[HEADER_SIZE:])

    def seal(self, codec: int, level: int | None) -> bytearray | memoryview:
        assert self.sealed is not None
        self.sequence_was_reset = False
        stamp_producer(
            self.sealed,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            transactional=self.is_transactional,
            records_crc=self._records_crc,
        )
        return self.sealed

    def _uncompressed(self) -> bytes:
        assert self.sealed is not None
        return bytes(self.sealed)


def record_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound for the encoded size of a record, in bytes."""
    bound = MAX_RECORD_OVERHEAD
    if key is not None:
        bound += len(key)
    if value is not None:
        bound += len(value)
    for name, content in headers:
        bound += MAX_HEADER_OVERHEAD + len(name.encode()) + len(content or b"")
    return bound


def advance(sequence: int, count: int) -> int:
    """Return the sequence `count` records later; 0 follows 2^31-1."""
    return (sequence + count) & 0x7FFFFFFF


def error_of_valid_record(cause: ClientError) -> ClientError:
    """Return the error of a valid record in a rejected batch: brokers append all or nothing."""
    return ClientError(
        f"the record was in a batch that the broker rejected because of other records: {cause}",
        code=cause.code,
        topic=cause.topic,
        partition=cause.partition,
    )

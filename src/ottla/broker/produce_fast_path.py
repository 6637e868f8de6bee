"""A fast path for produce requests that repeat an earlier one, except for its records.

A producer sends the same client ID, acks, timeout, topic and partition in request after request.
Once such a request has been decoded and answered on the ordinary path, the connection remembers
the bytes around its records together with what they mean. A later request with the same bytes is
not decoded: its records go straight to the partition, and the response is one `pack`.

    request  = API key, version | correlation ID | known bytes | size of records | records | tags
    response = size, correlation ID | known bytes | numbers | known bytes

The fast path decides nothing. `core.produce.prepare` validates the batch and the partition appends
it. Any request that would be refused, or whose partition, topic or config has changed since, is
left to the ordinary path, as if the fast path did not exist."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.base.errors import KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.partition import Partition
from ottla.broker.ports import Flushing, HostedPartitions, TimeSource
from ottla.core.produce import prepare
from ottla.wire.compile import MALFORMED, decode_uvarint
from ottla.wire.fast_messages import SUCCESS_FIELDS, produce_response_frame

if TYPE_CHECKING:
    from ottla.wire.messages.produce import (
        PartitionProduceData,
        ProduceRequest,
        ProduceResponseDict,
        TopicProduceData,
    )

MAX_SHAPES = 256
"""Maximum number of partitions remembered per connection."""
MAX_LENGTHS = 4
"""Maximum number of distinct lengths of the known bytes, that is, of topic names."""

_KNOWN_FROM = 8
"""Offset of the known bytes: after the API key, the version and the correlation ID."""
_FIRST_VERSION = 7
"""Older versions must refuse zstd, which only the ordinary path checks."""
_FIRST_FLEXIBLE = 9
_LAST_VERSION = 13
_TAGS = b"\x00\x00\x00"
_unpack_start = struct.Struct(">ii").unpack_from
_unpack_size = struct.Struct(">i").unpack_from


class RequestShape(NamedTuple):
    """The meaning of the known bytes of a request, and the response around its numbers."""

    version: int
    partition: Partition
    partition_index: int
    response: struct.Struct
    response_size: int
    before: bytes
    after: bytes
    with_start_offset: bool


class FastPathPorts(Flushing, HostedPartitions, TimeSource, Protocol):
    """The parts of a broker that the fast path uses."""

    @property
    def partitions_version(self) -> object:
        """Another object whenever a partition or its leader has changed."""


class ProduceFastPath:
    """The request shapes that one connection has sent."""

    __slots__ = ("_broker", "_partitions_version", "_lengths", "_shapes")

    def __init__(self, broker: FastPathPorts) -> None:
        self._broker = broker
        self._partitions_version = broker.partitions_version
        self._shapes: dict[bytes, RequestShape] = {}
        self._lengths: tuple[int, ...] = ()

    def try_append(self, frame: memoryview) -> bytes | None:
        """Append the records of a known request and return the encoded response.

        Returns None, without having appended anything, if the request is unknown or must take the
        ordinary path."""
        version, correlation_id = _unpack_start(frame)
        if version > _LAST_VERSION:  # the upper half is the API key, which is 0 for Produce
            return None
        broker = self._broker
        if self._partitions_version is not broker.partitions_version:
            self._forget()
            return None
        for length in self._lengths:
            shape = self._shapes.get(bytes(frame[_KNOWN_FROM:length]))
            if shape is not None and shape.version == version:
                break
        else:
            return None
        records = _records(frame, length, version)
        if records is None:
            return None
        now_ms = broker.clock.time_ms()
        partition = shape.partition
        log = partition.log
        try:
            batch, header = prepare(records, log.config, now_ms)
            if header.is_transactional:
                return None  # the ordinary path refuses it without a transactional ID
            result = partition.append(batch, header, now_ms)
        except KafkaError:
            return None  # the ordinary path finds the same error and reports it
        if log.wants_flush:
            broker.flusher.request(partition)
        start_offset = (log.log_start_offset,) if shape.with_start_offset else ()
        return shape.response.pack(
            shape.response_size,
            correlation_id,
            shape.before,
            shape.partition_index,
            0,
            result.base_offset,
            -1,
            *start_offset,
            shape.after,
        )

    def learn(
        self,
        frame: memoryview,
        context: RequestContext,
        request: ProduceRequest,
        body: ProduceResponseDict,
    ) -> None:
        """Remember the shape of a request that the ordinary path answered with `body`."""
        broker = self._broker
        if self._partitions_version is not broker.partitions_version:
            self._forget()
        version = context.api_version
        found = _single_success(request, body)
        if found is None or not _FIRST_VERSION <= version <= _LAST_VERSION:
            return
        if request.transactional_id is not None:
            return
        topic, data, records = found
        partition = broker.partitions.get((topic.name, data.index))
        length = _known_length(frame, len(records), version)
        if partition is None or length is None or not _responds_at_once(partition, request.acks):
            return
        if len(self._shapes) >= MAX_SHAPES or len(self._lengths) >= MAX_LENGTHS:
            self._forget()
        key = topic.topic_id if version >= _LAST_VERSION else topic.name
        self._shapes[bytes(frame[_KNOWN_FROM:length])] = _shape(version, partition, data.index, key)
        if length not in self._lengths:
            self._lengths += (length,)

    def _forget(self) -> None:
        self._partitions_version = self._broker.partitions_version
        self._shapes.clear()
        self._lengths = ()


def _responds_at_once(partition: Partition, acks: int) -> bool:
    """Return whether a batch for this partition is answered as soon as it is appended."""
    config = partition.log.config
    return (
        (acks == 1 or (acks == -1 and config.min_insync_replicas <= 1))
        and partition.commits_on_append
        and not partition.needs_records
        and not config.log_append_time
    )


def _single_success(
    request: ProduceRequest, body: ProduceResponseDict
) -> tuple[TopicProduceData, PartitionProduceData, memoryview] | None:
    """Return topic, partition and records of a successful request for exactly one partition."""
    topics = request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        return None
    response = body["responses"][0]["partition_responses"][0]
    if len(response) != SUCCESS_FIELDS or "error_code" in response:
        return None
    data = topics[0].partition_data[0]
    return None if data.records is None else (topics[0], data, data.records)


def _records(frame: memoryview, position: int, version: int) -> memoryview | None:
    """Return the records, if only they and empty tagged fields follow `position`."""
    end = len(frame)
    try:
        if version < _FIRST_FLEXIBLE:
            (size,) = _unpack_size(frame, position)
            start = position + 4
        else:
            size, start = decode_uvarint(frame, position)
            size -= 1
            end -= len(_TAGS)
            if frame[end:] != _TAGS:
                return None
    except MALFORMED:
        return None
    return frame[start:end] if size >= 0 and start + size == end else None


def _known_length(frame: memoryview, records_size: int, version: int) -> int | None:
    """Return the offset of the records' size field, if `_records` can parse them from there."""
    if version < _FIRST_FLEXIBLE:
        length = len(frame) - records_size - 4
    else:
        size_bytes = max(1, ((records_size + 1).bit_length() + 6) // 7)
        length = len(frame) - len(_TAGS) - records_size - size_bytes
    if length <= _KNOWN_FROM or _records(frame, length, version) is None:
        return None
    return length


def _shape(version: int, partition: Partition, index: int, key: str | bytes) -> RequestShape:
    before, after = produce_response_frame(version, key)
    if version >= _FIRST_FLEXIBLE:
        before = b"\x00" + before  # tagged fields of the response header
    with_start_offset = version >= 5
    numbers = "ihqqq" if with_start_offset else "ihqq"
    response = struct.Struct(f">ii{len(before)}s{numbers}{len(after)}s")
    return RequestShape(
        version, partition, index, response, response.size - 4, before, after, with_start_offset
    )

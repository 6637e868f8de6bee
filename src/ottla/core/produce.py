"""What a produced batch must be before it is written, and what it is turned into.

The broker works on batches, not records: `prepare` checks a batch by its header and CRC, which is
all that most topics need. Where the topic asks for more (`needs_records`: compaction needs keys, a
`compression.type` of its own needs another encoding, a limit on the age of records needs their
timestamps) `prepare_records` does it; that costs time in proportion to the records, so the caller
takes it off the event loop."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.config.definition import LONG_MAX
from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import ReadableBuffer
from ottla.wire.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    read_header,
    validate,
    with_append_time,
)
from ottla.wire.records.compression import codec_id
from ottla.wire.records.errors import InvalidBatch
from ottla.wire.records.record import MAX_RECORD_ERRORS, check_records, iter_keys
from ottla.wire.records.rewrite import with_compression

KEEP_PRODUCER_CODEC = "producer"
NO_TIMESTAMP = -1


class PreparedBatch(NamedTuple):
    batch: ReadableBuffer
    header: BatchHeader


def prepare(records: ReadableBuffer | None, config: TopicConfig, now_ms: int) -> PreparedBatch:
    """The one batch that `records` must be, checked, and stamped if the topic uses append time.
    Raises KafkaError; nothing of the batch has been kept then."""
    if records is None or len(records) < HEADER_SIZE:
        raise InvalidBatch("a produce request must hold a record batch for each partition")
    header = read_header(records)
    if header.size > config.max_message_bytes and header.size <= len(records):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    validate(records, 0, header, from_client=True)
    if header.size != len(records):
        raise InvalidBatch("a produce request must hold exactly one batch for each partition")
    if header.size > config.segment_bytes:
        raise _larger_than_a_segment(header, config)
    if config.log_append_time:
        stamped = with_append_time(records, now_ms)
        return PreparedBatch(stamped, read_header(stamped))
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidBatch(
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms after "
            f"the broker's clock ({now_ms})",
            ErrorCode.INVALID_TIMESTAMP,
        )
    return PreparedBatch(records, header)


def _larger_than_a_segment(header: BatchHeader, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch has {header.size} bytes, segment.bytes is {config.segment_bytes}",
    )


def needs_records(config: TopicConfig) -> bool:
    """Whether batches of this topic must be looked into."""
    return (
        config.compact
        or config.compression_type != KEEP_PRODUCER_CODEC
        or config.message_timestamp_before_max_ms < LONG_MAX
    )


def prepare_records(prepared: PreparedBatch, config: TopicConfig, now_ms: int) -> PreparedBatch:
    """Check keys and ages and change the compression, as the topic demands. Raises KafkaError."""
    batch, header = prepared
    if config.compact:
        check_records(batch, header, True)
    if config.message_timestamp_before_max_ms < LONG_MAX and not header.timestamp_type:
        _check_ages(prepared, config, now_ms)
    wanted = config.compression_type
    if wanted == KEEP_PRODUCER_CODEC:
        return prepared
    codec = codec_id(wanted)
    if codec == header.compression:
        return prepared
    level = getattr(config, f"compression_{wanted}_level", None)
    batch = with_compression(batch, codec, level)
    header = read_header(batch)
    if header.size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes after recompression, "
            f"max.message.bytes is {config.max_message_bytes}",
        )
    if header.size > config.segment_bytes:
        raise _larger_than_a_segment(header, config)
    return PreparedBatch(batch, header)


def _check_ages(prepared: PreparedBatch, config: TopicConfig, now_ms: int) -> None:
    oldest = now_ms - config.message_timestamp_before_max_ms
    too_old = [
        (index, f"timestamp {timestamp} is before {oldest}")
        for index, (_, timestamp, _, _) in enumerate(iter_keys(*prepared))
        if timestamp < oldest and timestamp != NO_TIMESTAMP
    ]
    if too_old:
        raise InvalidBatch(
            f"{len(too_old)} records are more than message.timestamp.before.max.ms before the "
            f"broker's clock ({now_ms})",
            ErrorCode.INVALID_TIMESTAMP,
            record_errors=tuple(too_old[:MAX_RECORD_ERRORS]),
        )

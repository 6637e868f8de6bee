"""Validation and conversion of produced batches before they are appended.

The broker works on batches, not on records: `prepare` validates a batch by its header and CRC,
which is all that most topics need. Some topics need more (`needs_records`): compaction requires
keys, a topic-specific `compression.type` requires recompression, and a limit on the age of records
requires their timestamps. `prepare_records` does that. Its cost grows with the number of records,
so the caller runs it outside of the event loop.
"""

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
    """A validated batch and its header."""

    batch: ReadableBuffer
    header: BatchHeader


def prepare(records: ReadableBuffer | None, config: TopicConfig, now_ms: int) -> PreparedBatch:
    """Validate the records of one partition, and set the append time if the topic uses it.

    Args:
        records: The records of the produce request, which must be exactly one batch.
        config: The topic's config.
        now_ms: The broker's current time.

    Returns:
        The batch to append, and its header.

    Raises:
        KafkaError: The batch is malformed, too large, or has an invalid timestamp.
    """
    if records is None or len(records) < HEADER_SIZE:
        raise InvalidBatch("a produce request must contain a record batch for each partition")
    header = read_header(records)
    if header.size > config.max_message_bytes and header.size <= len(records):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    validate(records, 0, header, from_client=True)
    if header.size != len(records):
        raise InvalidBatch(
            "a produce request must contain exactly one record batch for each partition"
        )
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
    """Return whether batches of the topic must go through `prepare_records`."""
    return (
        config.compact
        or config.compression_type != KEEP_PRODUCER_CODEC
        or config.message_timestamp_before_max_ms < LONG_MAX
    )


def prepare_records(prepared: PreparedBatch, config: TopicConfig, now_ms: int) -> PreparedBatch:
    """Check keys and timestamps, and recompress the batch, as the topic requires.

    Args:
        prepared: The result of `prepare`.
        config: The topic's config.
        now_ms: The broker's current time.

    Returns:
        The batch to append, and its header.

    Raises:
        KafkaError: A record is invalid, or the recompressed batch is too large.
    """
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

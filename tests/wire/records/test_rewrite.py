from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.records.strategies import EXAMPLE, codecs, records, timestamps

from ottla.wire.records.batch import BatchHeader, read_header, validate
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression import NAMES, codec_id
from ottla.wire.records.record import BatchRecord, iter_records
from ottla.wire.records.rewrite import (
    emptied,
    retain_records,
    with_compression,
    with_delete_horizon,
)

PRODUCER: dict[str, Any] = {
    "producer_id": 7,
    "producer_epoch": 1,
    "base_sequence": 40,
    "leader_epoch": 3,
}


def checked(batch: bytearray) -> BatchHeader:
    header = read_header(batch)
    assert header.size == len(batch)
    validate(batch, 0, header)
    return header


def identity(header: BatchHeader) -> tuple[int, ...]:
    """Return the header fields that rewriting must never change."""
    return (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.timestamp_type,
        header.max_timestamp,
    )


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_a_batch_can_be_compressed_otherwise(source: str, target: str) -> None:
    batch = build_batch(EXAMPLE, compression=source, **PRODUCER)
    changed = with_compression(batch, target)
    header = checked(changed)
    assert header.compression == codec_id(target)
    assert identity(header) == identity(read_header(batch))
    assert header.record_count == 4
    assert list(iter_records(changed, header)) == EXAMPLE


@given(records(), codecs, timestamps, st.booleans())
def test_a_delete_horizon_leaves_every_record_as_it_was(
    originals: list[BatchRecord], codec: str, horizon: int, append_time: bool
) -> None:
    batch = build_batch(originals, compression=codec, timestamp_type=int(append_time), **PRODUCER)
    before = list(iter_records(batch, read_header(batch)))
    changed = with_delete_horizon(batch, horizon)
    header = checked(changed)
    assert header.delete_horizon == horizon
    assert identity(header) == identity(read_header(batch))
    assert list(iter_records(changed, header)) == before
    assert with_delete_horizon(changed, horizon) == changed


@given(records(), codecs, st.data())
def test_kept_records_keep_their_offsets_and_the_batch_its_span(
    originals: list[BatchRecord], codec: str, data: st.DataObject
) -> None:
    batch = build_batch(originals, base_offset=50, compression=codec, **PRODUCER)
    first = read_header(batch)
    kept = data.draw(st.sets(st.integers(50, first.last_offset)))
    changed = retain_records(batch, first, kept)
    header = checked(changed)
    expected = [r for r in iter_records(batch, first) if r.offset in kept]
    assert list(iter_records(changed, header)) == expected
    assert (header.base_offset, header.last_offset) == (50, first.last_offset)
    assert header.record_count == len(expected)
    if expected:
        assert header.max_timestamp == max(record.timestamp for record in expected)
        assert header.compression == codec_id(codec)


def test_records_are_kept_from_a_batch_in_the_midst_of_a_buffer() -> None:
    buffer = build_batch(EXAMPLE) + build_batch(EXAMPLE, base_offset=4)
    second = read_header(buffer, len(buffer) // 2)
    changed = retain_records(memoryview(buffer), second, {5, 6}, delete_horizon=1)
    header = checked(changed)
    assert header.delete_horizon == 1
    assert [r.value for r in iter_records(changed, header)] == [EXAMPLE[1].value, None]


def test_keeping_everything_changes_nothing() -> None:
    batch = build_batch(EXAMPLE, **PRODUCER)
    assert retain_records(batch, read_header(batch), range(4)) == batch


def test_an_emptied_batch_still_knows_its_offsets_and_its_producer() -> None:
    batch = build_batch(EXAMPLE, compression="gzip", delete_horizon=5, **PRODUCER)
    first = read_header(batch)
    for changed in (emptied(batch, first), retain_records(batch, first, ())):
        header = checked(changed)
        assert identity(header) == identity(first)
        assert header.last_sequence == 43
        assert (header.size, header.record_count, header.compression) == (61, 0, 0)
        assert (header.base_timestamp, header.delete_horizon) == (-1, None)
        assert list(iter_records(changed, header)) == []

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import ClientError
from ottla.client.producer.batch import Headers, ProducerBatch, record_bound
from ottla.client.producer.future import RecordFuture
from ottla.wire.records.batch import read_header, validate
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression import NAMES
from ottla.wire.records.record import iter_records

Fields = tuple[bytes | None, bytes | None, Headers, int]

fields = st.tuples(
    st.none() | st.binary(max_size=70),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3),
    st.integers(0, 1 << 45),
)


def filled(records: list[Fields]) -> ProducerBatch:
    batch = ProducerBatch("t", 0, 1 << 20, 100, 0.0)
    for record in records:
        batch.append(*record)
    return batch


@given(st.lists(fields, min_size=1, max_size=20))
def test_records_are_encoded_as_the_plain_builder_does(records: list[Fields]) -> None:
    batch = filled(records)
    batch.set_producer_state(5, 2, 7)
    plain = build_batch(
        [(key, value, headers, timestamp) for key, value, headers, timestamp in records],
        producer_id=5, producer_epoch=2, base_sequence=7,
    )  # fmt: skip
    assert bytes(batch.seal(0, None)) == plain


@given(fields)
def test_no_record_takes_more_than_its_bound(record: Fields) -> None:
    batch = filled([(None, None, (), 0)])
    before = batch.size_bytes
    batch.append(*record)
    key, value, headers, _ = record
    assert batch.size_bytes - before <= record_bound(key, value, headers)


@pytest.mark.parametrize("codec", range(len(NAMES)))
def test_a_batch_is_sealed_again_with_another_sequence(codec: int) -> None:
    batch = filled([(b"k", b"v" * 100, (), 1000 + number) for number in range(300)])
    for sequence in (3, 9):
        batch.set_producer_state(1, 0, sequence)
        sealed = bytes(batch.seal(codec, None))
        header = read_header(sealed)
        validate(sealed, 0, header)
        assert (header.base_sequence, header.record_count, header.compression) == (
            sequence, 300, codec
        )  # fmt: skip
        assert len(list(iter_records(sealed, header))) == 300


@given(st.lists(fields, min_size=2, max_size=20), st.integers(70, 400))
def test_a_batch_is_split_without_a_change_to_its_records(
    records: list[Fields], limit: int
) -> None:
    batch = filled(records)
    batch.set_producer_state(1, 0, 0x7FFFFFFF)
    handles = [RecordFuture(batch, index, record[3]) for index, record in enumerate(records)]
    called: list[RecordFuture] = []
    handles[-1].add_done_callback(called.append)
    parts = batch.split()
    assert sum(part.reserved_bytes for part in parts) == 100
    assert [part.count for part in parts] == [(len(records) + 1) // 2, len(records) // 2]
    found = []
    sequence = 0x7FFFFFFF
    for part in parts:
        assert part.base_sequence == sequence
        sequence = (sequence + part.count) % (1 << 31)
        sealed = bytes(part.seal(0, None))
        found += list(iter_records(sealed, read_header(sealed)))
    assert [(each.key, each.value, list(each.headers), each.timestamp) for each in found] == records
    assert not any(handle.done() for handle in handles)
    offset = 100
    for part in parts:
        part.acknowledge(offset, -1)
        offset += part.count
    assert [handle.exception(0) for handle in handles] == [None] * len(handles)
    assert [handle.result(0).offset for handle in handles] == list(range(100, offset))
    assert called == [handles[-1]]


def test_the_failure_of_a_part_is_that_of_its_records() -> None:
    batch = filled([(None, b"", (), 0)] * 2)
    waiting = [RecordFuture(batch, index, 0) for index in range(2)]
    first, second = batch.split()
    first.acknowledge(0, -1)
    second.fail(ClientError("second"))
    assert waiting[0].exception(0) is None
    assert str(waiting[1].exception(0)) == "second"


def test_single_records_of_a_failed_batch_have_their_own_errors() -> None:
    batch = filled([(None, b"", (), 0)] * 3)
    batch.fail(ClientError("all"), {1: ClientError("one")})
    errors = [str(RecordFuture(batch, index, 0).exception(0)) for index in range(3)]
    assert errors == ["all", "one", "all"]


def test_a_callback_that_raises_does_not_keep_others_from_being_called() -> None:
    batch = filled([(None, b"", (), 0)])
    called: list[RecordFuture] = []
    future = RecordFuture(batch, 0, 0)
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(called.append)
    batch.acknowledge(0, -1)
    future.add_done_callback(called.append)
    assert called == [future, future]

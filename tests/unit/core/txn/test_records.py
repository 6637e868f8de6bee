"""Tests of the record format of the transaction topic."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.core.txn.records import (
    Transaction,
    TransactionRecord,
    TransactionState,
    decode_record,
    encode_record,
)

EMPTY = Transaction(7, 3, 60_000, TransactionState.EMPTY, frozenset(), 1_000)
KEY = struct.pack(">hh", 0, 2) + b"id"


def test_a_key_is_a_version_and_the_transactional_id() -> None:
    key, value = encode_record(TransactionRecord("id", None))
    assert (key, value) == (KEY, None)
    assert decode_record(key, value) == TransactionRecord("id", None)


def test_a_value_has_the_fields_in_kafka_s_order() -> None:
    _, value = encode_record(TransactionRecord("id", EMPTY))
    expected = struct.pack(">hqhib", 1, 7, 3, 60_000, 0) + b"\x00"
    assert value == expected + struct.pack(">qq", 1_000, -1) + b"\x00"


def test_partitions_are_grouped_by_topic_and_tagged_fields_are_reported_if_they_are_set() -> None:
    partitions = frozenset(TopicPartition(*each) for each in (("b", 1), ("a", 2), ("b", 0)))
    ongoing = Transaction(
        7, 3, 60_000, TransactionState.PREPARE_COMMIT, partitions, 1_000, 900, 6, 8, 2
    )
    _, value = encode_record(TransactionRecord("id", ongoing))
    expected = struct.pack(">hqhib", 1, 7, 3, 60_000, 2)
    expected += b"\x03" + b"\x02a\x02" + struct.pack(">i", 2) + b"\x00"
    expected += b"\x02b\x03" + struct.pack(">ii", 0, 1) + b"\x00"
    expected += struct.pack(">qq", 1_000, 900) + b"\x03"
    expected += b"\x00\x08" + struct.pack(">q", 6) + b"\x01\x08" + struct.pack(">q", 8)
    expected += b"\x02\x02" + struct.pack(">h", 2)
    assert value == expected


def test_version_0_is_read_too() -> None:
    head = struct.pack(">hqhib", 0, 7, 3, 60_000, 1)
    partitions = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iii", 2, 0, 4)
    value = head + partitions + struct.pack(">qq", 1_000, 900)
    record = decode_record(KEY, value)
    assert record is not None
    expected = frozenset({TopicPartition("t", 0), TopicPartition("t", 4)})
    assert record.value == Transaction(7, 3, 60_000, TransactionState.ONGOING, expected, 1_000, 900)
    null = head[:-1] + b"\x00" + struct.pack(">i", -1) + struct.pack(">qq", 1_000, -1)
    record = decode_record(KEY, null)
    assert record is not None
    assert record.value == EMPTY


def test_a_key_of_another_version_is_left_alone() -> None:
    assert decode_record(struct.pack(">hh", 1, 2) + b"id", None) is None


@given(st.binary(max_size=80))
def test_what_is_not_a_record_is_refused_in_words(data: bytes) -> None:
    for key, value in ((data, None), (KEY, data), (KEY, b"\x00\x01" + data)):
        try:
            decode_record(key, value)
        except ValueError:
            pass


@pytest.mark.parametrize("size", range(2, 35))
def test_a_value_that_ends_too_early_is_refused(size: int) -> None:
    _, value = encode_record(TransactionRecord("id", EMPTY))
    assert value is not None
    with pytest.raises(ValueError, match=r"ends too early|does not fit"):
        decode_record(KEY, value[:size])


PARTITIONS = st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 99))
TRANSACTIONS = st.builds(
    Transaction,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(list(TransactionState)[1:]),
    partitions=st.frozensets(PARTITIONS, max_size=8),
    last_update_ms=st.integers(0, 2**63 - 1),
    start_ms=st.integers(-1, 2**63 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    client_version=st.sampled_from([0, 1, 2]),
    last_producer_epoch=st.just(-1),
)


@given(st.text(max_size=20), TRANSACTIONS)
def test_what_is_written_is_read_again(transactional_id: str, value: Transaction) -> None:
    record = TransactionRecord(transactional_id, value)
    assert decode_record(*encode_record(record)) == record

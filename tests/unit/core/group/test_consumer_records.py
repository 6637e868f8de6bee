"""Tests that consumer group records have the same bytes as those of Apache Kafka 4.3."""

from __future__ import annotations

import pytest

from ottla.core.group.consumer_records import (
    ClassicMetadata,
    ConsumerRecord,
    CurrentAssignment,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberMetadata,
    MemberRecord,
    MemberState,
    PatternRecord,
    ResolvedPattern,
    SubscriptionMetadataRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from ottla.core.group.records import decode_record, encode_record

TOPIC = bytes.fromhex("01020304050607081112131415161718")
MEMBER = MemberMetadata("i", None, "c", "/h", ("a", "b"), "x.*", 300_000, "range")
CLASSIC = MemberMetadata(
    None, "r", "c", "/h", (), None, 300_000, None, ClassicMetadata(45_000, (("range", b"\1\2\3"),))
)
CURRENT = CurrentAssignment(
    4, 3, MemberState.UNREVOKED_PARTITIONS, {TOPIC: frozenset({0})}, {TOPIC: frozenset({1, 2})}
)

WRITTEN_BY_KAFKA: list[tuple[ConsumerRecord, str, str]] = [
    (
        GroupEpochRecord("g", GroupEpoch(5, 123456789)),
        "0003000167",
        "00000000000501000800000000075bcd15",
    ),
    (
        MemberRecord("g", "m", MEMBER),
        "000500016700016d",
        "00000269000263032f68030261026204782e2a000493e00672616e676501000100",
    ),
    (
        MemberRecord("g", "m", CLASSIC),
        "000500016700016d",
        "00000002720263032f680100000493e000010012010000afc8020672616e6765040102030000",
    ),
    (
        TargetEpochRecord("g", TargetEpoch(4, 1_700_000_000_000)),
        "0006000167",
        "0000000000040100080000018bcfe56800",
    ),
    (
        TargetRecord("g", "m", {TOPIC: frozenset({0, 1, 300})}),
        "000700016700016d",
        "000002010203040506070811121314151617180400000000000000010000012c0000",
    ),
    (
        CurrentRecord("g", "m", CURRENT),
        "000800016700016d",
        "0000000000040000000301020102030405060708111213141516171802000000000002010203040506070811"
        "121314151617180300000001000000020000",
    ),
    (
        PatternRecord("g", "x.*", ResolvedPattern(("xa", "xb"), 7, 1_700_000_000_000)),
        "00100001670003782e2a",
        "00000303786103786200000000000000070000018bcfe5680000",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN_BY_KAFKA)
def test_records_are_those_that_kafka_writes(record: ConsumerRecord, key: str, value: str) -> None:
    encoded = encode_record(record)
    assert (encoded[0].hex(), (encoded[1] or b"").hex()) == (key, value)
    assert decode_record(*encoded) == record


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN_BY_KAFKA)
def test_tombstones_have_the_key_alone(record: ConsumerRecord, key: str, value: str) -> None:
    tombstone = record._replace(value=None)
    assert encode_record(tombstone) == (bytes.fromhex(key), None)
    assert decode_record(bytes.fromhex(key), None) == tombstone


def test_since_when_partitions_are_assigned_is_read_over() -> None:
    data = (
        "000000000004000000030002010203040506070811121314151617180300000000000000070100090300000003"
        "000000040100"
    )
    record = decode_record(bytes.fromhex("000800016700016d"), bytes.fromhex(data))
    expected = CurrentAssignment(4, 3, MemberState.STABLE, {TOPIC: frozenset({0, 7})}, {})
    assert record == CurrentRecord("g", "m", expected)


def test_metadata_of_subscriptions_as_kafka_4_0_kept_it_is_known() -> None:
    key = bytes.fromhex("0004000167")
    assert decode_record(key, b"\0\0\1\0") == SubscriptionMetadataRecord("g", b"\0\0\1\0")
    assert encode_record(SubscriptionMetadataRecord("g", None)) == (key, None)


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN_BY_KAFKA)
def test_records_that_end_too_early_are_refused(
    record: ConsumerRecord, key: str, value: str
) -> None:
    whole = bytes.fromhex(value)
    for size in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            decode_record(bytes.fromhex(key), whole[:size])

"""Tests that group records have the bytes that Apache Kafka 4.3.1 wrote for the same values."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.group.hashing import java_string_hash, partition_for
from ottla.core.group.records import (
    CommittedOffset,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetRecord,
    decode_group,
    decode_offset,
    decode_record,
    encode_group,
    encode_offset,
    encode_record,
)

TOPIC_ID = bytes(range(1, 17))
OFFSET = CommittedOffset(1234567890123, 5, "méta", 1_700_000_000_000, -1, TOPIC_ID)
OFFSETS = {
    0: "00000000011f71fb04cb00056dc3a974610000018bcfe56800",
    1: "00010000011f71fb04cb00056dc3a974610000018bcfe568000000018bcfe58f0f",
    2: "00020000011f71fb04cb00056dc3a974610000018bcfe56800",
    3: "00030000011f71fb04cb0000000500056dc3a974610000018bcfe56800",
    4: "00040000011f71fb04cb00000005066dc3a974610000018bcfe56800"
    "0100100102030405060708090a0b0c0d0e0f10",
}
GROUP = GroupMetadata(
    "consumer",
    3,
    "range",
    "m-1",
    1_700_000_000_000,
    (
        MemberMetadata("m-1", None, "c", "/127.0.0.1", 300_000, 45_000, b"\0\1\2", b"\3\4"),
        MemberMetadata("m-2", "i-2", "", "/::1", 1, 2, b"", b""),
    ),
)
_GROUP_HEAD = "0008636f6e73756d657200000003000572616e676500036d2d31"
_TIME = "0000018bcfe56800"
GROUPS = {
    0: f"0000{_GROUP_HEAD}"
    "0000000200036d2d31000163000a2f3132372e302e302e310000afc800000003000102000000020304"
    "00036d2d32000000042f3a3a31000000020000000000000000",
    1: f"0001{_GROUP_HEAD}"
    "0000000200036d2d31000163000a2f3132372e302e302e31000493e00000afc800000003000102000000020304"
    "00036d2d32000000042f3a3a3100000001000000020000000000000000",
    2: f"0002{_GROUP_HEAD}{_TIME}"
    "0000000200036d2d31000163000a2f3132372e302e302e31000493e00000afc800000003000102000000020304"
    "00036d2d32000000042f3a3a3100000001000000020000000000000000",
    3: f"0003{_GROUP_HEAD}{_TIME}"
    "0000000200036d2d31ffff000163000a2f3132372e302e302e31000493e00000afc8"
    "0000000300010200000002030400036d2d320003692d32000000042f3a3a31"
    "00000001000000020000000000000000",
    4: f"000409636f6e73756d6572000000030672616e6765046d2d31{_TIME}"
    "03046d2d310002630b2f3132372e302e302e31000493e00000afc80400010203030400"
    "046d2d3204692d3201052f3a3a31000000010000000201010000",
}


def test_offsets_are_written_in_version_4() -> None:
    assert encode_offset(OFFSET).hex() == OFFSETS[4]
    bare = CommittedOffset(0, -1, "", 1)
    assert encode_offset(bare).hex() == "00040000000000000000ffffffff01000000000000000100"


def test_offsets_with_an_expire_time_are_written_in_version_1() -> None:
    expiring = OFFSET._replace(expire_timestamp_ms=1_700_000_009_999)
    assert encode_offset(expiring).hex() == OFFSETS[1]


@pytest.mark.parametrize("version", OFFSETS)
def test_offsets_are_read_in_every_version(version: int) -> None:
    assert decode_offset(bytes.fromhex(OFFSETS[version])) == OFFSET._replace(
        leader_epoch=5 if version >= 3 else -1,
        expire_timestamp_ms=1_700_000_009_999 if version == 1 else -1,
        topic_id=TOPIC_ID if version == 4 else bytes(16),
    )


def test_groups_are_written_in_version_3() -> None:
    assert encode_group(GROUP).hex() == GROUPS[3]
    empty = GroupMetadata("", 0, None, None, -1, ())
    assert encode_group(empty).hex() == "0003000000000000ffffffffffffffffffffffff00000000"


@pytest.mark.parametrize("version", GROUPS)
def test_groups_are_read_in_every_version(version: int) -> None:
    first, second = GROUP.members
    if version == 0:  # version 0 has no rebalance timeout; the session timeout is used instead
        first = first._replace(rebalance_timeout_ms=45_000)
        second = second._replace(rebalance_timeout_ms=2)
    if version < 3:
        second = second._replace(instance_id=None)
    assert decode_group(bytes.fromhex(GROUPS[version])) == GROUP._replace(
        state_timestamp_ms=GROUP.state_timestamp_ms if version >= 2 else -1,
        members=(first, second),
    )


def test_keys_are_kafkas() -> None:
    key, value = encode_record(OffsetRecord("grüppe", "orders", 7, None))
    assert (key.hex(), value) == ("000100076772c3bc70706500066f726465727300000007", None)
    key, value = encode_record(GroupRecord("grüppe", None))
    assert (key.hex(), value) == ("000200076772c3bc707065", None)


def test_the_oldest_key_of_offsets_is_read() -> None:
    key = bytes.fromhex("000000076772c3bc70706500066f726465727300000007")
    assert decode_record(key, None) == OffsetRecord("grüppe", "orders", 7, None)


def test_kinds_that_are_not_known_are_left_alone() -> None:
    for kind in (9, 10, 15, 17, 23, 999):
        assert decode_record(kind.to_bytes(2, "big") + b"\0\1g", b"anything") is None


def test_a_value_of_an_unknown_version_is_refused() -> None:
    key, value = encode_record(OffsetRecord("g", "t", 0, OFFSET))
    with pytest.raises(ValueError, match="version 5"):
        decode_record(key, b"\0\5" + (value or b"")[2:])


@given(st.binary(), st.none() | st.binary())
def test_random_bytes_are_refused_and_nothing_worse(key: bytes, value: bytes | None) -> None:
    with suppress(ValueError):
        decode_record(key, value)


@given(st.integers(0, 2), st.sampled_from([*OFFSETS.values(), *GROUPS.values()]), st.data())
def test_cut_off_values_are_refused_and_nothing_worse(
    kind: int, text: str, data: st.DataObject
) -> None:
    value = bytes.fromhex(text)
    value = value[: data.draw(st.integers(0, len(value) - 1))]
    key = bytes((0, kind)) + (b"\0\1g" if kind == 2 else b"\0\1g\0\1t\0\0\0\0")
    with suppress(ValueError):
        decode_record(key, value)


texts = st.text(max_size=20)
offsets = st.builds(
    CommittedOffset,
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    texts,
    st.integers(0, 2**62),
    st.just(-1),
    st.binary(min_size=16, max_size=16),
    st.just(-1),
)


@given(texts, texts, st.integers(0, 2**31 - 1), st.none() | offsets)
def test_an_offset_comes_back_as_it_was(
    group: str, topic: str, partition: int, value: CommittedOffset | None
) -> None:
    record = OffsetRecord(group, topic, partition, value)
    assert decode_record(*encode_record(record)) == record


@pytest.mark.parametrize(
    ("text", "hashed", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("my-group", -1906497762, 12),
        ("console-consumer-12345", 158455506, 6),
        ("grüppe", -1233264812, 12),
        ("日本語", 25921943, 43),
        ("polygenelubricants", -2147483648, 0),
        ("😀 team", -1297216774, 24),
    ],
)
def test_groups_are_placed_by_javas_hash(text: str, hashed: int, partition: int) -> None:
    assert java_string_hash(text) == hashed
    assert partition_for(text, 50) == partition

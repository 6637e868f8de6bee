"""Tests of subscriptions and assignments of classic groups against other clients' codecs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.consumer import protocol

TPS = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))

partitions = st.frozensets(
    st.tuples(st.text("xyz", min_size=1, max_size=4), st.integers(0, 50)), max_size=8
).map(lambda found: tuple(sorted(TopicPartition(*each) for each in found)))


@given(
    topics=st.frozensets(st.text(min_size=1, max_size=5), max_size=4),
    owned=partitions,
    generation=st.integers(-1, 2**31 - 1),
    user_data=st.none() | st.binary(max_size=9),
    rack=st.none() | st.text(max_size=5),
)
def test_subscriptions_round_trip(
    topics: frozenset[str],
    owned: tuple[TopicPartition, ...],
    generation: int,
    user_data: bytes | None,
    rack: str | None,
) -> None:
    data = protocol.encode_subscription(topics, owned, generation, user_data, rack)
    found = protocol.decode_subscription(data, "static")
    assert found == protocol.MemberSubscription(
        tuple(sorted(topics)), owned, generation, "static", user_data, rack
    )


@given(owned=partitions)
def test_assignments_round_trip(owned: tuple[TopicPartition, ...]) -> None:
    assert protocol.decode_assignment(protocol.encode_assignment(owned)) == owned
    assert protocol.decode_sticky_data(protocol.encode_sticky_data(owned, 7)) == (owned, 7)


def test_older_and_newer_versions_are_read() -> None:
    version_0 = bytes.fromhex("0000 00000001 0001 61 ffffffff")
    assert protocol.decode_subscription(version_0) == protocol.MemberSubscription(("a",))
    newer = b"\x00\x09" + protocol.encode_subscription(["a"], TPS, 4)[2:] + b"more"
    assert protocol.decode_subscription(newer).owned == TPS
    assert protocol.decode_assignment(b"") == ()


@pytest.mark.parametrize(
    "data",
    [b"\x00", b"\x00\x01\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x05a", b"\x00\x00" * 3],
)
def test_what_does_not_parse_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="member"):
        protocol.decode_subscription(data)


def test_the_bytes_are_kafkas() -> None:
    assert protocol.encode_sticky_data(TPS, 3) == bytes.fromhex(
        "00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001 00000003"
    )
    assert protocol.encode_generation(5) == bytes.fromhex("00000005")
    assert protocol.encode_subscription(["a"], TPS[:1], 2) == bytes.fromhex(
        "0003 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000000 00000002 ffff"
    )
    assert protocol.encode_assignment(TPS[2:]) == bytes.fromhex(
        "0003 00000001 0001 62 00000001 00000001 ffffffff"
    )

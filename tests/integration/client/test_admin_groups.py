"""Admin calls for groups, their offsets and the contents of partitions."""

from __future__ import annotations

import time

import pytest
from tests.integration.groups.requests import join, join_fully, sync
from tests.raw_client import Api, RawClient, eventually

from ottla import Consumer
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.admin import (
    Admin,
    GroupDescription,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
)
from ottla.client.errors import ClientError, UnknownTopic
from ottla.wire.records.builder import RecordFields

ASSIGNMENT = b"\0\1\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\2\xff\xff\xff\xff"
"""Assignment of a consumer: t-0 and t-2."""


def fill(raw: RawClient, topic: str, *timestamps: int, partition: int = 0) -> None:
    records: list[RecordFields] = [(None, b"v", (), each) for each in timestamps]
    answer = eventually(
        lambda: raw.produce(topic, records, partition), lambda answer: answer.error_code == 0
    )
    assert answer.error_code == 0


def test_a_classic_group_is_listed_described_and_deleted(
    admin: Admin, raw: RawClient, group: str
) -> None:
    assert admin.list_group_offsets(group)[group] == {}  # Kafka creates its offsets topic now
    joined = join(raw, group, group_instance_id="static-1")
    assignments = [{"member_id": joined.member_id, "assignment": ASSIGNMENT}]
    sync(raw, group, joined, assignments=assignments, group_instance_id="static-1")
    listed = admin.list_groups()[group]
    assert (listed.type, listed.state, listed.protocol_type) == ("classic", "Stable", "consumer")
    assert group in admin.list_groups(states=["Stable"])
    assert group not in admin.list_groups(states=["Empty"])
    assert group in admin.list_groups(types=["classic"])
    assert group not in admin.list_groups(types=["consumer"])
    described = admin.describe_groups(group)[group]
    assert (described.type, described.state, described.assignor) == ("classic", "Stable", "range")
    assert described.coordinator is not None
    (member,) = described.members
    assert (member.member_id, member.group_instance_id) == (joined.member_id, "static-1")
    assert member.assignment == (TopicPartition("t", 0), TopicPartition("t", 2))
    with pytest.raises(ClientError, match="has active members") as failure:
        admin.delete_groups(group)
    assert failure.value.code is ErrorCode.NON_EMPTY_GROUP
    admin.remove_members_from_group(group, ["static-1"], reason="a test")
    admin.delete_groups(group)
    assert group not in admin.list_groups()


def test_a_group_that_does_not_exist(admin: Admin, group: str) -> None:
    for call in (admin.describe_groups, admin.delete_groups):
        with pytest.raises(ClientError) as failure:
            call(group)
        assert failure.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert admin.list_group_offsets(group)[group] == {}


def test_offsets_of_groups_are_set_listed_and_deleted(admin: Admin, topic: str, group: str) -> None:
    admin.create_topics(NewTopic(topic, 3))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 2)
    admin.alter_group_offsets(group, {first: 5, second: OffsetAndMetadata(7, "a note")})
    offsets = admin.list_group_offsets(group)[group]
    assert offsets[first].offset == 5
    assert (offsets[second].offset, offsets[second].metadata) == (7, "a note")
    some = admin.list_group_offsets(group, partitions=[second])[group]
    assert list(some) == [second]
    assert admin.describe_groups(group)[group].state == "Empty"
    admin.delete_group_offsets(group, [first])
    assert list(admin.list_group_offsets(group)[group]) == [second]
    missing = TopicPartition(topic, 9)
    results = admin.alter_group_offsets(group, {first: 1, missing: 1}, return_errors=True)
    assert list(results) == [first]
    assert isinstance(results.errors[missing], UnknownTopic)


def test_offsets_of_a_group_with_members_are_theirs(
    admin: Admin, raw: RawClient, topic: str, group: str
) -> None:
    admin.create_topics(topic)
    assert admin.list_group_offsets(group)[group] == {}
    joined = join_fully(raw, group)
    sync(raw, group, joined)
    with pytest.raises(ClientError, match="has active members") as failure:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    assert failure.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_by_position_and_by_time(admin: Admin, raw: RawClient, topic: str) -> None:
    admin.create_topics(NewTopic(topic, 2))
    now = int(time.time() * 1000)
    fill(raw, topic, now - 100, now + 50, now, partition=1)
    one = TopicPartition(topic, 1)

    def offset(spec: int) -> int | None:
        return admin.list_offsets({one: spec})[one].offset

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 3
    assert offset(OffsetSpec.EARLIEST_LOCAL) == 0
    newest = admin.list_offsets({one: OffsetSpec.MAX_TIMESTAMP})[one]
    assert (newest.offset, newest.timestamp) == (1, now + 50)
    assert offset(now - 99) == 1
    assert offset(now + 51) is None
    both = admin.list_offsets(
        {TopicPartition(topic, 0): OffsetSpec.LATEST, one: OffsetSpec.MAX_TIMESTAMP}
    )
    assert [each.offset for each in both.values()] == [0, 1]


def test_records_are_deleted_up_to_an_offset_or_all(
    admin: Admin, raw: RawClient, topic: str
) -> None:
    admin.create_topics(NewTopic(topic, 2))
    now = int(time.time() * 1000)
    for partition in range(2):
        fill(raw, topic, now, now, now, partition=partition)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.delete_records({zero: 2, one: -1}) == {zero: 2, one: 3}
    results = admin.delete_records({zero: 99, one: 3}, return_errors=True)
    assert results.errors[zero].code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert results.errors[zero].partition == 0
    assert results[one] == 3


def test_partitions_that_do_not_exist_are_named_soon(admin: Admin, topic: str) -> None:
    start = time.monotonic()
    with pytest.raises(UnknownTopic, match=f"topic '{topic}' does not exist"):
        admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.LATEST})
    admin.create_topics(topic)
    with pytest.raises(UnknownTopic, match="no partition 5; it has 1"):
        admin.delete_records({TopicPartition(topic, 5): 0})
    assert time.monotonic() - start < 10


def test_producers_at_work(admin: Admin, raw: RawClient, topic: str) -> None:
    admin.create_topics(topic)
    nobody = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
    given = eventually(
        lambda: raw.call(Api.INIT_PRODUCER_ID, 5, **nobody),
        lambda answer: answer.error_code == 0,
    )
    producer_id = given.producer_id
    records: list[RecordFields] = [(None, b"v", (), int(time.time() * 1000))] * 3
    answer = eventually(
        lambda: raw.produce(
            topic, records, producer_id=producer_id, producer_epoch=0, base_sequence=0
        ),
        lambda answer: answer.error_code == 0,
    )
    assert answer.error_code == 0
    zero = TopicPartition(topic, 0)
    (producer,) = admin.describe_producers(zero)[zero]
    assert (producer.producer_id, producer.last_sequence) == (producer_id, 2)
    assert producer.current_txn_start_offset is None
    (node,) = admin.describe_cluster().nodes
    assert admin.describe_producers(zero, broker=node)[zero] == [producer]


def test_a_group_of_the_consumer_protocol_is_described_with_its_epochs(
    admin: Admin, topic: str, group: str
) -> None:
    admin.create_topics(NewTopic(topic, 2))
    with Consumer(
        admin.config.bootstrap_servers, group_id=group, group_protocol="consumer"
    ) as consumer:
        consumer.subscribe([topic])

        def described() -> GroupDescription | None:
            consumer.poll(timeout_s=0.1)
            return admin.describe_groups(group, return_errors=True).get(group)

        found = eventually(
            described,
            lambda each: (
                each is not None
                and each.state == "Stable"
                and any(member.assignment for member in each.members)
            ),
        )
        assert found is not None
        assert (found.type, found.protocol_type) == ("consumer", "consumer")
        (member,) = found.members
        assert member.assignment == member.target_assignment
        assert set(member.assignment) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert member.subscribed_topics == (topic,)
        assert member.member_epoch == found.group_epoch == found.target_assignment_epoch
        assert admin.list_groups(types=["consumer"])[group].type == "consumer"
        with pytest.raises(ClientError) as failure:
            admin.delete_groups(group)
        assert failure.value.code is ErrorCode.NON_EMPTY_GROUP

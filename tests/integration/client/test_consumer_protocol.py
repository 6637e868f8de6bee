"""Ottla's consumer in groups of the consumer protocol (KIP-848), its default if supported."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from tests.integration.client.foreign import FOREIGN, ForeignBroker
from tests.integration.client.members import Heard, poll_until, polling, produce, received
from tests.integration.groups.consumers import ConsumerProcess
from tests.raw_client import Api, RawClient, eventually

from ottla import (
    ClientError,
    CommitFailed,
    Consumer,
    InvalidConfig,
    SubscriptionPattern,
    TopicPartition,
    UnsupportedVersion,
)
from ottla.testing.broker import BrokerProcess

PARTITIONS = 6
SESSION_MS = 1_500
ATTEMPTS = 5
TIMEOUT_S = 20.0
FAST: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess | ForeignBroker]:
    if FOREIGN is not None:  # a foreign broker has these overrides too
        yield ForeignBroker(FOREIGN)
        return
    with BrokerProcess(strict=True, overrides=OVERRIDES) as process:
        yield process
        log = process.log()
    assert "Traceback" not in log, log


@pytest.fixture
def group() -> str:
    return f"modern-{next(_numbers)}"


def describe(client: RawClient, group: str) -> Any:
    (found,) = client.call(Api.CONSUMER_GROUP_DESCRIBE, group_ids=[group]).groups
    return found


def test_the_new_protocol_is_used_where_the_broker_has_it(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 2)
    produce(client, topic, 2)
    with Consumer(broker.bootstrap, group_id=group, topics=topic, **FAST) as consumer:
        records = poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        eventually(lambda: records.extend(consumer.poll(0.05)) or len(records) == 2)
        described = describe(client, group)
        (member,) = described.members
        assert described.group_state == "Stable"
        metadata = consumer.group_metadata()
        assert metadata.member_id == member.member_id
        assert metadata.generation_id == member.member_epoch > 0
        consumer.commit()
        committed = consumer.committed()
        assert [each and each.offset for each in committed.values()] == [1, 1]
    assert describe(client, group).group_state == "Empty"
    with Consumer(broker.bootstrap, group_id=group, topics=topic, **FAST) as consumer:
        poll_until(consumer, consumer.assignment)
        produce(client, topic, 2)
        again = consumer.poll(TIMEOUT_S)
        assert {record.offset for record in again} == {1}, "from where the last one stopped"


def test_members_share_and_take_over_from_one_that_is_killed(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        survivor, victim = (
            stack.enter_context(ConsumerProcess(broker, "ottla", group, topic, protocol="consumer"))
            for _ in range(2)
        )
        eventually(lambda: len(survivor.owned) == len(victim.owned) == PARTITIONS // 2)
        assert survivor.owned | victim.owned == set(range(PARTITIONS))
        produce(client, topic)
        once = [(partition, 0) for partition in range(PARTITIONS)]
        eventually(lambda: received(survivor, victim), lambda seen: seen == once)
        lost = sorted(victim.owned)
        killed_at = victim.kill()
        produce(client, topic)
        everything = {(partition, 1) for partition in range(PARTITIONS)}
        eventually(lambda: received(survivor), lambda seen: everything <= set(seen))
        read_at = [
            when
            for partition, offset, when in survivor.records
            if partition in lost and offset == 1
        ]
        assert max(read_at) - killed_at < SESSION_MS / 1000 + 1


def test_members_of_both_protocols_and_of_other_clients_share_one_group(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    """A classic group is converted when the first member of the consumer protocol joins."""
    client.create_topic(topic, PARTITIONS)
    options = {"session_ms": 6_000, "strategy": "range"}
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(ConsumerProcess(broker, "confluent-kafka", group, topic, **options))
        ]
        eventually(lambda: len(consumers[0].owned) == PARTITIONS)
        consumers += [
            stack.enter_context(
                ConsumerProcess(broker, "ottla", group, topic, protocol=protocol, **options)
            )
            for protocol in ("consumer", "classic")
        ]
        eventually(lambda: [len(each.owned) for each in consumers], lambda sizes: sizes == [2] * 3)
        produce(client, topic)
        once = [(partition, 0) for partition in range(PARTITIONS)]
        eventually(lambda: received(*consumers), lambda seen: seen == once)


def test_partitions_that_stay_are_never_paused_when_a_member_joins(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 2)
    heard = Heard()
    options = {**FAST, "group_id": group}
    with Consumer(broker.bootstrap, **options) as first:
        first.subscribe([topic], listener=heard)
        poll_until(first, lambda: heard.events)
        with polling(first) as records, Consumer(broker.bootstrap, **options) as second:
            second.subscribe([topic])

            def stream() -> bool:
                produce(client, topic, 2)
                return any(what == "revoked" for what, _ in heard.events)

            eventually(stream)
            (gone,) = next(tps for what, tps in heard.events if what == "revoked")
            stays = 1 - gone
            for _ in range(5):
                produce(client, topic, 2)
            wanted = client.list_offset(topic, -1, stays).offset
            eventually(lambda: sum(r.partition == stays for r in records) == wanted)
            taken = poll_until(second, second.assignment)
            eventually(lambda: taken.extend(second.poll(0.05)) or taken)
            assert {record.partition for record in taken} == {gone}
        offsets = [record.offset for record in records if record.partition == stays]
        assert offsets == list(range(wanted)), "each once, in order"
        gone_here = [r.offset for r in records if r.partition == gone]
        assert taken[0].offset == len(gone_here), "from where the first had come"
    concerned = [what for what, partitions in heard.events if stays in partitions]
    assert concerned == ["assigned", "revoked"], "not before it was closed"


def test_a_consumer_that_does_not_poll_leaves_the_group_and_comes_back(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    heard = Heard()
    with Consumer(broker.bootstrap, group_id=group, max_poll_interval_ms=400, **FAST) as consumer:
        consumer.subscribe([topic], listener=heard)
        poll_until(consumer, lambda: heard.events)
        eventually(lambda: describe(client, group).group_state == "Empty")
        with pytest.raises(CommitFailed):
            consumer.commit({TopicPartition(topic, 0): 1})
        poll_until(consumer, lambda: len(heard.events) == 3)
        assert heard.events == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
        consumer.commit({TopicPartition(topic, 0): 1})


def test_a_member_that_was_put_out_loses_its_partitions_and_joins_again(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    with ConsumerProcess(broker, "ottla", group, topic, protocol="consumer") as sleeper:
        eventually(lambda: sleeper.owned == {0})
        sleeper.pause()
        eventually(lambda: describe(client, group).group_state == "Empty")
        sleeper.resume()
        eventually(lambda: describe(client, group).group_state == "Stable")
        produce(client, topic, 1)
        eventually(lambda: received(sleeper) == [(0, 0)])


def test_a_static_member_that_restarts_keeps_its_partitions(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    for attempt in range(ATTEMPTS):
        # The attempt proves nothing if the machine is so slow that the session expires meanwhile.
        if restart_static_member(broker.bootstrap, topic, f"{group}-{attempt}") < SESSION_MS / 2000:
            return
    pytest.skip("this machine is too slow for a restart within a session")


def restart_static_member(bootstrap: str, topic: str, group: str) -> float:
    """Restart a static member and return how many seconds it was away.

    It runs in this process, because another one takes longer to start."""
    options = {**FAST, "group_id": group, "group_protocol": "consumer", "topics": topic}
    heard, half = Heard(), PARTITIONS // 2
    with (
        Consumer(bootstrap, group_instance_id="a", listener=heard, **options) as stays,
        polling(stays),
    ):
        with Consumer(bootstrap, group_instance_id="b", **options) as leaves:
            with polling(leaves):
                eventually(lambda: len(stays.assignment()) == len(leaves.assignment()) == half)
            events, owned = list(heard.events), leaves.assignment()
            left = time.monotonic()
        with Consumer(bootstrap, group_instance_id="b", **options) as back, polling(back):
            found = eventually(back.assignment)
            away_s = time.monotonic() - left
            if away_s < SESSION_MS / 2000:
                assert found == owned
                assert heard.events == events, "nobody else noticed"
    return away_s


@pytest.mark.parametrize("is_remote", [True, False])
def test_patterns_match_topics_that_come_later(
    broker: BrokerProcess, client: RawClient, topic: str, group: str, is_remote: bool
) -> None:
    client.create_topic(f"{topic}.one", 1)
    client.create_topic(f"other.{topic}", 1)
    text = rf"{re.escape(topic)}\..*"
    pattern = SubscriptionPattern(text) if is_remote else re.compile(f"^{text}")
    options = {**FAST, "group_id": group, "metadata_max_age_ms": 100}
    with Consumer(broker.bootstrap, topics=pattern, **options) as consumer:
        poll_until(consumer, consumer.assignment)
        assert consumer.assignment() == {TopicPartition(f"{topic}.one", 0)}
        client.create_topic(f"{topic}.two", 1)
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)


def test_what_only_the_classic_protocol_has_chooses_it(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    options = {**FAST, "group_id": group, "partition_assignment_strategy": "sticky"}
    with Consumer(broker.bootstrap, topics=topic, **options) as consumer:
        poll_until(consumer, consumer.assignment)
        (found,) = client.call(Api.DESCRIBE_GROUPS, groups=[group]).groups
        assert (found.group_state, found.protocol_data) == ("Stable", "sticky")
    with pytest.raises(InvalidConfig, match=r"cannot be set with group\.protocol=consumer"):
        Consumer(broker.bootstrap, group_protocol="consumer", **options)
    with (
        Consumer(broker.bootstrap, topics=SubscriptionPattern(".*"), **options) as consumer,
        pytest.raises(UnsupportedVersion, match="SubscriptionPattern"),
    ):
        consumer.poll(TIMEOUT_S)


def test_an_assignor_that_the_broker_does_not_have_is_an_error(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    with Consumer(
        broker.bootstrap, topics=topic, group_id=group, group_remote_assignor="fairest"
    ) as consumer:
        with pytest.raises(ClientError) as caught:
            consumer.poll(TIMEOUT_S)
        assert caught.value.code.name == "UNSUPPORTED_ASSIGNOR"

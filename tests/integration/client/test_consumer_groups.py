"""Ottla's consumer in classic groups, among its own kind and other clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from tests.integration.client.foreign import FOREIGN, ForeignBroker
from tests.integration.client.members import Heard, poll_until, polling, produce, received
from tests.integration.groups.consumers import (
    CLIENTS,
    ConsumerProcess,
    describe,
    wait_until_shared,
)
from tests.raw_client import Api, RawClient, eventually

from ottla import (
    ClientError,
    CommitFailed,
    Consumer,
    GroupMetadata,
    TopicPartition,
)
from ottla.testing.broker import BrokerProcess

PARTITIONS = 6
SESSION_MS = 2_000
TIMEOUT_S = 20.0
FAST: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 50,
    "group_protocol": "classic",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 100,
}
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess | ForeignBroker]:
    if FOREIGN is not None:  # a foreign broker has these overrides too
        yield ForeignBroker(FOREIGN)
        return
    overrides = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with BrokerProcess(strict=True, overrides=overrides) as process:
        with RawClient(process.port) as client:
            client.call(Api.FIND_COORDINATOR, 0, key="any")
        yield process
        log = process.log()
    assert "Traceback" not in log, log


@pytest.fixture
def group() -> str:
    return f"ours-{next(_numbers)}"


def test_all_kinds_of_clients_share_a_group_and_take_over(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    partitions = 8
    client.create_topic(topic, partitions)
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(ConsumerProcess(broker, kind, group, topic, session_ms=SESSION_MS))
            for kind in ("ottla", *CLIENTS)
        ]
        wait_until_shared(client, group, 4, partitions)
        eventually(lambda: [len(each.owned) for each in consumers], lambda sizes: sizes == [2] * 4)
        produce(client, topic, partitions)
        once = [(partition, 0) for partition in range(partitions)]
        eventually(lambda: received(*consumers), lambda records: records == once)

        ours, *others = consumers
        ours.kill()
        produce(client, topic, partitions)
        everything = {(partition, 1) for partition in range(partitions)}
        eventually(lambda: received(*others), lambda seen: everything <= set(seen))
        wait_until_shared(client, group, 3, partitions)
        for other in others:
            other.close()
        with ConsumerProcess(broker, "ottla", group, topic, session_ms=SESSION_MS) as ours:
            wait_until_shared(client, group, 1, partitions)
            produce(client, topic, partitions)
            last = {(partition, 2) for partition in range(partitions)}
            eventually(lambda: received(ours), lambda seen: last <= set(seen))
            assert set(received(ours)) == last, "the others had committed what they read"
    assert describe(client, group).group_state == "Empty"


@pytest.mark.parametrize("strategy", ["roundrobin", "sticky", "cooperative-sticky"])
def test_assignors_work_together_with_another_client(
    broker: BrokerProcess, client: RawClient, topic: str, group: str, strategy: str
) -> None:
    if strategy == "sticky":
        pytest.importorskip("kafka")
    other = "confluent-kafka" if strategy != "sticky" else "ottla"
    client.create_topic(topic, PARTITIONS)
    options = {"session_ms": SESSION_MS, "strategy": strategy}
    with ConsumerProcess(broker, other, group, topic, **options) as first:
        eventually(lambda: len(first.owned), lambda size: size == PARTITIONS)
        with ConsumerProcess(broker, "ottla", group, topic, **options) as second:
            eventually(lambda: len(second.owned), lambda size: size == PARTITIONS // 2)
            eventually(lambda: len(first.owned), lambda size: size == PARTITIONS // 2)
            wait_until_shared(client, group, 2, PARTITIONS)
            if strategy == "cooperative-sticky":
                revoked = [set(said["revoked"]) for said in first.changes() if "revoked" in said]
                assert revoked == [second.owned], "and nothing else"
            first.close()  # the leader leaves, and Ottla's consumer becomes the leader
            eventually(lambda: len(second.owned), lambda size: size == PARTITIONS)
            with ConsumerProcess(broker, other, group, topic, **options) as third:
                eventually(lambda: len(third.owned), lambda size: size == PARTITIONS // 2)
                wait_until_shared(client, group, 2, PARTITIONS)
                produce(client, topic)
                eventually(lambda: len(received(second, third)) == PARTITIONS)


def test_the_partitions_of_a_killed_member_are_read_again_within_its_session_and_a_second(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        survivor, victim = (
            stack.enter_context(
                ConsumerProcess(broker, "ottla", group, topic, session_ms=SESSION_MS)
            )
            for _ in range(2)
        )
        wait_until_shared(client, group, 2, PARTITIONS)
        eventually(lambda: len(survivor.owned) == len(victim.owned) == PARTITIONS // 2)
        lost = sorted(victim.owned)
        killed_at = victim.kill()
        produce(client, topic)
        eventually(lambda: received(survivor), lambda seen: len(seen) == PARTITIONS)
        read_at = [when for partition, _, when in survivor.records if partition in lost]
        assert max(read_at) - killed_at < SESSION_MS / 1000 + 1


def test_a_member_that_sleeps_past_its_session_is_out_and_comes_back(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 2)
    with (
        ConsumerProcess(broker, "ottla", group, topic, session_ms=1_000) as active,
        ConsumerProcess(broker, "ottla", group, topic, session_ms=1_000) as sleeper,
    ):
        wait_until_shared(client, group, 2, 2)
        sleeper.pause()
        wait_until_shared(client, group, 1, 2)
        eventually(lambda: active.owned, lambda owned: owned == {0, 1})
        sleeper.resume()
        wait_until_shared(client, group, 2, 2)


def test_a_static_member_that_restarts_causes_no_rebalance(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, PARTITIONS)
    options = {"session_ms": 20_000, "instance": "a"}
    with ConsumerProcess(broker, "ottla", group, topic, **options) as stays:
        options["instance"] = "b"
        leaves = ConsumerProcess(broker, "ottla", group, topic, **options)
        wait_until_shared(client, group, 2, PARTITIONS)
        eventually(lambda: len(stays.owned) == len(leaves.owned) == PARTITIONS // 2)
        changes, owned = stays.changes(), set(leaves.owned)
        leaves.close()
        with ConsumerProcess(broker, "ottla", group, topic, **options) as back:
            eventually(lambda: back.owned, lambda now: now == owned)
            produce(client, topic)
            eventually(lambda: len(received(back, stays)) == PARTITIONS)
            assert stays.changes() == changes, "nobody else noticed"


def test_listeners_run_in_the_polling_thread_and_may_use_the_consumer(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 2)
    produce(client, topic, 2)
    consumer = Consumer(broker.bootstrap, group_id=group, enable_auto_commit=False, **FAST)

    class Listener(Heard):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            super().on_assigned(partitions)
            for tp in partitions:
                consumer.seek(tp, 1)  # skip the records that are already there

        def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            super().on_revoked(partitions)
            consumer.commit(dict.fromkeys(partitions, 1))

    heard = Listener()
    with consumer:
        consumer.subscribe([topic], listener=heard)
        poll_until(consumer, lambda: heard.events)
        produce(client, topic, 2)
        records = consumer.poll(TIMEOUT_S, max_records=1) + consumer.poll(TIMEOUT_S)
        assert [record.offset for record in records] == [1, 1]
        consumer.unsubscribe()
        assert heard.events == [("assigned", [0, 1]), ("revoked", [0, 1])]
        assert heard.threads == {threading.get_ident()}
        assert describe(client, group).group_state == "Empty"
        committed = consumer.committed(TopicPartition(topic, 0))
        assert [each.offset for each in committed.values() if each is not None] == [1]


def test_poll_raises_the_exception_of_a_listener_and_the_rebalance_continues(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    produce(client, topic, 1)

    class Listener(Heard):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            super().on_assigned(partitions)
            raise ValueError("the user's own")

    heard = Listener()
    with Consumer(broker.bootstrap, group_id=group, **FAST) as consumer:
        consumer.subscribe([topic], listener=heard)
        with pytest.raises(ValueError, match="the user's own"):
            consumer.poll(TIMEOUT_S)
        assert len(consumer.poll(TIMEOUT_S)) == 1


def test_partitions_that_stay_are_never_paused_in_a_cooperative_rebalance(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    """While a second member joins without polling, records of the retained partitions arrive
    without a gap as long as the rebalance."""
    client.create_topic(topic, 2)
    options = {**FAST, "group_id": group, "partition_assignment_strategy": "cooperative-sticky"}
    heard = Heard()
    with Consumer(broker.bootstrap, **options) as first:
        first.subscribe([topic], listener=heard)
        poll_until(first, lambda: heard.events)
        with polling(first) as records, Consumer(broker.bootstrap, **options) as second:
            second.subscribe([topic])

            def stream() -> bool:
                produce(client, topic, 2)
                return ("revoked", [1]) in heard.events or ("revoked", [0]) in heard.events

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
    concerned = [what for what, partitions in heard.events if stays in partitions]
    assert concerned == ["assigned", "revoked"], "not before it was closed"


def test_what_was_handed_out_is_committed_before_a_partition_goes_to_another(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 4)
    for _ in range(25):
        produce(client, topic, 4)
    options = {**FAST, "group_id": group, "max_poll_records": 7}
    with Consumer(broker.bootstrap, topics=topic, **options) as first:
        mine = first.poll(TIMEOUT_S)
        with polling(first) as more, Consumer(broker.bootstrap, topics=topic, **options) as second:
            theirs = poll_until(second, lambda: len(second.assignment()) == 2)
            eventually(lambda: theirs.extend(second.poll(0.05)) or
                       len(mine) + len(more) + len(theirs) >= 100)  # fmt: skip
    seen = [(record.partition, record.offset) for record in [*mine, *more, *theirs]]
    assert sorted(seen) == [(p, o) for p in range(4) for o in range(25)], "each exactly once"


def test_a_consumer_that_does_not_poll_leaves_the_group_and_comes_back(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    produce(client, topic, 1)
    heard = Heard()
    options = {**FAST, "group_id": group, "max_poll_interval_ms": 1_500}
    with Consumer(broker.bootstrap, **options) as consumer:
        consumer.subscribe([topic], listener=heard)
        assert len(poll_until(consumer, consumer.assignment)) <= 1
        eventually(lambda: describe(client, group).group_state == "Empty")
        with pytest.raises(CommitFailed):
            consumer.commit({TopicPartition(topic, 0): 1})
        poll_until(consumer, lambda: ("lost", [0]) in heard.events)
        poll_until(consumer, lambda: len(heard.events) >= 3)
        assert heard.events == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
        consumer.poll(0)
        consumer.commit()


def test_iterating_slowly_counts_as_polling(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    for _ in range(6):
        produce(client, topic, 1)
    options = {**FAST, "group_id": group, "max_poll_interval_ms": 600}
    heard = Heard()
    with Consumer(broker.bootstrap, **options) as consumer:
        consumer.subscribe([topic], listener=heard)
        for record in consumer:
            time.sleep(0.25)  # the application's work
            if record.offset == 5:
                break
        assert heard.events == [("assigned", [0])]


def test_patterns_match_topics_that_come_later(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(f"{topic}.one", 1)
    client.create_topic(f"other.{topic}", 1)
    options = {**FAST, "group_id": group, "metadata_max_age_ms": 100}
    with Consumer(broker.bootstrap, topics=rf"^{topic}\..*", **options) as consumer:
        poll_until(consumer, consumer.assignment)
        assert consumer.assignment() == {TopicPartition(f"{topic}.one", 0)}
        client.create_topic(f"{topic}.two", 1)
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        assert consumer.subscription() == {f"{topic}.one", f"{topic}.two"}


def test_partitions_that_are_added_are_shared_out(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    options = {**FAST, "group_id": group, "metadata_max_age_ms": 100}
    with Consumer(broker.bootstrap, topics=topic, **options) as consumer:
        poll_until(consumer, consumer.assignment)
        client.call(Api.CREATE_PARTITIONS, topics=[{"name": topic, "count": 3}], timeout_ms=5000)
        poll_until(consumer, lambda: len(consumer.assignment()) == 3)


def test_subscribing_anew_changes_the_topics(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(f"{topic}.a", 1)
    client.create_topic(f"{topic}.b", 1)
    with Consumer(broker.bootstrap, topics=[f"{topic}.a"], group_id=group, **FAST) as consumer:
        poll_until(consumer, consumer.assignment)
        consumer.subscribe([f"{topic}.b"])
        wanted = {TopicPartition(f"{topic}.b", 0)}
        poll_until(consumer, lambda: consumer.assignment() == wanted)


def test_group_metadata_names_the_member(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    with Consumer(broker.bootstrap, topics=topic, group_id=group, **FAST) as consumer:
        poll_until(consumer, consumer.assignment)
        described = describe(client, group)
        (member,) = described.members
        assert consumer.group_metadata() == GroupMetadata(group, 1, member.member_id, None)


def test_a_group_that_refuses_us_is_an_error_at_every_poll(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic, 1)
    options = {**FAST, "group_id": group}
    with Consumer(
        broker.bootstrap, topics=topic, partition_assignment_strategy="range", **options
    ) as first:
        poll_until(first, first.assignment)
        with Consumer(
            broker.bootstrap, topics=topic, partition_assignment_strategy="sticky", **options
        ) as second:
            for _ in range(2):
                with pytest.raises(ClientError, match=f"group {group}") as caught:
                    second.poll(TIMEOUT_S)
                assert caught.value.code.name == "INCONSISTENT_GROUP_PROTOCOL"

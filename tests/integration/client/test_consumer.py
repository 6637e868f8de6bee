"""The consumer against a real broker: assigning, polling, seeking, offsets, committing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import islice

import pytest
from confluent_kafka import Producer as ConfluentProducer
from tests.raw_client import RawClient

from ottla import (
    AsyncConsumer,
    BrokersUnreachable,
    ClientClosed,
    Consumer,
    DeserializationFailed,
    InvalidConfig,
    NoOffsetForPartition,
    OffsetAndMetadata,
    OffsetOutOfRange,
    Record,
    TopicPartition,
    UnknownTopic,
)
from ottla.testing.broker import BrokerProcess

TIMEOUT_S = 20.0
FAST = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}


def fill(client: RawClient, topic: str, count: int, partitions: int = 1, first: int = 0) -> None:
    """Produce v0, v1 … to the partitions in turn, with key k and a header, at times 1000, 1001 …"""
    if not first:
        client.create_topic(topic, partitions, retention_ms="-1")
    for number in range(first, first + count):
        record = (b"k%d" % number, b"v%d" % number, (("h", b"1"),), 1000 + number)
        client.produce(topic, [record], number % partitions)


def take(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        records = consumer.poll(TIMEOUT_S)
        assert records, f"only {len(found)} of {count}"
        found += records
    assert len(found) == count
    return found


def test_assigned_partitions_are_read_from_the_beginning_in_order(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 6, partitions=2)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        records = take(consumer, 6)
        assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    by_partition = [[r.value for r in records if r.partition == p] for p in (0, 1)]
    assert by_partition == [[b"v0", b"v2", b"v4"], [b"v1", b"v3", b"v5"]]
    first = next(record for record in records if record.value == b"v0")
    assert first == Record(topic, 0, 0, 1000, 0, b"k0", b"v0", (("h", b"1"),), 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_confluent_writes_in_any_codec_is_read(
    broker: BrokerProcess, topic: str, client: RawClient, codec: str
) -> None:
    client.create_topic(topic, retention_ms="-1")
    producer = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for number in range(500):
        producer.produce(topic, b"%d" % number * 20, b"key", headers=[("a", b"b"), ("n", None)])
    producer.flush(TIMEOUT_S)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([(topic, 0)])
        records = take(consumer, 500)
    assert [record.value for record in records] == [b"%d" % number * 20 for number in range(500)]
    assert records[7].headers == (("a", b"b"), ("n", None))
    assert [record.offset for record in records] == list(range(500))


def test_polls_hand_out_at_most_what_they_are_asked_for(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 5)
    with Consumer(broker.bootstrap, max_poll_records=3, **FAST) as consumer:
        consumer.assign([(topic, 0)])
        sizes: list[int] = []
        while sum(sizes) < 5:
            records = consumer.poll(TIMEOUT_S, max_records=2 if not sizes else None)
            sizes.append(len(records))
        assert sizes[0] <= 2
        assert max(sizes) <= 3
        assert consumer.poll(0.05) == []
        with pytest.raises(ValueError, match="at least 1"):
            consumer.poll(0, max_records=0)


def test_seeking_by_offset_by_time_and_to_the_ends(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 10)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 7)
        assert [record.offset for record in take(consumer, 3)] == [7, 8, 9]
        assert consumer.position(tp) == 10
        consumer.seek_to_beginning(tp)
        assert consumer.poll(TIMEOUT_S, max_records=1)[0].offset == 0
        consumer.seek_to_end()
        assert consumer.position(tp) == 10
        consumer.seek_to_timestamp(1004, tp)
        assert consumer.poll(TIMEOUT_S, max_records=1)[0].offset == 4
        consumer.seek_to_timestamp(datetime.fromtimestamp(1.008, UTC))
        assert consumer.position(tp) == 8
        consumer.seek_to_timestamp(99_000)
        assert consumer.position(tp) == 10
        assert consumer.beginning_offsets(tp) == {tp: 0}
        assert consumer.end_offsets() == {tp: 10}
        found = consumer.offsets_for_times({tp: 1003})[tp]
        assert found is not None
        assert (found.offset, found.timestamp) == (3, 1003)
        assert consumer.offsets_for_times({tp: 99_000}) == {tp: None}
        with pytest.raises(ValueError, match="at least 0"):
            consumer.seek(tp, -1)
        with pytest.raises(ValueError, match="not assigned"):
            consumer.seek((topic, 5), 1)


def test_lag_is_what_has_not_been_handed_out(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 10)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([tp])
        assert consumer.lag(tp) == 10
        consumer.poll(TIMEOUT_S, max_records=1)
        assert consumer.position(tp) == 1
        assert consumer.lag(tp) == 9


def test_paused_partitions_hand_out_nothing_until_resumed(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 10, partitions=2)
    quiet, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([quiet, other])
        consumer.poll(TIMEOUT_S, max_records=1)
        consumer.seek_to_beginning()
        consumer.pause(quiet)
        assert consumer.paused() == {quiet}
        assert {record.partition for record in take(consumer, 5)} == {1}
        assert consumer.poll(0.2) == []
        consumer.resume(quiet)
        assert {record.partition for record in take(consumer, 5)} == {0}


def test_a_deserialiser_that_raises_holds_its_partition_until_somebody_seeks(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    client.create_topic(topic, retention_ms="-1")
    for value in (b"1", b"2", b"x", b"4"):
        client.produce(topic, [(None, value, (), 1)])
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, value_deserializer=int, **FAST) as consumer:
        consumer.assign([tp])
        assert [record.value for record in take(consumer, 2)] == [1, 2]
        for _ in range(2):
            with pytest.raises(DeserializationFailed) as caught:
                consumer.poll(TIMEOUT_S)
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == (*tp, 2)
            assert isinstance(caught.value.__cause__, ValueError)
        assert consumer.position(tp) == 2
        consumer.seek(tp, 3)
        assert [record.value for record in take(consumer, 1)] == [4]


def test_serialisers_by_name(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    client.create_topic(topic, retention_ms="-1")
    client.produce(topic, [(b"k", b'{"a": 1}', (), 1), (None, None, (), 1)])
    with Consumer(
        broker.bootstrap, key_deserializer="string", value_deserializer="json", **FAST
    ) as consumer:
        consumer.assign([(topic, 0)])
        assert [(r.key, r.value) for r in take(consumer, 2)] == [("k", {"a": 1}), (None, None)]


def test_without_a_committed_offset_and_without_a_reset_the_user_is_asked(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 3)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, group_id=topic, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        for _ in range(2):
            with pytest.raises(NoOffsetForPartition) as caught:
                consumer.poll(TIMEOUT_S)
            assert (caught.value.topic, caught.value.partition) == tp
        consumer.seek(tp, 1)
        assert [record.offset for record in take(consumer, 2)] == [1, 2]
        consumer.seek(tp, 100)
        with pytest.raises(OffsetOutOfRange, match=r"offset 100 of .* is out of range"):
            consumer.poll(TIMEOUT_S)


def test_an_offset_out_of_range_is_reset(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 3)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, **FAST) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 100)
        assert [record.offset for record in take(consumer, 3)] == [0, 1, 2]


def test_a_group_resumes_from_its_committed_offsets(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 6)
    tp = TopicPartition(topic, 0)
    options = {"group_id": topic, "enable_auto_commit": False, **FAST}
    with Consumer(broker.bootstrap, **options) as consumer:
        consumer.assign([tp])
        assert consumer.committed(tp) == {tp: None}
        consumer.poll(TIMEOUT_S, max_records=2)
        consumer.commit()
        assert consumer.committed(tp) == {tp: OffsetAndMetadata(2, "", 0)}
        consumer.commit({tp: OffsetAndMetadata(3, "note")})
        assert consumer.committed() == {tp: OffsetAndMetadata(3, "note", -1)}
    with Consumer(broker.bootstrap, **options) as consumer:
        consumer.assign([tp])
        assert [record.offset for record in take(consumer, 3)] == [3, 4, 5]
    with Consumer(broker.bootstrap, **options) as consumer:
        assert consumer.committed(tp) == {tp: OffsetAndMetadata(3, "note", -1)}
        consumer.commit_async({tp: 1})
        done: list[object] = []
        consumer.commit_async({tp: 5}, lambda offsets, error: done.append(error))
        consumer.commit({tp: 4})  # commits keep their order
        assert done == [None]
        assert consumer.committed(tp)[tp] == OffsetAndMetadata(4, "", -1)


def test_auto_commit_commits_what_was_handed_out_when_closing(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 6)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, group_id=topic, **FAST) as consumer:
        consumer.subscribe([topic])
        assert [record.offset for record in islice(consumer, 4)] == [0, 1, 2, 3]
    with Consumer(broker.bootstrap, group_id=topic, **FAST) as consumer:
        committed = consumer.committed(tp)[tp]
        assert committed is not None
        assert committed.offset == 4


def test_auto_commit_commits_now_and_then_while_iterating(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 3)
    tp = TopicPartition(topic, 0)
    options = {"group_id": topic, "auto_commit_interval_ms": 20, **FAST}
    with (
        Consumer(broker.bootstrap, topics=topic, **options) as consumer,
        Consumer(broker.bootstrap, group_id=topic) as watcher,
    ):
        records = iter(consumer)
        next(records)
        record = next(records)
        while watcher.committed(tp)[tp] is None:
            client.produce(topic, [(None, b"more", (), 1)])
            record = next(records)
        # The record just returned is not committed: the application may still be processing it.
        found = watcher.committed(tp)[tp]
        assert found is not None
        assert found.offset <= record.offset


def test_iteration_resumes_where_it_stopped(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 8)
    tp = TopicPartition(topic, 0)
    with Consumer(broker.bootstrap, group_id=topic, **FAST) as consumer:
        consumer.assign([tp])
        assert [record.offset for record in islice(consumer, 3)] == [0, 1, 2]
        assert consumer.position(tp) == 3
        consumer.commit()
        committed = consumer.committed(tp)[tp]
        assert committed is not None
        assert committed.offset == 3
        assert [record.offset for record in islice(consumer, 2)] == [3, 4]
        assert [record.offset for record in consumer.poll(TIMEOUT_S)] == [5, 6, 7]


def test_an_exception_leaves_what_was_in_hand_uncommitted(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    fill(client, topic, 8)
    tp = TopicPartition(topic, 0)

    def fail_at_5() -> None:
        with Consumer(broker.bootstrap, group_id=topic, topics=topic, **FAST) as consumer:
            for record in consumer:
                if record.offset == 5:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_at_5()
    with Consumer(broker.bootstrap, group_id=topic, **FAST) as consumer:
        consumer.assign([tp])
        assert [record.offset for record in take(consumer, 3)] == [5, 6, 7]


def test_asyncio(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    fill(client, topic, 6)
    tp = TopicPartition(topic, 0)

    async def consume() -> None:
        async with AsyncConsumer(
            broker.bootstrap, group_id=topic, topics=topic, **FAST
        ) as consumer:
            seen: list[int] = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 4:
                    break
            assert seen == [0, 1, 2, 3]
            await consumer.commit()
            assert (await consumer.committed(tp))[tp] == OffsetAndMetadata(4, "", 0)
            assert [record.offset for record in await consumer.poll(TIMEOUT_S)] == [4, 5]
            consumer.seek(tp, 2)
            assert await consumer.position(tp) == 2
            assert await consumer.lag(tp) == 4
            assert await consumer.partitions_for(topic) == [tp]

    asyncio.run(consume())


def test_unreachable_brokers_are_named_within_the_timeout() -> None:
    with pytest.raises(BrokersUnreachable, match=r"127\.0\.0\.1:1"):
        Consumer("127.0.0.1:1", default_api_timeout_ms=300)


def test_unknown_topics_are_an_error_that_names_them(broker: BrokerProcess) -> None:
    with Consumer(
        broker.bootstrap, allow_auto_create_topics=False, default_api_timeout_ms=300
    ) as consumer:
        consumer.assign([("no-such-topic", 0)])
        with pytest.raises(UnknownTopic) as caught:
            consumer.poll(TIMEOUT_S)
        assert caught.value.topic == "no-such-topic"
        with pytest.raises(UnknownTopic):
            consumer.end_offsets(TopicPartition("no-such-topic", 0))


def test_wrong_use_is_one_clear_sentence(broker: BrokerProcess) -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean group\.id"):
        Consumer(broker.bootstrap, groupid="g")
    with pytest.raises(InvalidConfig, match=r"Assignor 'rnge' .* does not exist"):
        Consumer(broker.bootstrap, partition_assignment_strategy="rnge")
    with pytest.raises(InvalidConfig, match="must be less than"):
        Consumer(broker.bootstrap, session_timeout_ms=1000, heartbeat_interval_ms=2000)
    with Consumer(broker.bootstrap) as consumer:
        with pytest.raises(InvalidConfig, match="needs a consumer group"):
            consumer.subscribe("t")
        with pytest.raises(InvalidConfig, match="Committing offsets needs a consumer group"):
            consumer.commit()
        consumer.assign([("t", 0)])
    with pytest.raises(ClientClosed):
        consumer.poll(0)
    with pytest.raises(ClientClosed):
        consumer.seek(("t", 0), 1)
    with Consumer(broker.bootstrap, group_id="g") as consumer:
        consumer.subscribe("t")
        with pytest.raises(ValueError, match="unsubscribe"):
            consumer.assign([("t", 0)])
        consumer.unsubscribe()
        consumer.assign([("t", 0)])

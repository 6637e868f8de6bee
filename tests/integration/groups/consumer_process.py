"""A consumer in a process of its own, which a test may kill.

It prints its events to the standard output, one JSON object per line: {"assigned": [0, 1]},
{"revoked": [0]}, {"record": [partition, offset]}. On SIGTERM it leaves the group and ends."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from typing import Any

stopping = False


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def say_partitions(kind: str, partitions: Any) -> None:
    say(**{kind: sorted(each.partition for each in partitions)})


def consume_confluent(options: argparse.Namespace) -> None:
    from confluent_kafka import Consumer

    config = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
    }
    if options.protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config |= {
            "session.timeout.ms": options.session_ms,
            "heartbeat.interval.ms": options.session_ms // 10,
            "partition.assignment.strategy": options.strategy,
        }
    if options.instance:
        config["group.instance.id"] = options.instance
    consumer = Consumer(config)
    consumer.subscribe(
        [options.topic],
        on_assign=lambda _, partitions: say_partitions("assigned", partitions),
        on_revoke=lambda _, partitions: say_partitions("revoked", partitions),
        on_lost=lambda _, partitions: say_partitions("revoked", partitions),
    )
    while not stopping:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            say(record=[message.partition(), message.offset()])
    consumer.close()


def consume_kafka_python(options: argparse.Namespace) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("assigned", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("revoked", revoked)

    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        session_timeout_ms=options.session_ms,
        heartbeat_interval_ms=options.session_ms // 10,
    )
    consumer.subscribe([options.topic], listener=Listener())
    while not stopping:
        # A poll that ends while the consumer is joining loses the assignment: kafka-python 3.0.12
        # reads the SyncGroup response, does not act on it, and no later poll does. Joining takes
        # more than a few milliseconds on a busy machine.
        for records in consumer.poll(timeout_ms=2_000).values():
            for record in records:
                say(record=[record.partition, record.offset])
    consumer.close()


def consume_ottla(options: argparse.Namespace) -> None:
    from ottla import Consumer

    class Listener:
        def on_assigned(self, partitions: Any) -> None:
            say_partitions("assigned", partitions)

        def on_revoked(self, partitions: Any) -> None:
            say_partitions("revoked", partitions)

    properties: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "group_protocol": options.protocol,
        "group_instance_id": options.instance,
        "fetch_max_wait_ms": 100,
    }
    if options.protocol == "classic":
        properties["session_timeout_ms"] = options.session_ms
        properties["heartbeat_interval_ms"] = options.session_ms // 10
        properties["partition_assignment_strategy"] = options.strategy
    with Consumer(options.bootstrap, group_id=options.group, **properties) as consumer:
        consumer.subscribe([options.topic], listener=Listener())
        while not stopping:
            for record in consumer.poll(0.05):
                say(record=[record.partition, record.offset])


async def consume_aiokafka(options: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.abc import ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("assigned", assigned)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("revoked", revoked)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        session_timeout_ms=options.session_ms,
        heartbeat_interval_ms=options.session_ms // 10,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    consumer.subscribe([options.topic], listener=Listener())
    await consumer.start()
    while not stopping:
        for records in (await consumer.getmany(timeout_ms=50)).values():
            for record in records:
                say(record=[record.partition, record.offset])
    await consumer.stop()


def stop(*_: Any) -> None:
    global stopping
    stopping = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=["confluent-kafka", "kafka-python", "aiokafka", "ottla"])
    for name in ("bootstrap", "group", "topic"):
        parser.add_argument(name)
    parser.add_argument("--session-ms", type=int, default=2_000)
    parser.add_argument("--strategy", default="range")
    parser.add_argument("--protocol", default="classic")
    parser.add_argument("--instance", default="")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    if options.client == "confluent-kafka":
        consume_confluent(options)
    elif options.client == "ottla":
        consume_ottla(options)
    elif options.client == "kafka-python":
        consume_kafka_python(options)
    else:
        asyncio.run(consume_aiokafka(options))


if __name__ == "__main__":
    main()

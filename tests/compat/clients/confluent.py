"""confluent-kafka: librdkafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.clients.record import (
    TIMEOUT_S,
    ManagingClient,
    OnRecord,
    ProduceRefused,
    Received,
    Sent,
)


class Confluent(ManagingClient):
    name = "confluent-kafka"

    @cached_property
    def admin(self) -> AdminClient:
        """Return the cached admin client; its calls are cancelled when it is collected."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        futures = self.admin.create_topics([NewTopic(topic, partitions, 1)])
        futures[topic].result(TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": compression,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": 50_000_000,
                "linger.ms": 20,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
            }
        )
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                errors.append(error)

        for record in records:
            stamp: dict[str, Any] = (
                {} if record.timestamp is None else {"timestamp": record.timestamp}
            )
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                headers=list(record.headers),
                on_delivery=delivered,
                **stamp,
            )
        assert producer.flush(TIMEOUT_S) == 0
        if errors:
            raise ProduceRefused(errors[0].code())

    def consumer(self, **config: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "not-used",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **config,
            }
        )

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int = 0,
        max_wait_ms: int = 500,
        on_record: OnRecord = lambda record: None,
    ) -> list[Received]:
        consumer = self.consumer(**{"fetch.wait.max.ms": max_wait_ms})
        consumer.assign([TopicPartition(topic, partition, offset)])
        found: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < count and time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                found.append(_received(message))
                on_record(found[-1])
        finally:
            consumer.close()
        return found

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        consumer = self.consumer()
        try:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp)], timeout=TIMEOUT_S
            )
        finally:
            consumer.close()
        return found.offset if found.offset >= 0 else None


def _received(message: Any) -> Received:
    return Received(
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )

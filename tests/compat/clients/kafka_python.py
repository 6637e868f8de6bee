"""kafka-python: pure Python, threads."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.codec import has_snappy
from kafka.errors import KafkaError
from tests.compat.clients.record import (
    CODECS,
    TIMEOUT_S,
    ManagingClient,
    OnRecord,
    ProduceRefused,
    Received,
    Sent,
)


class KafkaPython(ManagingClient):
    name = "kafka-python"
    codecs = tuple(codec for codec in CODECS if codec != "snappy" or has_snappy())

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)

    def can_send(self, record: Sent) -> bool:
        return record.key is not None or record.value is not None

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        admin = self.admin()
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])
        finally:
            admin.close()

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()
        try:
            admin.delete_topics([topic])
        finally:
            admin.close()

    def topics(self) -> set[str]:
        admin = self.admin()
        try:
            return set(admin.list_topics())
        finally:
            admin.close()

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
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if compression == "none" else compression,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            max_request_size=50_000_000,
            batch_size=65_536,
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            for future in futures:
                future.get(TIMEOUT_S)
        except KafkaError as error:
            raise ProduceRefused(error.errno) from error
        finally:
            producer.close()

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
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="none",
            fetch_max_wait_ms=max_wait_ms,
            max_partition_fetch_bytes=50_000_000,
        )
        where = TopicPartition(topic, partition)
        consumer.assign([where])
        consumer.seek(where, offset)
        found: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < count and time.monotonic() < deadline:
                for record in consumer.poll(100).get(where, ()):
                    found.append(
                        Received(
                            record.offset,
                            record.timestamp,
                            record.key,
                            record.value,
                            tuple(record.headers),
                        )
                    )
                    on_record(found[-1])
        finally:
            consumer.close()
        return found[:count]

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        where = TopicPartition(topic, partition)
        try:
            found = consumer.offsets_for_times({where: timestamp})[where]
        finally:
            consumer.close()
        return None if found is None else found.offset

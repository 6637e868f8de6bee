"""aiokafka: asyncio, with older versions of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from tests.compat.clients.record import (
    TIMEOUT_S,
    ManagingClient,
    OnRecord,
    ProduceRefused,
    Received,
    Sent,
)

T = TypeVar("T")


class AioKafka(ManagingClient):
    name = "aiokafka"

    def with_admin(self, use: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        async def run() -> T:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await use(admin)
            finally:
                await admin.close()

        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))

    def can_send(self, record: Sent) -> bool:
        return record.key is not None or record.value is not None

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        new = NewTopic(topic, partitions, 1)
        answer = self.with_admin(lambda admin: admin.create_topics([new]))
        assert [error[1] for error in answer.topic_errors] == [0], answer

    def delete_topic(self, topic: str) -> None:
        answer = self.with_admin(lambda admin: admin.delete_topics([topic]))
        assert answer.topic_error_codes == [(topic, 0)]

    def topics(self) -> set[str]:
        return set(self.with_admin(lambda admin: admin.list_topics()))

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
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if compression == "none" else compression,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                max_request_size=50_000_000,
                max_batch_size=65_536,
                linger_ms=20,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                await asyncio.gather(*futures)
            except KafkaError as error:
                raise ProduceRefused(error.errno) from error
            finally:
                await producer.stop()

        asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))

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
        async def use(consumer: AIOKafkaConsumer) -> list[Received]:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, offset)
            found: list[Received] = []
            while len(found) < count:
                found.append(_received(await consumer.getone()))
                on_record(found[-1])
            return found

        return self.with_consumer(use, fetch_max_wait_ms=max_wait_ms)

    def with_consumer(self, use: Callable[[AIOKafkaConsumer], Awaitable[T]], **config: Any) -> T:
        async def run() -> T:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                auto_offset_reset="none",
                max_partition_fetch_bytes=50_000_000,
                **config,
            )
            await consumer.start()
            try:
                return await use(consumer)
            finally:
                await consumer.stop()

        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        where = TopicPartition(topic, partition)
        answer = self.with_consumer(lambda consumer: consumer.offsets_for_times({where: timestamp}))
        return None if answer[where] is None else answer[where].offset


def _received(record: Any) -> Received:
    return Received(
        record.offset, record.timestamp, record.key, record.value, tuple(record.headers)
    )

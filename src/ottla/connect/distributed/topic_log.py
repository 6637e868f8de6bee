"""Compacted topic that is read to its end and then followed, in a thread of its own.

That thread passes each record to a callback. `read_to_end` waits until all records that are now in
the topic were processed. If the brokers are unavailable, the thread retries, and the state built so
far stays valid.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.base.errors import KafkaError, UserError
from ottla.base.types import TopicPartition
from ottla.connect.topics import make_topics

logger = logging.getLogger(__name__)

POLL_S = 0.2
PAUSE_S = 1.0
START_TIMEOUT_S = 60.0


class TopicLog:
    """Follower of a topic.

    Args:
        client: Properties of the clients.
        topic: Name of the topic, which is created if it does not exist.
        on_record: Called with each record.
        partitions: Number of partitions of a new topic.
        replication: Replication factor of a new topic.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        topic: str,
        on_record: Callable[[Any], None],
        *,
        partitions: int = 1,
        replication: int = -1,
    ) -> None:
        self.topic = topic
        self._client = dict(client)
        self._on_record = on_record
        self._shape = (partitions, replication)
        self._positions: dict[TopicPartition, int] = {}
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"log-{topic}", daemon=True)

    def start(self) -> None:
        """Create the topic and read it to its end; raise UserError or KafkaError on failure."""
        configs = {"cleanup.policy": "compact"}
        make_topics(self._client, [self.topic], *self._shape, configs)
        self._thread.start()
        self.read_to_end(START_TIMEOUT_S)

    @property
    def offset(self) -> int:
        """Offset of the next record; only meaningful for a topic with one partition."""
        with self._moved:
            return max(self._positions.values(), default=0)

    def read_to_end(self, timeout_s: float = 30.0) -> None:
        from ottla.client.admin import Admin, OffsetSpec

        with Admin(profile=self._client) as admin:
            described = admin.describe_topics(self.topic)[self.topic]
            if self._shape[0] == 1 and len(described.partitions) != 1:
                raise UserError(f"Topic {self.topic} must have exactly one partition.")
            wanted = [TopicPartition(self.topic, each.partition) for each in described.partitions]
            listed = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        ends = {tp: each.offset or 0 for tp, each in listed.items()}
        until = time.monotonic() + timeout_s
        with self._moved:
            while any(self._positions.get(tp, 0) < end for tp, end in ends.items()):
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise UserError(
                        f"Topic {self.topic} could not be read to its end within {timeout_s:.0f} s."
                    )
                self._moved.wait(left_s)

    def close(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(10)

    # ----------------------------------------------------------------------------- following

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow_once()
            except KafkaError as error:
                logger.warning("could not read topic %s, retrying: %s", self.topic, error)
                self._stopping.wait(PAUSE_S)

    def _follow_once(self) -> None:
        from ottla.client.consumer.consumer import Consumer

        with Consumer(
            profile=self._client,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=5_000,
        ) as consumer:
            partitions = consumer.partitions_for(self.topic)
            consumer.assign(partitions)
            for tp in partitions:
                if tp in self._positions:
                    consumer.seek(tp, self._positions[tp])
            while not self._stopping.is_set():
                records = consumer.poll(POLL_S)
                for record in records:
                    self._on_record(record)
                positions = {tp: consumer.position(tp) for tp in partitions}
                if positions != self._positions:
                    with self._moved:
                        self._positions = positions
                        self._moved.notify_all()

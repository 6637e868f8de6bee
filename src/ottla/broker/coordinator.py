"""The common part of the group coordinator and the transaction coordinator.

A coordinator has an internal topic and one shard for each partition of it that this broker leads.
It decides from its creation until `stop`. Afterwards it answers COORDINATOR_NOT_AVAILABLE."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.coordinator_runtime import (
    CoordinatorRuntime,
    RuntimeBroker,
    RuntimePorts,
    RuntimeSettings,
    ShardState,
)
from ottla.broker.internal_topic import InternalTopic, InternalTopicPorts
from ottla.broker.partition import Partition
from ottla.broker.timers import Timers
from ottla.core.coordinator import Event, Shard, Token

ReplyT = TypeVar("ReplyT")


class CoordinatorPorts(InternalTopicPorts, RuntimeBroker, Protocol):
    """The parts of a broker that every coordinator uses."""


class Coordinator:
    """The coordinator of the keys whose state is in partitions led by this broker."""

    def __init__(
        self,
        broker: CoordinatorPorts,
        topic: str,
        new_shard: Callable[[], Shard],
        settings: RuntimeSettings,
    ) -> None:
        """Create a coordinator without shards.

        Args:
            broker: The broker that it runs in.
            topic: The internal topic that stores its state.
            new_shard: Creates an empty shard.
            settings: Settings of this kind of coordinator.
        """
        self._timers = Timers(broker.clock)
        self.runtime = CoordinatorRuntime(
            RuntimePorts.of(broker, self._timers), new_shard, settings
        )
        self.topic = InternalTopic(broker, topic)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = True

    def stop(self) -> None:
        """Stop deciding, and fail all pending requests."""
        self._is_open = False
        for task in self._tasks:
            task.cancel()
        self.runtime.close()
        self._timers.cancel_all()

    def partition_opened(self, partition: Partition) -> None:
        self.runtime.partition_opened(partition.key.partition, partition)

    def partition_closed(self, partition: Partition) -> None:
        self.runtime.partition_closed(partition.key.partition)

    def _check_open(self) -> None:
        """Raise KafkaError if the coordinator has stopped."""
        if not self._is_open:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _partition_for(self, key: str) -> int:
        """Return the partition that stores a group or transactional ID. Raises KafkaError if the
        coordinator has stopped or has no topic yet."""
        self._check_open()
        index = self.topic.partition_for(key)
        if index is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return index

    def _submit(self, key: str, event: Event) -> None:
        """Submit an event about one key. Its token gets the response or the error."""
        try:
            index = self._partition_for(key)
        except KafkaError as error:
            if event.token is not None:
                event.token.fail(error)
        else:
            self.runtime.submit(index, event)

    def _submit_to_all(
        self, new_token: Callable[[], Token[ReplyT]], event: Callable[[Token[ReplyT]], Event]
    ) -> None:
        """Submit an event to every shard, each with a token of its own. A shard that is loading
        replies with an error."""
        try:
            self._check_open()
        except KafkaError as error:
            new_token().fail(error)
        for runner in self.runtime.runners:
            if runner.state is not ShardState.CLOSED:
                runner.submit(event(new_token()))

"""An internal topic that stores a coordinator's state.

It is created when a client first looks for the coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from ottla.base.cluster import TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.ports import Metadata
from ottla.core.controller.create_topics import TopicDecision
from ottla.core.group.hashing import partition_for

logger = logging.getLogger(__name__)


class TopicCreator(Protocol):
    """The part of the controller that creates topics without a request for them."""

    async def auto_create_topics(self, names: Sequence[str]) -> list[TopicDecision]: ...


class InternalTopicPorts(Metadata, Protocol):
    """The parts of a broker that an internal topic uses."""

    @property
    def controller(self) -> TopicCreator: ...


class InternalTopic:
    """One of `__consumer_offsets` and `__transaction_state`."""

    def __init__(self, broker: InternalTopicPorts, name: str) -> None:
        self.name = name
        self._broker = broker
        self._creation: asyncio.Task[None] | None = None
        self._logged_reason = ""

    @property
    def image(self) -> TopicImage | None:
        return self._broker.image.topics.get(self.name)

    def partition_for(self, key: str) -> int | None:
        """Return the partition that stores a group or transactional ID, or None if the topic does
        not exist yet."""
        image = self.image
        return None if image is None else partition_for(key, len(image.partitions))

    async def create(self) -> None:
        """Create the topic if it does not exist. Raises KafkaError if it cannot be created."""
        if self.image is not None:
            return
        if self._creation is None:
            self._creation = asyncio.ensure_future(self._create())
            self._creation.add_done_callback(self._created)
        await asyncio.shield(self._creation)

    async def _create(self) -> None:
        (decision,) = await self._broker.controller.auto_create_topics([self.name])
        if decision.error is not None and self.image is None:
            reason = decision.error.message
            if reason != self._logged_reason:  # clients retry often; log each reason once
                logger.error("Could not create %s: %s", self.name, reason)
                self._logged_reason = reason
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    def _created(self, task: asyncio.Task[None]) -> None:
        self._creation = None
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the callers of `create` have seen it

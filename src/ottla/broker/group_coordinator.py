"""The group coordinator of a broker: the shards of the offsets topic, and their surroundings.

Decisions are in core/group; this brings them the partitions, the clock and the requests. The topic
is made when somebody first asks for a coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.base.cluster import TopicImage
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.group import group_config
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.coordinator_runtime import (
    CoordinatorRuntime,
    RuntimePorts,
    RuntimeSettings,
    ShardState,
)
from ottla.broker.internal_topic import InternalTopic
from ottla.broker.partition import Partition
from ottla.broker.timers import Timers
from ottla.core.coordinator import Event, Producer, Token
from ottla.core.group.events import GroupEvent, ListRequested, RetentionChecked, TopicDeleted
from ottla.core.group.settings import GroupSettings
from ottla.core.group.shard import GroupShard

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
_NO_CONFIGS: Mapping[str, int] = {}
GROUPS_PER_CHECK = 500
"""How many groups are looked at for expired offsets between two looks at the loop."""


class GroupCoordinator:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config
        self.settings = GroupSettings.of(config)
        self._timers = Timers(broker.clock)
        ports = RuntimePorts(
            broker.clock,
            self._timers,
            broker.flusher,
            broker.run_blocking,
            broker.spawn,
            broker.check_may_lead,
            broker.proof_of_leading,
        )
        settings = RuntimeSettings(
            config.offsets_topic_compression_codec, config.offsets_load_buffer_size
        )
        self.serves_consumer_protocol = "consumer" in config.group_coordinator_rebalance_protocols
        self.runtime = CoordinatorRuntime(ports, self._new_shard, settings)
        self.topic = InternalTopic(broker, OFFSETS_TOPIC)
        self._is_open = True
        self._retention: asyncio.Task[None] | None = None

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, self._broker.image, self._configs_of)

    def _configs_of(self, group_id: str) -> Mapping[str, int]:
        own = self._broker.image.group_configs.get(group_id)
        if not own:
            return _NO_CONFIGS
        try:
            return group_config(self._broker.config, own)
        except KafkaError:
            return _NO_CONFIGS  # the broker's limits have changed since it was set

    def use_config(self, config: BrokerConfig) -> None:
        """Properties have changed while the broker runs."""
        self.settings = GroupSettings.of(config)
        for runner in self.runtime.runners:
            assert isinstance(runner.shard, GroupShard)
            runner.shard.settings = self.settings

    # --------------------------------------------------------------------------- life and death

    def start(self) -> None:
        self._retention = asyncio.ensure_future(self._check_retention_for_ever())

    def stop(self) -> None:
        """Nothing is decided any more, and nobody is kept waiting."""
        self._is_open = False
        if self._retention is not None:
            self._retention.cancel()
        self.runtime.close()
        self._timers.cancel_all()

    def partition_opened(self, partition: Partition) -> None:
        self.runtime.partition_opened(partition.key.partition, partition)

    def topic_deleted(self, topic: TopicImage) -> None:
        """Its offsets go; or, if it is ours, all groups do."""
        if topic.name == self.topic.name:
            self.runtime.close()
            return
        for runner in self.runtime.runners:
            if runner.state is ShardState.ACTIVE:
                runner.submit(TopicDeleted(None, topic.name, topic.topic_id))

    # ------------------------------------------------------------------------------- for handlers

    def submit(self, event: GroupEvent) -> None:
        """Decide an event about a group; its token gets the answer, or the error."""
        if not self._is_open:
            _fail(event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        index = self.topic.partition_for(event.group_id)
        if index is None:
            _fail(event, ErrorCode.NOT_COORDINATOR)
        else:
            self.runtime.submit(index, event)

    def end_transaction(
        self,
        index: int,
        producer: Producer,
        coordinator_epoch: int,
        token: Token,
        *,
        commit: bool,
    ) -> None:
        """A transaction ends in one partition of the offsets topic: the marker is written and the
        offsets committed in it count, or are forgotten."""
        if not self._is_open:
            token.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self.runtime.end_transaction(index, producer, coordinator_epoch, token, commit=commit)

    def list_groups(
        self, states: frozenset[str], types: frozenset[str], new_token: Callable[[], Token]
    ) -> None:
        """Ask every shard; each answers to a token of its own. Those that load say so."""
        if not self._is_open:
            new_token().fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        for runner in self.runtime.runners:
            if runner.state is not ShardState.CLOSED:
                runner.submit(ListRequested(new_token(), states, types))

    # ---------------------------------------------------------------------------------- retention

    async def _check_retention_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.offsets_retention_check_interval_ms / 1000)
            try:
                await self.check_retention()
            except Exception:
                logger.exception("expired offsets were not all removed; it is tried again later")

    async def check_retention(self) -> None:
        """Remove offsets that have expired, and groups of which nothing is left."""
        for runner in self.runtime.runners:
            shard = runner.shard
            assert isinstance(shard, GroupShard)
            for group_ids in _chunks(list(shard.groups)):
                if runner.state is ShardState.ACTIVE:
                    runner.submit(RetentionChecked(None, group_ids))
                await asyncio.sleep(0)


def _chunks(group_ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(group_ids), GROUPS_PER_CHECK):
        yield group_ids[start : start + GROUPS_PER_CHECK]


def _fail(event: Event, code: ErrorCode) -> None:
    if event.token is not None:
        event.token.fail(KafkaError(code))

"""The group coordinator of a broker: the shards of `__consumer_offsets` and what they need.

Decisions are in core/group. This module supplies the partitions, the clock and the requests. The
topic is created when a client first looks for a coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.base.cluster import TopicImage
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.group import group_config
from ottla.base.errors import KafkaError
from ottla.broker.coordinator import Coordinator, CoordinatorPorts
from ottla.broker.coordinator_runtime import RuntimeSettings, ShardState
from ottla.broker.ports import Configuration
from ottla.core.coordinator import ProducerIdAndEpoch, Token
from ottla.core.group.events import GroupEvent, ListRequested, RetentionChecked, TopicDeleted
from ottla.core.group.settings import GroupSettings
from ottla.core.group.shard import GroupShard

if TYPE_CHECKING:
    from ottla.wire.messages.list_groups import ListGroupsResponseDict

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
_NO_CONFIGS: Mapping[str, int] = {}
GROUPS_PER_CHECK = 500
"""Number of groups checked for expired offsets before the event loop does other work."""


class GroupCoordinatorPorts(CoordinatorPorts, Configuration, Protocol):
    """The parts of a broker that the group coordinator uses."""


class GroupCoordinator(Coordinator):
    """The coordinator of the groups whose state is in partitions led by this broker."""

    def __init__(self, broker: GroupCoordinatorPorts) -> None:
        self._broker = broker
        config = broker.config
        self.settings = GroupSettings.of(config)
        self.serves_consumer_protocol = "consumer" in config.group_coordinator_rebalance_protocols
        settings = RuntimeSettings(
            config.offsets_topic_compression_codec,
            config.offsets_load_buffer_size,
            config.offsets_commit_timeout_ms,
        )
        super().__init__(broker, OFFSETS_TOPIC, self._new_shard, settings)

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, self._broker.image, self._configs_of)

    def _configs_of(self, group_id: str) -> Mapping[str, int]:
        own = self._broker.image.group_configs.get(group_id)
        if not own:
            return _NO_CONFIGS
        try:
            return group_config(self._broker.config, own)
        except KafkaError:
            return _NO_CONFIGS  # no longer valid: the broker's limits have changed since

    def use_config(self, config: BrokerConfig) -> None:
        """Apply a dynamic change of the broker's configuration."""
        self.settings = GroupSettings.of(config)
        for runner in self.runtime.runners:
            assert isinstance(runner.shard, GroupShard)
            runner.shard.settings = self.settings

    def permissions_changed(self) -> None:
        """Find out again which topics match the patterns that members have subscribed to."""
        for runner in self.runtime.runners:
            assert isinstance(runner.shard, GroupShard)
            runner.shard.permissions_changed()

    # --------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        self._tasks = [asyncio.ensure_future(self._retention_loop())]

    def topic_deleted(self, topic: TopicImage) -> None:
        """Remove the offsets of a deleted topic, or all groups if it is the offsets topic."""
        if topic.name == self.topic.name:
            self.runtime.close()
            return
        for runner in self.runtime.runners:
            if runner.state is ShardState.ACTIVE:
                runner.submit(TopicDeleted(None, topic.name, topic.topic_id))

    # ------------------------------------------------------------------------------- for handlers

    def submit(self, event: GroupEvent) -> None:
        """Submit an event about a group. Its token gets the response or the error."""
        self._submit(event.group_id, event)

    def end_transaction(
        self,
        index: int,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        token: Token[None],
        *,
        commit: bool,
    ) -> None:
        """Write a transaction marker to a partition of the offsets topic, and commit or drop the
        offsets of that transaction."""
        try:
            self._check_open()
        except KafkaError as error:
            token.fail(error)
            return
        self.runtime.end_transaction(index, producer, coordinator_epoch, token, commit=commit)

    def list_groups(
        self,
        states: frozenset[str],
        types: frozenset[str],
        new_token: Callable[[], Token[ListGroupsResponseDict]],
    ) -> None:
        """Ask every shard for its groups; each replies to a token of its own. A shard that is
        loading replies with an error."""
        self._submit_to_all(new_token, lambda token: ListRequested(token, states, types))

    # ---------------------------------------------------------------------------------- retention

    async def _retention_loop(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.offsets_retention_check_interval_ms / 1000)
            try:
                await self.check_retention()
            except Exception:
                logger.exception("Could not remove all expired offsets; retrying later")

    async def check_retention(self) -> None:
        """Remove expired offsets, and groups that have nothing left."""
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

"""Choice of the group protocol.

The consumer joins with the consumer protocol (KIP-848) if it is configured and the broker
supports it, otherwise with the classic one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.client.cluster import Cluster, CoordinatorType, Purpose
from ottla.client.consumer.classic import ClassicMember
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.consumer_protocol import ConsumerProtocolMember
from ottla.client.consumer.membership import PollProgress
from ottla.client.consumer.rebalance import Rebalances
from ottla.client.consumer.subscription import Subscription
from ottla.client.errors import ClientError, UnsupportedVersion
from ottla.net.connection import Connection
from ottla.wire.api import Api

logger = logging.getLogger(__name__)


class Joining:
    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: Subscription,
        rebalances: Rebalances,
        progress: PollProgress,
        on_failure: Callable[[ClientError], None],
    ) -> None:
        self.member: ClassicMember | ConsumerProtocolMember | None = None
        self._cluster = cluster
        self._config = config
        self._subscription = subscription
        self._rebalances = rebalances
        self._progress = progress
        self._on_failure = on_failure
        self._is_under_way = False

    def must_begin(self) -> bool:
        """Notify the member, if there is one, of a changed subscription.

        Returns:
            True if there is no member, so that the caller must run `join`.
        """
        if self.member is not None:
            self.member.subscription_changed()
            return False
        wanted = self._subscription.topics or self._subscription.remote_pattern
        return bool(wanted) and not self._is_under_way

    async def join(self) -> None:
        self._is_under_way = True
        protocol = self._config.group_protocol.lower()
        try:
            if protocol == "auto":
                protocol = await self._protocol_of_broker()
        finally:
            self._is_under_way = False
        if self.member is None and self._subscription.is_of_group:
            self._join_with_consumer_protocol() if protocol == "consumer" else self._join_classic()

    async def leave(self) -> None:
        member, self.member = self.member, None
        if member is not None:
            await member.close()

    async def _protocol_of_broker(self) -> str:
        if self._config.names_classic_settings:
            return "classic"
        group_id, kind = self._config.group_id, CoordinatorType.GROUP

        async def ask() -> Connection:
            node = await self._cluster.coordinator(kind, group_id)
            return await self._cluster.connection(node, Purpose.COORDINATION)

        connection = await self._cluster.retrying(ask, what=f"finding group {group_id}")
        return "consumer" if Api.CONSUMER_GROUP_HEARTBEAT in connection.api_versions else "classic"

    def _join_classic(self) -> None:
        if self._subscription.remote_pattern is not None:
            self._on_failure(UnsupportedVersion(
                "a SubscriptionPattern requires group.protocol=consumer (KIP-848); "
                "a compiled pattern works with both protocols"
            ))  # fmt: skip
            return
        self.member = ClassicMember(
            self._cluster, self._config, self._subscription, self._rebalances,
            self._progress, self._on_failure,
        )  # fmt: skip

    def _join_with_consumer_protocol(self) -> None:
        self.member = ConsumerProtocolMember(
            self._cluster, self._config, self._subscription, self._rebalances,
            self._progress, self._on_failure, self._on_unsupported_protocol,
        )  # fmt: skip

    def _on_unsupported_protocol(self, error: ClientError) -> None:
        self.member = None
        if self._config.group_protocol.lower() == "auto":
            logger.info("group %s uses the classic protocol: %s", self._config.group_id, error)
            self._join_classic()
        else:
            self._on_failure(error)

"""Heartbeat protocol of a member of the consumer group protocol (KIP-848), without I/O.

    epoch 0      joining: the request carries all fields
    epoch > 0    member: only changed fields are sent, null stands for the others
    epoch -1     leaving; -2: a static member leaves temporarily

The coordinator responds with the member's epoch and, when it changes, the member's target
assignment. That only ever contains partitions that no other member owns, so the member revokes the
partitions that are not in it, adds those that are new, and then reports what it owns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.base.types import TopicPartition

if TYPE_CHECKING:
    from ottla.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequestDict,
        ConsumerGroupHeartbeatResponse,
        TopicPartitionsRequestDict,
    )

JOINING = 0
LEAVING = -1
LEAVING_TEMPORARILY = -2

IdPartition: TypeAlias = tuple[bytes, int]
"""Topic ID and partition number."""


class SubscribedTopics(NamedTuple):
    """Subscription of the member."""

    topics: tuple[str, ...]
    regex: str | None
    """Pattern that the broker resolves."""


class ConsumerProtocolState:
    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int,
        assignor: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.epoch = JOINING
        self.heartbeat_interval_ms = 0
        """Interval set by the coordinator, or 0 before its first response."""
        self.target: frozenset[IdPartition] | None = None
        """Target assignment, or None before the coordinator has sent one."""
        self.owned: frozenset[IdPartition] = frozenset()
        self._group_id = group_id
        self._instance_id = instance_id
        self._rack_id = rack_id
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._assignor = assignor
        self._sent: tuple[SubscribedTopics, frozenset[IdPartition]] | None = None
        """Subscription and partitions last sent to the coordinator; None: send everything again."""

    @property
    def is_member(self) -> bool:
        return self.epoch > 0

    @property
    def is_reconciled(self) -> bool:
        return self.target is None or self.target == self.owned

    def request(self, wanted: SubscribedTopics) -> ConsumerGroupHeartbeatRequestDict:
        """Return the body of the next heartbeat."""
        sent, self._sent = self._sent, (wanted, self.owned)
        body: ConsumerGroupHeartbeatRequestDict = {
            "group_id": self._group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self._instance_id,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "topic_partitions": None,
        }
        if sent is None or self.epoch == JOINING:
            body["rack_id"] = self._rack_id
            body["rebalance_timeout_ms"] = self._rebalance_timeout_ms
            body["server_assignor"] = self._assignor
        if sent is None or sent[0] != wanted or self.epoch == JOINING:
            body["subscribed_topic_names"] = list(wanted.topics)
            body["subscribed_topic_regex"] = wanted.regex or (None if sent is None else "")
        if sent is None or sent[1] != self.owned or self.epoch == JOINING:
            body["topic_partitions"] = _by_topic(self.owned)
        return body

    def leave_request(self) -> ConsumerGroupHeartbeatRequestDict:
        epoch = LEAVING if self._instance_id is None else LEAVING_TEMPORARILY
        return {
            "group_id": self._group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self._instance_id,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }

    def on_response(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Update the state from a response without an error."""
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self.target = frozenset(
                (topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            )

    def on_failure(self) -> None:
        """Send all fields with the next heartbeat, because the last one failed."""
        self._sent = None

    def start_over(self) -> None:
        """Reset the state to join again, because the group no longer knows this member."""
        self.epoch = JOINING
        self.target = None
        self.owned = frozenset()
        self._sent = None


def resolve(
    wanted: Iterable[IdPartition], names: Mapping[bytes, str]
) -> tuple[dict[TopicPartition, IdPartition], set[bytes]]:
    """Map partitions to topic names; return also the IDs of topics whose names are unknown."""
    found: dict[TopicPartition, IdPartition] = {}
    unknown: set[bytes] = set()
    for topic_id, partition in wanted:
        name = names.get(topic_id)
        if name is None:
            unknown.add(topic_id)
        else:
            found[TopicPartition(name, partition)] = (topic_id, partition)
    return found, unknown


def _by_topic(partitions: Iterable[IdPartition]) -> list[TopicPartitionsRequestDict]:
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        found[topic_id].append(partition)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in found.items()]

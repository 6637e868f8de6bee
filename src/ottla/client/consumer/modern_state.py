"""What a member of a group of the new protocol (KIP-848) tells its coordinator, and is told. Pure.

    epoch 0      joining: everything is told
    epoch > 0    a member: only what has changed is told, null stands for the rest
    epoch -1     leaving; -2: a static member leaves for a while

The coordinator answers with the member's epoch, and, when it changes, with the assignment that the
member is to have next. It only ever names partitions that are free for this member, so the member
gives back what is not in it, takes what is new, and then tells what it has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ottla.base.types import TopicPartition

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2

IdPartition: TypeAlias = tuple[bytes, int]
"""A topic's id and a partition."""


class Wanted(NamedTuple):
    """What the user wants of the group."""

    topics: tuple[str, ...]
    regex: str | None
    """Resolved by the broker."""


class ModernState:
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
        """The coordinator's to say; 0: it has not said yet."""
        self.target: frozenset[IdPartition] | None = None
        """What this member is to have next; None: nothing was said."""
        self.owned: frozenset[IdPartition] = frozenset()
        self._group_id = group_id
        self._instance_id = instance_id
        self._rack_id = rack_id
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._assignor = assignor
        self._told: tuple[Wanted, frozenset[IdPartition]] | None = None
        """What the coordinator knows; None: it may know nothing."""

    @property
    def is_member(self) -> bool:
        return self.epoch > 0

    @property
    def is_reconciled(self) -> bool:
        return self.target is None or self.target == self.owned

    def request(self, wanted: Wanted) -> dict[str, Any]:
        """The next heartbeat."""
        told, self._told = self._told, (wanted, self.owned)
        body: dict[str, Any] = {
            "group_id": self._group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self._instance_id,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "topic_partitions": None,
        }
        if told is None or self.epoch == JOINING:
            body["rack_id"] = self._rack_id
            body["rebalance_timeout_ms"] = self._rebalance_timeout_ms
            body["server_assignor"] = self._assignor
        if told is None or told[0] != wanted or self.epoch == JOINING:
            body["subscribed_topic_names"] = list(wanted.topics)
            body["subscribed_topic_regex"] = wanted.regex or (None if told is None else "")
        if told is None or told[1] != self.owned or self.epoch == JOINING:
            body["topic_partitions"] = _by_topic(self.owned)
        return body

    def leave_request(self) -> dict[str, Any]:
        epoch = LEAVING if self._instance_id is None else LEAVING_FOR_A_WHILE
        return {
            "group_id": self._group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self._instance_id,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "topic_partitions": None,
        }

    def was_told(self, answer: Any) -> None:
        """An answer without an error."""
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        self.heartbeat_interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.target = frozenset(
                (topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            )

    def was_not_heard(self) -> None:
        """No answer came, or an error: tell everything again."""
        self._told = None

    def start_over(self) -> None:
        """The group does not know this member any more."""
        self.epoch = JOINING
        self.target = None
        self.owned = frozenset()
        self._told = None


def resolve(
    wanted: Iterable[IdPartition], names: Mapping[bytes, str]
) -> tuple[dict[TopicPartition, IdPartition], set[bytes]]:
    """Partitions by their topics' names, and the ids that have none yet."""
    found: dict[TopicPartition, IdPartition] = {}
    unknown: set[bytes] = set()
    for topic_id, partition in wanted:
        name = names.get(topic_id)
        if name is None:
            unknown.add(topic_id)
        else:
            found[TopicPartition(name, partition)] = (topic_id, partition)
    return found, unknown


def _by_topic(partitions: Iterable[IdPartition]) -> list[dict[str, Any]]:
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        found[topic_id].append(partition)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in found.items()]

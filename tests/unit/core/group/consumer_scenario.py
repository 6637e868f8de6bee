"""Consumer groups without a broker: topics, and members that follow the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.core.group.scenario import GROUP, Call, Scenario

from ottla.base.cluster import PartitionState, TopicImage
from ottla.base.errors import ErrorCode
from ottla.core.group import events
from ottla.core.group.consumer_group import ConsumerGroup
from ottla.core.group.consumer_records import Assignment
from ottla.core.group.settings import GroupSettings
from ottla.core.group.shard import GroupShard

SESSION_MS = 45_000
REBALANCE_MS = 300_000
AT_ONCE = GroupSettings(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)


class Topics:
    """Topics that tests create and delete."""

    def __init__(self, **counts: int) -> None:
        self.revision = self.names_revision = 0
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self._ids = 0
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> bytes:
        self._ids += 1
        self.names_revision = self.revision + 1
        return self._put(name, self._ids.to_bytes(16, "big"), count)

    def grow(self, name: str, count: int) -> None:
        self._put(name, self.topics[name].topic_id, count)

    def _put(self, name: str, topic_id: bytes, count: int) -> bytes:
        partitions = tuple(PartitionState(1, 0, (1,), (1,)) for _ in range(count))
        self.topics[name] = TopicImage(name, topic_id, {}, partitions)
        self.topics_by_id[topic_id] = self.topics[name]
        self.revision += 1
        return topic_id

    def delete(self, name: str) -> None:
        del self.topics_by_id[self.topics.pop(name).topic_id]
        self.revision += 1
        self.names_revision = self.revision

    def id(self, name: str) -> bytes:
        return self.topics[name].topic_id

    def named(self, assignment: Assignment) -> dict[str, set[int]]:
        return {self.topics_by_id[id].name: set(each) for id, each in assignment.items()}


class ConsumerScenario(Scenario):
    def __init__(self, topics: Topics | None = None, settings: GroupSettings = AT_ONCE) -> None:
        super().__init__(settings)
        self.topics = Topics(t=6) if topics is None else topics
        self.configs: dict[str, Mapping[str, int]] = {}
        self.shard = GroupShard(settings, self.topics, lambda group: self.configs.get(group, {}))

    def restarted(self, settings: GroupSettings | None = None) -> ConsumerScenario:
        other = ConsumerScenario(self.topics, settings or self.settings)
        other.configs = self.configs
        other.load(self)
        return other

    def compacted(self, clean_to: int, *, keeps_tombstones: bool) -> ConsumerScenario:
        """Return a new coordinator that has loaded this one's log after compaction.

        Before offset `clean_to`, only the last record of each key is kept."""
        last = {entry.key: index for index, entry in enumerate(self.log[:clean_to])}
        kept = [
            entry
            for index, entry in enumerate(self.log)
            if index >= clean_to
            or (last[entry.key] == index and (keeps_tombstones or entry.value is not None))
        ]
        cleaned = ConsumerScenario(self.topics, self.settings)
        cleaned.now_ms, cleaned.configs, cleaned.log = self.now_ms, self.configs, kept
        return cleaned.restarted()

    # -------------------------------------------------------------------------------- requests

    def beat(self, member_id: str, epoch: int, group: str = GROUP, **fields: Any) -> Call:
        event = events.ConsumerHeartbeat(
            Call(), group, member_id, epoch, "client", "/host", new_id="made-up", **fields
        )
        call: Call = self.submit(event)
        return call

    def enter(self, member_id: str, *topics: str, group: str = GROUP, **fields: Any) -> Call:
        """Send a member's first heartbeat, which joins the group."""
        asked = {
            "topics": list(topics) or ["t"],
            "rebalance_timeout_ms": REBALANCE_MS,
            "owned": {},
            **fields,
        }
        return self.beat(member_id, 0, group, **asked)

    def member(self, member_id: str, *topics: str, **fields: Any) -> ConsumerClient:
        """Return a member that has joined."""
        return ConsumerClient(self, member_id, *topics, **fields)

    def settle(self, *clients: ConsumerClient) -> None:
        """Send heartbeats until no member's epoch or assignment changes."""
        for _ in range(20):
            before = [(each.epoch, each.owned) for each in clients]
            for each in clients:
                each.beat()
            if before == [(each.epoch, each.owned) for each in clients]:
                return
        raise AssertionError("it never settles")

    # -------------------------------------------------------------------------------- inspection

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def described(self, group: str = GROUP) -> Any:
        call: Call = self.submit(events.ConsumerDescribeRequested(Call(), group))
        return call.answer


class ConsumerClient:
    """Member that follows every heartbeat response at once."""

    def __init__(
        self, scenario: ConsumerScenario, member_id: str, *topics: str, **fields: Any
    ) -> None:
        self.scenario, self.member_id, self.fields = scenario, member_id, fields
        self.owned: dict[bytes, frozenset[int]] = {}
        self.epoch = 0
        self.instance_id = fields.get("instance_id")
        self.take(scenario.enter(member_id, *topics, **fields))

    def take(self, call: Call) -> Call:
        if call.error is None and call.code is ErrorCode.NONE:
            self.epoch = call.answer["member_epoch"]
            if call.answer.get("assignment") is not None:
                self.owned = {
                    each["topic_id"]: frozenset(each["partitions"])
                    for each in call.answer["assignment"]["topic_partitions"]
                }
        return call

    def beat(self, **fields: Any) -> Call:
        asked = {"owned": self.owned, "instance_id": self.instance_id, **fields}
        return self.take(self.scenario.beat(self.member_id, self.epoch, **asked))

    def leave(self, epoch: int = -1) -> Call:
        return self.scenario.beat(self.member_id, epoch, instance_id=self.instance_id)

    @property
    def partitions(self) -> dict[str, set[int]]:
        return self.scenario.topics.named(self.owned)

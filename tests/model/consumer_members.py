"""Members of consumer groups, of either protocol, from the client's point of view.

A member owns the partitions that it reads from at this moment. It starts reading a partition
when it is assigned, and stops when it processes the revocation or learns that it is no longer a
member."""

from __future__ import annotations

from typing import Any

from tests.unit.core.group.consumer_scenario import REBALANCE_MS, ConsumerScenario
from tests.unit.core.group.scenario import GROUP, Call, subscription

from ottla.base.errors import ErrorCode
from ottla.core.group import events
from ottla.core.group.embedded_protocol import read_assignment, read_subscription, write_assignment

Place = tuple[bytes, int]
CLASSIC_SESSION_MS = 10_000


def places(topic_partitions: list[dict[str, Any]]) -> set[Place]:
    return {
        (each["topic_id"], number) for each in topic_partitions for number in each["partitions"]
    }


def as_owned(owned: set[Place]) -> dict[bytes, frozenset[int]]:
    topics = {topic_id for topic_id, _ in owned}
    return {topic: frozenset(number for each, number in owned if each == topic) for topic in topics}


class ConsumerMember:
    """A member that uses the consumer protocol."""

    def __init__(
        self, member_id: str, topics: tuple[str, ...] | None, pattern: str | None,
        instance_id: str | None,
    ) -> None:  # fmt: skip
        self.member_id, self.instance_id = member_id, instance_id
        self.topics, self.pattern = topics, pattern
        self.epoch = 0
        self.repeats_all = False
        """Whether the last response was lost, so that the next request repeats all fields."""
        self.owned: set[Place] = set()
        self.assigned: set[Place] = set()

    def beat(self, scenario: ConsumerScenario, *, full: bool, is_lost: bool) -> None:
        fields: dict[str, Any] = {"owned": as_owned(self.owned)}
        if self.epoch == 0:
            self.owned.clear()
            self.assigned.clear()
            fields["owned"] = {}
        if full or self.repeats_all or self.epoch == 0:
            fields |= {
                "topics": self.topics,
                "pattern": self.pattern,
                "rebalance_timeout_ms": REBALANCE_MS,
            }
        call = scenario.beat(self.member_id, self.epoch, instance_id=self.instance_id, **fields)
        self.repeats_all = is_lost or call.error is not None
        if not self.repeats_all:
            self._take(call)

    def _take(self, call: Call) -> None:
        if call.code is not ErrorCode.NONE:
            # The member was fenced or is unknown: it stops reading everything and joins again.
            assert call.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            ), call.answer
            self.epoch = 0
            self.stop()
            return
        assert call.answer["member_epoch"] >= self.epoch
        self.epoch = call.answer["member_epoch"]
        if call.answer.get("assignment") is not None:
            self.assigned = places(call.answer["assignment"]["topic_partitions"])
            self.owned |= self.assigned

    def give_up(self) -> None:
        """Stop reading partitions that are no longer assigned."""
        self.owned &= self.assigned

    def stop(self) -> None:
        self.owned.clear()
        self.assigned.clear()


class ClassicMember:
    """A member that uses the classic protocol.

    It is eager: it stops reading everything before it joins again."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.member_id, self.generation = "", -1
        self.topics = topics
        self.owned: set[Place] = set()
        self.join: Call | None = None
        self.joined: Call | None = None
        self.sync: Call | None = None

    @property
    def waits(self) -> bool:
        return any(call is not None and not call.is_done for call in (self.join, self.sync))

    def step(self, scenario: ConsumerScenario) -> None:
        """Do what a real client would do next, according to the last responses."""
        if self.waits:
            return
        if self.generation < 0:
            self._join(scenario)
        elif self.joined is not None:
            self._sync(scenario)
        else:
            event = events.HeartbeatReceived(Call(), GROUP, self.member_id, None, self.generation)
            call: Call = scenario.submit(event)
            if call.error is None and call.code is not ErrorCode.NONE:
                self._refused(call.code)
        self.look(scenario)

    def _join(self, scenario: ConsumerScenario) -> None:
        self.owned.clear()
        protocols = (("range", subscription(*self.topics)),)
        self.join = scenario.join(
            self.member_id, protocols=protocols, session_ms=CLASSIC_SESSION_MS
        )

    def _sync(self, scenario: ConsumerScenario) -> None:
        assert self.joined is not None
        members = self.joined.answer["members"]
        self.sync = scenario.sync(self.joined, assign(members, scenario) if members else {})
        self.joined = None

    def look(self, scenario: ConsumerScenario) -> None:
        """Process the responses that have arrived."""
        if self.join is not None and self.join.is_done:
            call, self.join = self.join, None
            if call.error is not None:
                self.generation = -1
            elif call.code is ErrorCode.NONE:
                self.member_id, self.generation = call.member_id, call.generation
                self.joined = call
            elif call.code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = call.member_id
            else:
                self._refused(call.code)
        if self.sync is not None and self.sync.is_done:
            call, self.sync = self.sync, None
            if call.error is not None:
                self.generation = -1
            elif call.code is ErrorCode.NONE:
                known = scenario.topics.topics
                self.owned = {
                    (known[topic].topic_id, number)
                    for topic, numbers in read_assignment(call.assignment).partitions.items()
                    if topic in known
                    for number in numbers
                }
            else:
                self._refused(call.code)

    def _refused(self, code: ErrorCode) -> None:
        """Prepare to join again; keep the owned partitions until then if still a member."""
        assert code in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ), code
        self.generation, self.joined = -1, None
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.owned.clear()
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""


def assign(members: list[dict[str, Any]], scenario: ConsumerScenario) -> dict[str, bytes]:
    """Assign each topic's partitions to its subscribers, as the leader of a classic group does."""
    topics = {each["member_id"]: read_subscription(each["metadata"]).topics for each in members}
    given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in topics}
    for name, topic in scenario.topics.topics.items():
        subscribers = [member_id for member_id in topics if name in topics[member_id]]
        for number in range(len(topic.partitions) if subscribers else 0):
            member_id = subscribers[number % len(subscribers)]
            given[member_id].setdefault(name, []).append(number)
    return {member_id: write_assignment(0, each) for member_id, each in given.items()}

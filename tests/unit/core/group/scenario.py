"""Groups without a broker: requests, a log that is a list, and a clock that the test advances.

Every record is encoded and decoded on its way into the log, so scenarios also verify the
formats."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.coordinator import NO_PRODUCER_ID, Decision, ProducerIdAndEpoch, StartTimer
from ottla.core.group import events
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.records import CommittedOffset
from ottla.core.group.settings import GroupSettings
from ottla.core.group.shard import GroupShard

GROUP = "g"
START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=3_000)
NO_DELAY = GroupSettings(initial_rebalance_delay_ms=0)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + b"\xff\xff\xff\xff"


RANGE: events.Protocols = (("range", subscription("t")),)


class Call:
    """A request and its response, once it has arrived."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.error: ErrorCode | None = None

    def reply(self, body: dict[str, Any]) -> None:
        assert not self.is_done, "answered twice"
        self.answer = body

    def fail(self, error: KafkaError) -> None:
        assert not self.is_done, "answered twice"
        self.error = error.code

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.error is not None

    @property
    def code(self) -> ErrorCode:
        assert self.answer is not None, "not answered yet"
        return ErrorCode(self.answer.get("error_code", 0))

    @property
    def member_id(self) -> str:
        member_id: str = self.answer["member_id"]
        return member_id

    @property
    def generation(self) -> int:
        assert self.code is ErrorCode.NONE, self.answer
        generation: int = self.answer["generation_id"]
        return generation

    @property
    def assignment(self) -> bytes:
        assert self.code is ErrorCode.NONE, self.answer
        assignment: bytes = self.answer["assignment"]
        return assignment


class Logged(NamedTuple):
    """A record, or the end of a transaction."""

    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    commit: bool | None = None
    """Whether the transaction was committed; None for a record."""


class Scenario:
    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.settings = settings
        self.shard = GroupShard(settings)
        self.now_ms = START_MS
        self.log: list[Logged] = []
        self.timers: dict[tuple[str, ...], tuple[int, int, Any]] = {}
        self.log_fails: ErrorCode | None = None
        """Error that every append raises, or None."""
        self._count = 0

    # ------------------------------------------------------------------------------- execution

    def submit(self, event: Any) -> Any:
        """Decide on an event, write and apply its records, respond, and return its token."""
        self.carry_out(self.shard.decide(event, self.now_ms))
        return event.token

    def carry_out(self, decision: Decision) -> None:
        for effect in decision.timers:
            if isinstance(effect, StartTimer):
                self._count += 1
                due_ms = self.now_ms + effect.delay_ms
                self.timers[effect.key] = (due_ms, self._count, effect.event)
            else:
                self.timers.pop(effect.key, None)
        if decision.records and self.log_fails is not None:
            for token, _ in decision.responses:
                token.fail(KafkaError(self.log_fails))
            if decision.if_failed is not None:
                self.submit(decision.if_failed)
            return
        producer_id = decision.producer.id if decision.producer else NO_PRODUCER_ID
        for record in decision.records:
            self.write(*self.shard.encode(record), producer_id)
        for token, body in decision.responses:
            token.reply(body)

    def write(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        self.shard.apply(self.shard.decode(key, value), len(self.log), producer_id)
        self.log.append(Logged(key, value, producer_id))

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.shard.end_transaction(producer_id, commit=commit)
        self.log.append(Logged(b"", None, producer_id, commit))

    def pass_ms(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self.timers:
            key = min(self.timers, key=lambda each: self.timers[each][:2])
            due_ms, _, event = self.timers[key]
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[key]
            self.submit(event)
        self.now_ms = end_ms

    def restarted(self, settings: GroupSettings | None = None) -> Scenario:
        """Return a new coordinator that has loaded this one's log."""
        other = Scenario(settings or self.settings)
        other.load(self)
        return other

    def load(self, before: Scenario) -> None:
        """Load the log of a previous coordinator into this one."""
        self.now_ms, self._count = before.now_ms, before._count
        for entry in before.log:
            if entry.commit is None:
                self.write(entry.key, entry.value, entry.producer_id)
            else:
                self.end_transaction(entry.producer_id, commit=entry.commit)
        self.carry_out(self.shard.loaded(self.now_ms))

    # -------------------------------------------------------------------------------- requests

    def join(
        self,
        member_id: str = "",
        group: str = GROUP,
        *,
        instance: str | None = None,
        protocols: events.Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        id_required: bool = True,
        can_skip: bool = True,
    ) -> Call:
        self._count += 1
        call: Call = self.submit(
            events.JoinRequested(
                Call(), group, member_id, instance, "client", "/host", session_ms, rebalance_ms,
                protocol_type, protocols, f"id{self._count}", id_required, can_skip,
            )
        )  # fmt: skip
        return call

    def join_fully(self, **options: Any) -> Call:
        """Obtain a member ID and join with it."""
        asked = self.join(**options)
        assert asked.code is ErrorCode.MEMBER_ID_REQUIRED
        return self.join(asked.member_id, **options)

    def sync(
        self,
        joined: Call,
        assignments: dict[str, bytes] | None = None,
        group: str = GROUP,
        *,
        instance: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> Call:
        call: Call = self.submit(
            events.SyncRequested(
                Call(), group, joined.member_id, instance, joined.generation,
                *protocol, assignments or {},
            )
        )  # fmt: skip
        return call

    def heartbeat(
        self, member_id: str, generation: int, group: str = GROUP, instance: str | None = None
    ) -> ErrorCode:
        call: Call = self.submit(
            events.HeartbeatReceived(Call(), group, member_id, instance, generation)
        )
        return call.code

    def leave(self, *members: tuple[str, str | None] | str, group: str = GROUP) -> list[ErrorCode]:
        leaving = [
            events.LeavingMember(each) if isinstance(each, str) else events.LeavingMember(*each)
            for each in members
        ]
        call: Call = self.submit(events.LeaveRequested(Call(), group, leaving))
        if call.error is not None:
            return [call.error] * len(leaving)
        return [ErrorCode(each["error_code"]) for each in call.answer["members"]]

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        group: str = GROUP,
        *,
        member_id: str = "",
        instance: str | None = None,
        generation: int = -1,
        metadata: str | None = "",
        retention_ms: int = -1,
        topic_id: bytes = bytes(16),
        knows_group_not_found: bool = True,
        producer: ProducerIdAndEpoch | None = None,
        knows_member_epochs: bool = True,
    ) -> Call:
        topics = [
            events.CommitTopic(
                topic, topic_id, [events.CommitPartition(partition, offset, 0, metadata)]
            )
            for (topic, partition), offset in offsets.items()
        ]
        call: Call = self.submit(
            events.CommitRequested(
                Call(), group, member_id, instance, generation, retention_ms, topics,
                knows_group_not_found, producer, knows_member_epochs,
            )
        )  # fmt: skip
        return call

    def commit_codes(self, offsets: dict[tuple[str, int], int], **options: Any) -> list[ErrorCode]:
        call = self.commit(offsets, **options)
        return [
            ErrorCode(partition["error_code"])
            for topic in call.answer["topics"]
            for partition in topic["partitions"]
        ]

    def fetch(self, *topics: events.FetchTopic, group: str = GROUP, stable: bool = False) -> Any:
        """Return the offset or error code of each partition; of all topics if none is given."""
        asked = list(topics) or None
        call: Call = self.submit(events.OffsetsRequested(Call(), group, asked, stable))
        return {
            (topic["name"], each["partition_index"]): (
                ErrorCode(each["error_code"]) if each["error_code"] else each["committed_offset"]
            )
            for topic in call.answer["topics"]
            for each in topic["partitions"]
        }

    # --------------------------------------------------------------------------------- inspection

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups.classic(GROUP)
        assert group is not None
        return group

    @property
    def state(self) -> GroupState:
        group = self.shard.groups.classic(GROUP)
        return GroupState.DEAD if group is None else group.state

    def offset(self, topic: str, partition: int, group: str = GROUP) -> CommittedOffset | None:
        return self.shard.offsets.topics(group).get(topic, {}).get(partition)

    def stable_group(self, size: int = 1, **options: Any) -> list[Call]:
        """Create a stable group, leader first; each member's assignment is its own member ID."""
        calls = [self.join_fully(**options) for _ in range(size)]
        self.pass_ms(self.settings.initial_rebalance_delay_ms * (size + 1))
        assert all(call.code is ErrorCode.NONE for call in calls)
        syncs = [self.sync(call) for call in calls[1:]]
        given = {call.member_id: call.member_id.encode() for call in calls}
        syncs.append(self.sync(calls[0], given))
        assert all(call.code is ErrorCode.NONE for call in syncs)
        assert self.state is GroupState.STABLE
        return calls

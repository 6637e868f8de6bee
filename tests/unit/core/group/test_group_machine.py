"""Model test of classic groups: clients that join, leave, crash or stall, failing logs, restarts.

The reference is the clients' own knowledge: the responses they received and what they committed.

Checked after every step:
- the group's state agrees with its members, and every timer belongs to a member or the group;
- all members of a generation received the same protocol and leader, and one of them leads;
- an assignment that a member received is in the log for that member and generation, and is the one
  that the leader of that generation sent;
- offsets are the last ones committed, in the order of the commits;
- a coordinator that loads the log has the same offsets, and the same group unless it rebalances.

Finally, once every remaining client follows the protocol, there is one stable generation with
exactly these members."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from tests.unit.core.group.scenario import GROUP, SESSION_MS, Call, Scenario, subscription

from ottla.base.errors import ErrorCode
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.records import GroupRecord
from ottla.core.group.settings import GroupSettings

TOPICS = ("t", "u")
PROTOCOLS = [
    (("range", subscription("t")),),
    (("range", subscription("t")), ("sticky", subscription("t"))),
    (("sticky", subscription("t", "u")), ("range", subscription("t", "u"))),
]
LIMIT = GroupSettings(initial_rebalance_delay_ms=1_000, max_size=5)


class Client:
    """A client's view of its own membership."""

    def __init__(self, instance: str | None, protocols: Any) -> None:
        self.instance = instance
        self.protocols = protocols
        self.member_id = ""
        self.generation = -1
        self.join: Call | None = None
        self.sync: Call | None = None
        self.joined: Call | None = None
        """The last successful JoinGroup."""
        self.is_fenced = False
        self.has_assignment = False


class Groups(RuleBasedStateMachine):
    clients = Bundle("clients")

    @initialize()
    def begin(self) -> None:
        self.scenario = Scenario(LIMIT)
        self.live: list[Client] = []
        self.generations: dict[int, tuple[str, str]] = {}
        """Protocol and leader by generation, since the coordinator last started."""
        self.leaders: dict[int, list[str]] = {}
        self.sent: dict[int, dict[str, bytes]] = {}
        """Assignments sent by the leader, by generation."""
        self.offsets: dict[tuple[str, int], int] = {}
        self.restarts = 0

    # ---------------------------------------------------------------------------------- clients

    @rule(
        target=clients,
        instance=st.none() | st.sampled_from(["i", "j"]),
        protocols=st.sampled_from(PROTOCOLS),
    )
    def appear(self, instance: str | None, protocols: Any) -> Client:
        client = Client(instance, protocols)
        self.live.append(client)
        self.join(client)
        return client

    @rule(client=clients)
    def join(self, client: Client) -> None:
        if client.is_fenced or client not in self.live:
            return
        if client.join is not None and not client.join.is_done:
            return
        client.join = self.scenario.join(
            client.member_id, instance=client.instance, protocols=client.protocols
        )
        self.look_at_answers()

    @rule(client=clients, protocols=st.sampled_from(PROTOCOLS))
    def change_subscription(self, client: Client, protocols: Any) -> None:
        client.protocols = protocols
        self.join(client)

    @rule(client=clients)
    def sync(self, client: Client) -> None:
        joined = client.joined
        if client.is_fenced or client not in self.live or joined is None:
            return
        if client.sync is not None and not client.sync.is_done:
            return
        given: dict[str, bytes] = {}
        if joined.answer["members"] and not joined.answer.get("skip_assignment"):
            run = self.restarts
            given = {
                each["member_id"]: f"{run}/{joined.generation}/{each['member_id']}".encode()
                for each in joined.answer["members"]
            }
        if self.scenario.state is GroupState.COMPLETING_REBALANCE:
            group = self.scenario.group
            if (group.generation, group.leader_id) == (joined.generation, client.member_id):
                self.sent[joined.generation] = given
        client.sync = self.scenario.sync(joined, given, instance=client.instance)
        self.look_at_answers()

    @rule(client=clients)
    def heartbeat(self, client: Client) -> None:
        if client in self.live and not client.is_fenced and client.generation >= 0:
            code = self.scenario.heartbeat(
                client.member_id, client.generation, instance=client.instance
            )
            self.note_error(client, code)

    @rule(client=consumes(clients))
    def leave(self, client: Client) -> None:
        if client in self.live:
            self.live.remove(client)
            self.scenario.leave((client.member_id, client.instance))
            self.look_at_answers()

    @rule(client=consumes(clients))
    def crash(self, client: Client) -> None:
        if client in self.live:
            self.live.remove(client)

    @rule(client=clients, topic=st.sampled_from(TOPICS), offset=st.integers(0, 100))
    def commit(self, client: Client, topic: str, offset: int) -> None:
        call = self.scenario.commit(
            {(topic, 0): offset},
            member_id=client.member_id,
            instance=client.instance,
            generation=client.generation,
        )
        if call.error is None and not call.answer["topics"][0]["partitions"][0]["error_code"]:
            self.offsets[topic, 0] = offset

    @rule(offset=st.integers(0, 100))
    def commit_from_outside(self, offset: int) -> None:
        is_empty = self.scenario.state in (GroupState.EMPTY, GroupState.DEAD)
        call = self.scenario.commit({("t", 0): offset})
        if call.error is None:
            code = call.answer["topics"][0]["partitions"][0]["error_code"]
            assert (code == ErrorCode.NONE) == is_empty
            if not code:
                self.offsets["t", 0] = offset

    # ------------------------------------------------------------------------------- environment

    @rule(duration_ms=st.sampled_from([1, 500, 1_000, 5_000, SESSION_MS, 60_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.scenario.pass_ms(duration_ms)
        self.look_at_answers()

    @rule(target=clients)
    def restart(self) -> Any:
        self.scenario = self.scenario.restarted()
        self.restarts += 1
        self.generations.clear()
        self.leaders.clear()
        for client in self.live:
            client.join = client.sync = None
        return multiple()

    @rule(fails=st.booleans())
    def set_log(self, fails: bool) -> None:
        self.scenario.log_fails = ErrorCode.KAFKA_STORAGE_ERROR if fails else None

    # --------------------------------------------------------------------------------- responses

    def look_at_answers(self) -> None:
        self.forget_generations_of_no_group()
        for client in list(self.live):
            join, sync = client.join, client.sync
            if join is not None and join.is_done:
                client.join = None
                self.take_join(client, join)
            if sync is not None and sync.is_done:
                client.sync = None
                self.take_sync(client, sync)
        self.forget_generations_of_no_group()

    def forget_generations_of_no_group(self) -> None:
        """Clear the known generations if the group was never written and has no members left."""
        if GROUP not in self.scenario.shard.groups:
            self.generations.clear()
            self.leaders.clear()

    def take_join(self, client: Client, call: Call) -> None:
        if call.error is not None:
            return
        if call.code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = call.member_id
        elif call.code is not ErrorCode.NONE:
            self.note_error(client, call.code)
        else:
            client.member_id = call.member_id
            client.generation = call.generation
            client.joined = call
            client.has_assignment = False
            self.check_told(call)

    def check_told(self, call: Call) -> None:
        protocol_and_leader = (call.answer["protocol_name"], call.answer["leader"])
        known = self.generations.setdefault(call.generation, protocol_and_leader)
        # A static leader that rejoined has a new member ID, but the same protocol.
        assert known[0] == protocol_and_leader[0]
        if call.answer["members"] and not call.answer.get("skip_assignment"):
            leaders = self.leaders.setdefault(call.generation, [])
            if call.member_id not in leaders:
                leaders.append(call.member_id)
            assert len(leaders) == 1

    def take_sync(self, client: Client, call: Call) -> None:
        if call.error is not None:
            return
        if call.code is not ErrorCode.NONE:
            self.note_error(client, call.code)
            return
        client.has_assignment = True
        recorded = self.last_record()
        assert recorded is not None
        assert recorded.value is not None
        written = {each.member_id: each.assignment for each in recorded.value.members}
        assert written[client.member_id] == call.assignment
        if call.assignment:
            assert call.assignment in self.sent[recorded.value.generation].values()

    def note_error(self, client: Client, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.generation, client.joined = "", -1, None
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            client.is_fenced = True
            self.live.remove(client)

    def last_record(self) -> GroupRecord | None:
        for key, value, *_ in reversed(self.scenario.log):
            record = self.scenario.shard.decode(key, value)
            if isinstance(record, GroupRecord):
                return record
        return None

    # -------------------------------------------------------------------------------- invariants

    @invariant()
    def bookkeeping_agrees(self) -> None:
        group = self.scenario.shard.groups.get(GROUP)
        if group is None:
            return
        members = group.members.values()
        assert group.awaiting_joins == sum(each.join_token is not None for each in members)
        counted: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                counted[name] = counted.get(name, 0) + 1
        assert group.votes == counted
        assert not members or len(members) in counted.values(), "a protocol that all share"
        assert group.static_members == {
            each.instance_id: each.member_id for each in members if each.instance_id is not None
        }
        assert (group.leader_id in group.members) if members else (group.leader_id is None)
        assert all(key == each.member_id for key, each in group.members.items())
        assert set(group.pending_syncs) <= set(group.members)
        assert group.awaiting_joins <= LIMIT.max_size
        self.check_state(group)

    def check_state(self, group: ClassicGroup) -> None:
        members = list(group.members.values())
        if group.state is GroupState.EMPTY:
            assert not members
        if group.state is not GroupState.PREPARING_REBALANCE:
            assert not any(each.join_token for each in members)
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert not any(each.sync_token for each in members)
        timers = set(self.scenario.timers)
        if group.state is GroupState.PREPARING_REBALANCE:
            assert ("join", GROUP) in timers, "the rebalance ends some time"
        if group.pending_syncs:
            assert ("sync", GROUP) in timers
        for key in timers:
            if key[0] == "session":
                assert key[2] in group.members or key[2] in group.pending_joins

    @invariant()
    def every_member_has_a_session_or_waits(self) -> None:
        group = self.scenario.shard.groups.get(GROUP)
        for member in () if group is None else group.members.values():
            has_session = ("session", GROUP, member.member_id) in self.scenario.timers
            assert has_session or member.is_known_alive

    @invariant()
    def offsets_are_those_committed_last(self) -> None:
        assert self.scenario.fetch() == self.offsets

    @invariant()
    def a_restart_would_know_the_same(self) -> None:
        if self.scenario.log_fails is not None:
            return
        restarted = self.scenario.restarted()
        assert restarted.fetch() == self.offsets
        group, loaded = self.scenario.shard.groups.get(GROUP), restarted.shard.groups.get(GROUP)
        if group is None or group.state is not GroupState.STABLE:
            return
        assert loaded is not None
        assert loaded.generation == group.generation
        assert {id: each.assignment for id, each in loaded.members.items()} == {
            id: each.assignment for id, each in group.members.items()
        }

    # ----------------------------------------------------------------------------------- teardown

    def teardown(self) -> None:
        if not hasattr(self, "scenario"):
            return
        self.scenario.log_fails = None
        # Two clients with the same instance ID would fence each other forever, so keep the first.
        seen: set[str | None] = set()
        kept = []
        for client in self.live:
            if client.instance is None or client.instance not in seen:
                kept.append(client)
            seen.add(client.instance)
        self.live = kept[: LIMIT.max_size]
        for client in self.live:
            client.protocols = PROTOCOLS[1]
        for _ in range(400):
            self.do_as_told()
        stable = self.scenario.shard.groups.get(GROUP)
        assert stable is not None or not self.live
        if stable is None or not self.live:
            return
        assert stable.state is GroupState.STABLE
        assert set(stable.members) == {client.member_id for client in self.live}
        assert {client.generation for client in self.live} == {stable.generation}
        assert all(client.has_assignment for client in self.live)

    def do_as_told(self) -> None:
        for client in list(self.live):
            if client.join is not None and not client.join.is_done:
                continue
            if client.sync is not None and not client.sync.is_done:
                continue
            if client.generation < 0:
                self.join(client)
                continue
            code = self.scenario.heartbeat(
                client.member_id, client.generation, instance=client.instance
            )
            self.note_error(client, code)
            if code is ErrorCode.NONE and not client.has_assignment:
                self.sync(client)
            elif code is not ErrorCode.NONE:
                self.join(client)
        self.scenario.pass_ms(500)
        self.look_at_answers()


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)

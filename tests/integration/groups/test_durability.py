"""Group state survives kills, restarts and compaction, and is stored in Kafka's format."""

from __future__ import annotations

from contextlib import ExitStack

from tests.integration.groups.conftest import OVERRIDES
from tests.integration.groups.requests import (
    commit,
    committed,
    heartbeat,
    join,
    join_fully,
    leave,
    stable_member,
    state,
    sync,
)
from tests.raw_client import Api, RawClient, eventually

from ottla.base.errors import ErrorCode
from ottla.core.group.hashing import partition_for
from ottla.core.group.records import GroupRecord, OffsetRecord, decode_record
from ottla.testing.broker import BrokerProcess

OFFSETS_TOPIC = "__consumer_offsets"
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def ready_client(broker: BrokerProcess) -> RawClient:
    """Return a client of the broker once its coordinator has loaded."""
    client = RawClient(broker.port)
    client.call(Api.FIND_COORDINATOR, 0, key="any")
    eventually(lambda: client.call(Api.LIST_GROUPS, 5).error_code, lambda code: code != LOADING)
    return client


def test_commits_and_members_survive_a_kill(own_broker: BrokerProcess) -> None:
    with ready_client(own_broker) as client:
        client.create_topic("t", 3)
        member = stable_member(client, "members")
        commit(client, "members", {("t", 0): 4}, member)
        for number in range(50):
            commit(client, f"simple-{number}", {("t", 1): number, ("t", 2): 2 * number})
        commit(client, "deleted", {("t", 0): 1})
        client.call(Api.DELETE_GROUPS, 2, groups_names=["deleted"])
    own_broker.restart(kill=True)
    with ready_client(own_broker) as client:
        assert state(client, "members") == "Stable"
        assert heartbeat(client, "members", member) is ErrorCode.NONE
        assert bytes(sync(client, "members", member).assignment) == b"mine"
        assert committed(client, "members") == {("t", 0): 4}
        for number in range(50):
            expected = {("t", 1): number, ("t", 2): 2 * number}
            assert committed(client, f"simple-{number}") == expected
        assert state(client, "deleted") == "Dead"
        assert committed(client, "deleted") == {}
        again = join(client, "members", member.member_id)
        assert again.generation_id == 2, "the leader may start a rebalance at once"


def test_every_commit_that_was_answered_survives_a_kill(
    own_broker: BrokerProcess,
) -> None:
    with ready_client(own_broker) as client:
        client.create_topic("t")
        last = -1
        for number in range(200):
            assert commit(client, "g", {("t", 0): number}) == [ErrorCode.NONE]
            last = number
    own_broker.restart(kill=True)
    with ready_client(own_broker) as client:
        assert committed(client, "g") == {("t", 0): last}


def test_synced_commits_are_answered_and_read(topic: str) -> None:
    overrides = {**OVERRIDES, "log.flush.acks.all": "true"}
    with (
        BrokerProcess(strict=True, overrides=overrides) as broker,
        ready_client(broker) as client,
    ):
        client.create_topic(topic)
        member = stable_member(client, "g")
        for number in range(10):
            assert commit(client, "g", {(topic, 0): number}, member) == [ErrorCode.NONE]
            assert committed(client, "g") == {(topic, 0): number}
        broker.restart(kill=True)
        with ready_client(broker) as again:
            assert committed(again, "g") == {(topic, 0): 9}
            assert heartbeat(again, "g", member) is ErrorCode.NONE


def test_a_compacted_log_loads_the_same() -> None:
    overrides = {
        **OVERRIDES,
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "1048576",
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    with BrokerProcess(strict=True, overrides=overrides) as broker:
        with ready_client(broker) as client:
            client.create_topic("t", 2)
            member = stable_member(client, "members")
            for number in range(500):
                offsets = {("t", 0): number, ("t", 1): number}
                commit(client, f"g{number % 5}", offsets, metadata="x" * 4_000)
            client.call(Api.DELETE_GROUPS, 2, groups_names=["g0"])
            commit(client, "members", {("t", 0): 7}, member)
            eventually(lambda: len(client.records(OFFSETS_TOPIC)), lambda count: count < 800)
        broker.restart(kill=True)
        with ready_client(broker) as client:
            assert committed(client, "g0") == {}
            for group in range(1, 5):
                last = 495 + group
                assert committed(client, f"g{group}") == {("t", 0): last, ("t", 1): last}
            assert committed(client, "members") == {("t", 0): 7}
            assert heartbeat(client, "members", member) is ErrorCode.NONE


def test_the_log_has_kafkas_records(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    group = f"group of {topic}"
    client.create_topic(topic)
    member = stable_member(client, group)
    commit(client, group, {(topic, 0): 5}, member, metadata="note")
    leave(client, group, member.member_id)
    client.call(Api.DELETE_GROUPS, 2, groups_names=[group])
    index = partition_for(group, 4)
    stored = [
        decode_record(record.key or b"", record.value)
        for record in client.records(OFFSETS_TOPIC, 0, index)
    ]
    mine = [record for record in stored if record is not None and record.group_id == group]
    stable, offset, empty, no_offset, gone = mine
    assert isinstance(stable, GroupRecord)
    assert stable.value is not None
    assert [each.member_id for each in stable.value.members] == [member.member_id]
    assert stable.value.members[0].client_host == "/127.0.0.1"
    assert isinstance(offset, OffsetRecord)
    assert offset.value is not None
    assert (offset.value.offset, offset.value.metadata) == (5, "note")
    assert offset.value.topic_id != bytes(16)
    assert isinstance(empty, GroupRecord)
    assert empty.value is not None
    assert (empty.value.generation, empty.value.members) == (2, ())
    assert no_offset == OffsetRecord(group, topic, 0, None)
    assert gone == GroupRecord(group, None)


def test_the_offsets_topic_is_internal_and_compacted(
    broker: BrokerProcess, client: RawClient
) -> None:
    answer = client.call(Api.METADATA, 12, topics=[{"name": OFFSETS_TOPIC}])
    (topic,) = answer.topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 4)
    described = client.call(
        Api.DESCRIBE_CONFIGS,
        4,
        resources=[
            {
                "resource_type": 2,
                "resource_name": OFFSETS_TOPIC,
                "configuration_keys": ["cleanup.policy", "compression.type"],
            }
        ],
    )
    configs = {each.name: each.value for each in described.results[0].configs}
    assert configs == {"cleanup.policy": "compact", "compression.type": "producer"}


def test_commits_that_come_together_are_one_batch(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    group = f"group of {topic}"
    client.create_topic(topic)
    index = partition_for(group, 4)
    _, before = client.offsets(OFFSETS_TOPIC, index)
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
    }
    sent = [client.send(Api.OFFSET_COMMIT, 8, **body) for _ in range(200)]
    for correlation_id in sent:
        client.receive(Api.OFFSET_COMMIT, 8, correlation_id)
    answer = client.fetch(OFFSETS_TOPIC, before, index)
    data = bytes(answer.records)
    batches = 0
    while data:
        batches += 1
        data = data[12 + int.from_bytes(data[8:12], "big") :]
    _, after = client.offsets(OFFSETS_TOPIC, index)
    assert after - before == 200
    assert batches < 100


def test_offsets_expire(broker: BrokerProcess, client: RawClient, topic: str, group: str) -> None:
    client.create_topic(topic)
    commit(client, group, {(topic, 0): 1}, version=2, retention_time_ms=1)
    eventually(lambda: state(client, group), lambda name: name == "Dead")
    assert committed(client, group) == {}


def test_offsets_go_with_their_topic(client: RawClient, topic: str, group: str) -> None:
    client.create_topic(topic)
    commit(client, group, {(topic, 0): 1})
    client.delete_topic(topic)
    eventually(lambda: committed(client, group), lambda offsets: offsets == {})


def test_a_silent_member_is_removed_after_its_session_timeout(
    client: RawClient, topic: str, group: str
) -> None:
    client.create_topic(topic)
    commit(client, group, {(topic, 0): 1})
    member = join_fully(client, group, session_timeout_ms=300)
    eventually(lambda: state(client, group), lambda name: name == "Empty")
    assert heartbeat(client, group, member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_broker_that_stops_answers_waiting_requests(own_broker: BrokerProcess) -> None:
    with ready_client(own_broker) as client, ExitStack() as stack:
        stable_member(client, "g")
        waiting = []
        for _ in range(3):
            other = stack.enter_context(RawClient(own_broker.port))
            asked = join(other, "g")
            body = {
                "group_id": "g",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10_000,
                "member_id": asked.member_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            }
            waiting.append((other, other.send(Api.JOIN_GROUP, 9, **body)))
        eventually(lambda: len(client.call(Api.DESCRIBE_GROUPS, 5, groups=["g"]).groups[0].members),
                   lambda size: size == 4)  # fmt: skip
        own_broker.stop(timeout_s=4)
        for other, correlation_id in waiting:
            answer = other.receive(Api.JOIN_GROUP, 9, correlation_id)
            assert answer.error_code == ErrorCode.NOT_COORDINATOR

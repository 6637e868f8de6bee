"""ACLs of groups: what a client sees of a request that is partly denied, and when it is decided."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest
from tests.integration.groups.requests import (
    commit,
    committed,
    consumer_heartbeat,
    consumer_join,
    join,
    join_fully,
    stable_member,
    sync,
)
from tests.integration.security.acl_broker import (
    acl,
    acl_properties,
    create_acls,
    delete_acls,
    delete_all_acls,
    log_in,
)
from tests.raw_client import Api, RawClient, eventually, newest

from ottla.base.acl import AclOperation, PatternType
from ottla.base.errors import ErrorCode as E
from ottla.core.security.permissions import (
    ACT_AS_BROKER,
    DELETE_GROUP,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    READ_GROUP,
    READ_TOPIC,
)
from ottla.testing.broker_thread import BrokerThread
from ottla.wire import schema

PROPERTIES = acl_properties(
    group__initial__rebalance__delay__ms="0",
    group__consumer__assignment__interval__ms="0",
    offsets__topic__num__partitions="4",
)
LOGGER = "kafka.authorizer.logger"
MISSING = "missing"
UNKNOWN_ID = bytes(15) + b"x"
NOT_REQUESTED = -(2**31)
MEMBERS = ("2uXMJ0W1RM6hB0lSxfSXoQ", "m9rLkYw5TzqQ0Tn1yB3xIg")
REQUESTS: Mapping[int, Mapping[str, Any]] = {
    Api.HEARTBEAT: {"generation_id": 1},
    Api.LEAVE_GROUP: {"members": [{"member_id": "m"}]},
    Api.SYNC_GROUP: {
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    },
}
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=PROPERTIES) as broker:
        with log_in(port(broker), "admin") as admin:
            admin.call(Api.FIND_COORDINATOR, 0, key="any")
        yield broker


@pytest.fixture
def admin(broker: BrokerThread) -> Iterator[RawClient]:
    with log_in(port(broker), "admin") as admin:
        yield admin
        delete_all_acls(admin)


@pytest.fixture
def alice(broker: BrokerThread) -> Iterator[RawClient]:
    with log_in(port(broker), "alice") as alice:
        yield alice


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def topics(admin: RawClient) -> Mapping[str, bytes]:
    """Three topics, by name with their IDs."""
    names = [f"topic-{next(_numbers)}" for _ in range(3)]
    return {name: admin.create_topic(name) for name in names}


def port(broker: BrokerThread) -> int:
    return broker.broker.ports["SASL_PLAINTEXT"]


def versions(api: int) -> list[Any]:
    return [pytest.param(each, id=f"v{each}") for each in schema.versions(api)]


# ------------------------------------------------------------------------------ FindCoordinator


@pytest.mark.parametrize("version", versions(Api.FIND_COORDINATOR))
def test_no_coordinator_is_named_to_a_client_without_permission(
    admin: RawClient, alice: RawClient, group: str, version: int
) -> None:
    def found(key_type: int) -> list[tuple[int, int, str, int]]:
        asked = {"key": group, "coordinator_keys": [group, f"{group}-2"], "key_type": key_type}
        answer = alice.call(Api.FIND_COORDINATOR, version, **asked)
        results = answer.coordinators if version >= 4 else [answer]
        return [(each.error_code, each.node_id, each.host, each.port) for each in results]

    expected = 2 if version >= 4 else 1
    hidden = (E.GROUP_AUTHORIZATION_FAILED, -1, "", -1)
    assert found(0) == [hidden] * expected
    create_acls(admin, acl(DESCRIBE_GROUP, group))
    shown, *others = found(0)
    assert shown[:2] == (0, 1)
    assert others == [hidden] * (expected - 1)
    if version >= 1:
        assert found(1) == [(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, "", -1)] * expected
        create_acls(admin, acl(DESCRIBE_TRANSACTIONAL_ID, f"{group}-2"))
        assert [each[0] for each in found(1)[1:]] == [0] * (expected - 1)
    if version >= 6:
        assert found(2) == [(E.CLUSTER_AUTHORIZATION_FAILED, -1, "", -1)] * expected
        create_acls(admin, acl(ACT_AS_BROKER))
    if version >= 1:
        assert [each[0] for each in found(2)] == [E.INVALID_REQUEST] * expected


def test_a_denied_search_for_a_coordinator_creates_no_topic() -> None:
    def has_topic(client: RawClient) -> bool:
        found = client.call(
            Api.METADATA, topics=[{"name": "__consumer_offsets"}], allow_auto_topic_creation=False
        ).topics[0]
        return bool(found.error_code == 0)

    with (
        BrokerThread(overrides=PROPERTIES) as broker,
        log_in(port(broker), "admin") as admin,
        log_in(port(broker), "alice") as alice,
    ):
        answer = alice.call(Api.FIND_COORDINATOR, coordinator_keys=["a", "b"])
        codes = [each.error_code for each in answer.coordinators]
        assert codes == [E.GROUP_AUTHORIZATION_FAILED] * 2
        assert not has_topic(admin)
        create_acls(admin, acl(DESCRIBE_GROUP, "b"))
        answer = alice.call(Api.FIND_COORDINATOR, coordinator_keys=["a", "b"])
        codes = [each.error_code for each in answer.coordinators]
        assert codes == [E.GROUP_AUTHORIZATION_FAILED, 0]
        assert has_topic(admin)


# ------------------------------------------------------------------------------------- members


@pytest.mark.parametrize("version", versions(Api.JOIN_GROUP))
def test_a_member_that_may_not_join_gets_no_id(alice: RawClient, group: str, version: int) -> None:
    answer = alice.call(
        Api.JOIN_GROUP,
        version,
        group_id=group,
        session_timeout_ms=1,
        rebalance_timeout_ms=10_000,
        member_id="m",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert (answer.error_code, answer.generation_id) == (E.GROUP_AUTHORIZATION_FAILED, -1)
    assert (answer.member_id, answer.leader, list(answer.members)) == ("", "", [])
    assert answer.protocol_name == ("" if version < 7 else None)


@pytest.mark.parametrize(
    ("api", "version"),
    [
        pytest.param(api, version, id=f"{api.name} v{version}")
        for api in (Api.HEARTBEAT, Api.LEAVE_GROUP, Api.SYNC_GROUP)
        for version in schema.versions(api)
    ],
)
@pytest.mark.parametrize("name", ["known", ""])
def test_permission_is_checked_before_the_name_of_a_group(
    alice: RawClient, api: Api, version: int, name: str
) -> None:
    answer = alice.call(
        api,
        version,
        group_id=name,
        member_id="m",
        **REQUESTS[api],
    )
    assert answer.error_code == E.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("absent", ["protocol_type", "protocol_name"])
def test_a_sync_without_its_protocol_is_refused_before_permissions_are_checked(
    alice: RawClient, group: str, absent: str
) -> None:
    request = {"protocol_type": "consumer", "protocol_name": "range", absent: None}
    known = {"group_id": group, "member_id": "m", "generation_id": 1, "assignments": []}
    code = alice.call(Api.SYNC_GROUP, **known, **request).error_code
    assert code == E.INCONSISTENT_GROUP_PROTOCOL
    code = alice.call(Api.SYNC_GROUP, 4, **known).error_code
    assert code == E.GROUP_AUTHORIZATION_FAILED


def test_a_waiting_member_joins_although_its_permission_is_revoked_meanwhile(
    admin: RawClient, alice: RawClient, group: str
) -> None:
    allowed = acl(READ_GROUP, group)
    create_acls(admin, allowed)
    first = stable_member(admin, group)
    asked = join(alice, group)
    body = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": asked.member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    sent = alice.send(Api.JOIN_GROUP, newest(Api.JOIN_GROUP), **body)
    delete_acls(admin, allowed)
    again = join(admin, group, first.member_id)
    joined = alice.receive(Api.JOIN_GROUP, newest(Api.JOIN_GROUP), sent)
    assert (joined.error_code, joined.generation_id) == (0, again.generation_id)
    assert sync(alice, group, joined).error_code == E.GROUP_AUTHORIZATION_FAILED


# -------------------------------------------------------------------------------- committed offsets


def test_a_commit_goes_on_with_the_topics_that_the_client_may_read(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes]
) -> None:
    read, described, _ = topics
    denied = E.TOPIC_AUTHORIZATION_FAILED
    wanted = {(described, 0): 1, (read, 0): 2, (read, 9): 3, (MISSING, 0): 4}
    assert commit(alice, group, wanted) == [E.GROUP_AUTHORIZATION_FAILED] * 4
    create_acls(admin, acl(READ_GROUP, group), acl(READ_TOPIC, read))
    create_acls(admin, acl(DESCRIBE_TOPIC, described))

    def codes(version: int) -> dict[tuple[str, int], int]:
        partitions = {read: (0, 9)}
        asked = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "committed_offset": 2, "committed_metadata": ""}
                    for index in partitions.get(name, (0,))
                ],
            }
            for name in (described, read, MISSING)
        ]
        known = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        answer = alice.call(Api.OFFSET_COMMIT, version, **known, retention_time_ms=-1, topics=asked)
        return {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }

    for version in (2, 9):
        expected = {(described, 0): denied, (read, 0): 0, (MISSING, 0): denied}
        assert codes(version) == {**expected, (read, 9): E.UNKNOWN_TOPIC_OR_PARTITION}
    assert committed(admin, group) == {(read, 0): 2}
    create_acls(admin, acl(READ_TOPIC, MISSING))
    assert codes(9)[(MISSING, 0)] == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_commit_by_id_reports_an_unknown_id_before_a_missing_permission(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes]
) -> None:
    create_acls(admin, acl(READ_GROUP, group))
    ids = [UNKNOWN_ID, *topics.values()]

    def codes() -> list[tuple[bytes, int]]:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        asked = [{"topic_id": each, "partitions": [partition]} for each in ids]
        known = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        answer = alice.call(Api.OFFSET_COMMIT, 10, **known, topics=asked)
        return [(each.topic_id, each.partitions[0].error_code) for each in answer.topics]

    denied = E.TOPIC_AUTHORIZATION_FAILED
    assert codes() == list(zip(ids, [E.UNKNOWN_TOPIC_ID, denied, denied, denied], strict=True))
    create_acls(admin, acl(READ_TOPIC, [*topics][1]))
    assert dict(codes()) == dict(
        zip(ids, [E.UNKNOWN_TOPIC_ID, denied, E.NONE, denied], strict=True)
    )


@pytest.mark.parametrize("version", versions(Api.OFFSET_FETCH))
def test_offsets_of_hidden_topics_are_not_returned(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes], version: int
) -> None:
    seen, hidden, _ = topics
    commit(admin, group, {(seen, 0): 5, (hidden, 0): 6})
    by_id = version >= 10
    names = {topics[name]: name for name in topics}

    def fetched(*asked: str, all: bool = False) -> tuple[int, dict[str, tuple[int, int, str]]]:
        """Return the group's error, and topic -> error, offset and metadata."""
        wanted = [
            {
                **({"topic_id": topics.get(each, UNKNOWN_ID)} if by_id else {"name": each}),
                "partition_indexes": [0],
            }
            for each in asked
        ]
        body = {"group_id": group, "topics": None if all else wanted}
        answer = alice.call(Api.OFFSET_FETCH, version, **body, groups=[body])
        found = answer.groups[0] if version >= 8 else answer
        return getattr(found, "error_code", 0) if version >= 2 else 0, {
            (names.get(topic.topic_id, MISSING) if by_id else topic.name): (
                topic.partitions[0].error_code,
                topic.partitions[0].committed_offset,
                topic.partitions[0].metadata,
            )
            for topic in found.topics
        }

    denied_group, denied = E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED
    if version < 2:
        assert fetched(seen) == (0, {seen: (denied_group, -1, "")})
    else:
        assert fetched(seen) == (denied_group, {})
        assert fetched(all=True) == (denied_group, {})
    create_acls(admin, acl(DESCRIBE_GROUP, group), acl(DESCRIBE_TOPIC, seen))
    missing = E.UNKNOWN_TOPIC_ID if by_id else denied
    assert fetched(hidden, seen, MISSING) == (
        0,
        {seen: (0, 5, ""), hidden: (denied, -1, ""), MISSING: (missing, -1, "")},
    )
    if version >= 2:
        assert fetched(all=True) == (0, {seen: (0, 5, "")})


def test_several_groups_are_fetched_with_the_permission_of_each(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes]
) -> None:
    name = next(iter(topics))
    others = [f"{group}-{number}" for number in range(3)]
    for each in others:
        commit(admin, each, {(name, 0): 7})
    create_acls(admin, acl(DESCRIBE_GROUP, others[1]), acl(DESCRIBE_TOPIC, name))
    asked = [{"group_id": each, "topics": None} for each in others]
    answer = alice.call(Api.OFFSET_FETCH, groups=asked)
    denied = E.GROUP_AUTHORIZATION_FAILED
    found = [(each.group_id, each.error_code, len(each.topics)) for each in answer.groups]
    assert found == [(others[0], denied, 0), (others[1], 0, 1), (others[2], denied, 0)]


def test_offsets_are_deleted_of_those_topics_that_the_client_may_read(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes]
) -> None:
    first, second, _ = topics
    commit(admin, group, {(first, 0): 5, (second, 0): 6})

    def delete(group: str) -> tuple[int, dict[str, int]]:
        asked = [
            {"name": name, "partitions": [{"partition_index": 0}]}
            for name in (first, second, MISSING)
        ]
        answer = alice.call(Api.OFFSET_DELETE, group_id=group, topics=asked)
        codes = {each.name: each.partitions[0].error_code for each in answer.topics}
        return answer.error_code, codes

    assert delete(group) == (E.GROUP_AUTHORIZATION_FAILED, {})
    assert delete("") == (E.GROUP_AUTHORIZATION_FAILED, {})
    create_acls(admin, acl(DELETE_GROUP, group), acl(READ_TOPIC, second))
    denied = E.TOPIC_AUTHORIZATION_FAILED
    assert delete(group) == (0, {first: denied, second: 0, MISSING: denied})
    assert committed(admin, group) == {(first, 0): 5}
    create_acls(admin, acl(DELETE_GROUP, "unknown"), acl(READ_TOPIC, MISSING))
    assert delete(group)[1][MISSING] == E.UNKNOWN_TOPIC_OR_PARTITION
    assert delete("unknown") == (E.GROUP_ID_NOT_FOUND, {})


# ---------------------------------------------------------------------------------- whole groups


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_GROUPS))
def test_groups_are_described_with_what_the_client_may_do(
    admin: RawClient, alice: RawClient, group: str, version: int
) -> None:
    stable_member(admin, group)
    hidden = f"{group}-hidden"
    create_acls(admin, acl(READ_GROUP, group), acl(DESCRIBE_GROUP, "nobody"))
    answer = alice.call(
        Api.DESCRIBE_GROUPS,
        version,
        groups=[hidden, group, "nobody"],
        include_authorized_operations=True,
    )
    denied, described, dead = answer.groups
    assert (denied.group_id, denied.error_code) == (hidden, E.GROUP_AUTHORIZATION_FAILED)
    assert (denied.group_state, denied.protocol_type, list(denied.members)) == ("", "", [])
    assert (described.group_id, described.error_code, len(described.members)) == (group, 0, 1)
    assert (dead.group_id, dead.group_state) == ("nobody", "Dead")
    if version >= 3:
        assert denied.authorized_operations == NOT_REQUESTED
        expected = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
        assert described.authorized_operations == expected
        plain = alice.call(Api.DESCRIBE_GROUPS, version, groups=[group]).groups[0]
        assert plain.authorized_operations == NOT_REQUESTED


def test_only_visible_groups_are_listed(
    admin: RawClient, alice: RawClient, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = {f"{group}-{number}" for number in range(3)}
    for each in names:
        join_fully(admin, each)

    def listed(client: RawClient) -> set[str]:
        answer = client.call(Api.LIST_GROUPS)
        assert answer.error_code == 0
        return {each.group_id for each in answer.groups}

    caplog.set_level(logging.INFO, LOGGER)
    assert listed(alice) == set()
    create_acls(admin, acl(DESCRIBE_GROUP, f"{group}-1", pattern=PatternType.PREFIXED))
    assert listed(alice) == {f"{group}-1"}
    create_acls(admin, acl(DESCRIBE_CLUSTER))
    assert listed(alice) == listed(admin) > names
    assert not [each for each in caplog.records if "alice is Denied" in each.getMessage()]


def test_groups_are_deleted_with_the_permission_of_each(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes]
) -> None:
    name = next(iter(topics))
    kept = f"{group}-kept"
    for each in (group, kept):
        commit(admin, each, {(name, 0): 7})
    create_acls(admin, acl(DELETE_GROUP, group), acl(READ_GROUP, kept))
    answer = alice.call(Api.DELETE_GROUPS, groups_names=[kept, group, kept])
    results = [(each.group_id, each.error_code) for each in answer.results]
    assert results == [(kept, E.GROUP_AUTHORIZATION_FAILED), (group, 0)]
    assert committed(admin, kept) == {(name, 0): 7}
    assert committed(admin, group) == {}


# --------------------------------------------------------------------------- the consumer protocol


class Member:
    """A member of the consumer protocol that subscribes to a regular expression."""

    def __init__(self, client: RawClient, group: str, member_id: str, pattern: str) -> None:
        self.client, self.group, self.id = client, group, member_id
        self.owned: dict[bytes, list[int]] = {}
        self.epoch = 0
        subscription = {"subscribed_topic_names": None, "subscribed_topic_regex": pattern}
        self._take(consumer_join(client, group, member_id, **subscription))

    def _take(self, answer: Any) -> None:
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            self.owned = {each.topic_id: list(each.partitions) for each in parts}

    def beat(self) -> None:
        owned = [{"topic_id": id, "partitions": each} for id, each in self.owned.items()]
        more = {"topic_partitions": owned}
        self._take(consumer_heartbeat(self.client, self.group, self.id, self.epoch, **more))

    def names(self, topics: Mapping[str, bytes]) -> set[str]:
        return {name for name, id in topics.items() if id in self.owned}

    def wait_for(self, topics: Mapping[str, bytes], *names: str) -> None:
        """Send heartbeats until the member has got exactly some topics."""

        def assigned() -> set[str]:
            self.beat()
            return self.names(topics)

        eventually(assigned, lambda found: found == set(names))


def test_a_regular_expression_matches_only_visible_topics(
    admin: RawClient,
    alice: RawClient,
    group: str,
    topics: Mapping[str, bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second, _ = topics
    allowed = acl(DESCRIBE_TOPIC, first)
    create_acls(admin, acl(READ_GROUP, group), allowed)
    caplog.set_level(logging.INFO, LOGGER)
    member = Member(alice, group, MEMBERS[0], "topic-.*")
    assert member.names(topics) == {first}
    create_acls(admin, acl(READ_TOPIC, second))
    member.wait_for(topics, first, second)
    delete_acls(admin, allowed)
    member.wait_for(topics, second)
    denials = [each for each in caplog.records if "operation = DESCRIBE" in each.getMessage()]
    assert not denials


def test_members_share_what_the_first_of_them_may_see(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes]
) -> None:
    first, *_ = topics
    pattern = "|".join(topics)
    create_acls(admin, acl(READ_GROUP, group), acl(DESCRIBE_TOPIC, first))
    member = Member(alice, group, MEMBERS[0], pattern)
    other = Member(admin, group, MEMBERS[1], pattern)
    member.beat()
    other.beat()
    assert member.names(topics) | other.names(topics) == {first}
    assert consumer_heartbeat(alice, group, member.id, -1).error_code == 0
    other.beat()
    assert other.names(topics) == {first}
    create_acls(admin, acl(READ_GROUP, "unrelated"))
    other.wait_for(topics, *topics)


def test_a_subscription_to_one_hidden_topic_is_refused(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes]
) -> None:
    first, second, _ = topics
    member_id = MEMBERS[0]

    def heartbeat(epoch: int, *names: str) -> int:
        code: int
        if epoch == 0:
            code = consumer_join(alice, group, member_id, *names).error_code
        else:
            code = consumer_heartbeat(alice, group, member_id, epoch).error_code
        return code

    assert heartbeat(0, first) == heartbeat(-1) == E.GROUP_AUTHORIZATION_FAILED
    create_acls(admin, acl(READ_GROUP, group), acl(DESCRIBE_TOPIC, first))
    assert heartbeat(0, first, second) == E.TOPIC_AUTHORIZATION_FAILED
    assert heartbeat(0, MISSING) == E.TOPIC_AUTHORIZATION_FAILED
    assert heartbeat(0, first) == 0
    assert heartbeat(-1) == 0


@pytest.mark.parametrize("version", versions(Api.CONSUMER_GROUP_DESCRIBE))
def test_one_hidden_topic_hides_the_members_of_a_consumer_group(
    admin: RawClient, alice: RawClient, group: str, topics: Mapping[str, bytes], version: int
) -> None:
    first, second, _ = topics
    hidden = f"{group}-hidden"
    assert consumer_join(admin, group, MEMBERS[0], first, second).error_code == 0

    def described() -> Any:
        return alice.call(
            Api.CONSUMER_GROUP_DESCRIBE,
            version,
            group_ids=[hidden, group, "", "nobody"],
            include_authorized_operations=True,
        ).groups

    denied = E.GROUP_AUTHORIZATION_FAILED
    assert [each.error_code for each in described()] == [denied] * 4
    create_acls(admin, acl(READ_GROUP, group), acl(DESCRIBE_GROUP, "nobody"))
    create_acls(admin, acl(DESCRIBE_TOPIC, first))
    refused, partly, nameless, nobody = described()
    assert [refused.error_code, nameless.error_code] == [denied] * 2
    assert (partly.group_id, partly.error_code) == (group, E.TOPIC_AUTHORIZATION_FAILED)
    assert partly.error_message == (
        "The group has described topic(s) that the client is not authorized to describe."
    )
    assert (partly.group_state, list(partly.members)) == ("", [])
    assert nobody.error_code == E.GROUP_ID_NOT_FOUND
    assert {each.authorized_operations for each in described()} == {NOT_REQUESTED}
    create_acls(admin, acl(DESCRIBE_TOPIC, second))
    (_, shown, _, _) = described()
    assert (shown.error_code, len(shown.members)) == (0, 1)
    assert shown.authorized_operations == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE

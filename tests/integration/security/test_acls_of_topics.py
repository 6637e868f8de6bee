"""ACLs in the APIs for topics, configs and the cluster: what a table of permissions cannot show.

That is: the order of errors, requests of which some parts are denied, and what listings hide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.security.acl_broker import (
    acl,
    acl_properties,
    create_acls,
    delete_all_acls,
    log_in,
)
from tests.raw_client import Api, RawClient

from ottla.base.acl import AclOperation
from ottla.base.errors import ErrorCode as E
from ottla.base.types import ZERO_UUID
from ottla.core.security.permissions import (
    ACT_AS_BROKER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_TOPIC,
    DELETE_IN_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
)
from ottla.testing.broker_thread import BrokerThread

DENIED = E.TOPIC_AUTHORIZATION_FAILED
MISSING = E.UNKNOWN_TOPIC_OR_PARTITION
CLUSTER_DENIED = E.CLUSTER_AUTHORIZATION_FAILED
TOPIC, GROUP, BROKER, BROKER_LOGGER = 2, 32, 4, 8
RECORDS = [(b"k", b"v", (), 1_000)]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=acl_properties()) as broker:
        yield broker


@pytest.fixture
def admin(broker: BrokerThread) -> Iterator[RawClient]:
    with log_in(broker.broker.ports["SASL_PLAINTEXT"], "admin") as admin:
        yield admin
        delete_all_acls(admin)


@pytest.fixture
def alice(broker: BrokerThread) -> Iterator[RawClient]:
    with log_in(broker.broker.ports["SASL_PLAINTEXT"], "alice") as alice:
        yield alice


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The beginning of the names of a test's topics."""
    return str(request.node.name).replace("[", "-").rstrip("]")


def everything(name: str) -> Any:
    """Return an ACL that allows everything on a topic."""
    return acl(DESCRIBE_TOPIC, name, operation=AclOperation.ALL)


# ---------------------------------------------------------------------------------------- creation


def new_topic(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": []}


def create(client: RawClient, *names: str, version: int = 7, validate_only: bool = False) -> Any:
    return client.call(
        Api.CREATE_TOPICS,
        version,
        topics=[new_topic(each) for each in names],
        timeout_ms=10_000,
        validate_only=validate_only,
    ).topics


def codes(results: Any) -> dict[str, int]:
    return {each.name: each.error_code for each in results}


def exists(admin: RawClient, name: str) -> bool:
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    (found,) = admin.call(Api.METADATA, **request).topics
    return bool(found.error_code == 0)


def test_only_the_allowed_topics_of_a_request_are_created(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    names = [f"{name}-{index}" for index in range(3)]
    create_acls(admin, everything(names[1]))
    created = create(alice, *names)
    assert [each.name for each in created] == names
    assert codes(created) == {names[0]: DENIED, names[1]: 0, names[2]: DENIED}
    assert [exists(admin, each) for each in names] == [False, True, False]


def test_invalid_creations_are_reported_to_clients_without_permission(
    alice: RawClient, name: str
) -> None:
    created = create(alice, name, "__cluster_metadata", name)
    assert codes(created) == {name: E.INVALID_REQUEST, "__cluster_metadata": E.INVALID_REQUEST}


def test_a_denied_client_does_not_learn_that_the_topic_exists(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    admin.create_topic(name)
    assert codes(create(alice, name)) == {name: DENIED}
    create_acls(admin, acl(CREATE_TOPIC, name))
    assert codes(create(alice, name)) == {name: E.TOPIC_ALREADY_EXISTS}


@pytest.mark.parametrize("version", [2, 5, 7])
def test_a_created_topic_hides_its_configs(
    admin: RawClient, alice: RawClient, name: str, version: int
) -> None:
    create_acls(admin, acl(CREATE_TOPIC, name))
    (created,) = create(alice, name, version=version)
    assert created.error_code == 0
    assert exists(admin, name)
    if version >= 5:
        hidden = created.topic_config_error_code, created.num_partitions, created.configs
        assert hidden == (DENIED, -1, [])
        assert created.replication_factor == -1
    create_acls(admin, acl(CREATE_TOPIC, f"{name}-2"), acl(DESCRIBE_TOPIC_CONFIGS, f"{name}-2"))
    (created,) = create(alice, f"{name}-2", version=version)
    if version >= 5:
        assert (created.topic_config_error_code, created.num_partitions) == (0, 2)
        assert created.configs


# ---------------------------------------------------------------------------------------- deletion


def delete(client: RawClient, *topics: str | bytes) -> list[tuple[str | None, bytes, int]]:
    """Delete topics by name or ID. Return name, ID and error code of each."""
    answer = client.call(
        Api.DELETE_TOPICS,
        topics=[
            {"name": each, "topic_id": ZERO_UUID}
            if isinstance(each, str)
            else {"name": None, "topic_id": each}
            for each in topics
        ],
        timeout_ms=10_000,
    )
    return [(each.name, each.topic_id, each.error_code) for each in answer.responses]


def test_deletion_by_name_shows_only_to_those_who_may_describe_that_a_topic_exists(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    missing = f"{name}-missing"
    topic_id = admin.create_topic(name)
    denied = [(name, ZERO_UUID, DENIED), (missing, ZERO_UUID, DENIED)]
    assert delete(alice, name, missing) == denied
    create_acls(admin, acl(DESCRIBE_TOPIC, name), acl(DESCRIBE_TOPIC, missing))
    assert delete(alice, name, missing) == [denied[0], (missing, ZERO_UUID, MISSING)]
    assert delete(alice, missing, name) == [(missing, ZERO_UUID, MISSING), denied[0]]
    create_acls(admin, acl(DELETE_TOPIC, name), acl(DELETE_TOPIC, missing))
    assert delete(alice, name, missing) == [(name, topic_id, 0), (missing, ZERO_UUID, MISSING)]


def test_deletion_by_name_needs_describe_beside_delete(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    admin.create_topic(name)
    create_acls(admin, acl(DELETE_TOPIC, name), acl(DESCRIBE_TOPIC, name, is_denied=True))
    assert delete(alice, name) == [(name, ZERO_UUID, DENIED)]
    assert exists(admin, name)


def test_deletion_by_id_shows_the_name_only_to_those_who_may_describe(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    topic_id, unknown = admin.create_topic(name), bytes(15) + b"x"
    assert delete(alice, topic_id, unknown) == [
        (None, topic_id, DENIED),
        (None, unknown, E.UNKNOWN_TOPIC_ID),
    ]
    create_acls(admin, acl(DESCRIBE_TOPIC, name))
    assert delete(alice, topic_id) == [(name, topic_id, DENIED)]
    create_acls(admin, acl(DELETE_TOPIC, name))
    assert delete(alice, topic_id) == [(name, topic_id, 0)]
    assert not exists(admin, name)


def test_only_the_allowed_topics_of_a_request_are_deleted(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    names = [f"{name}-{index}" for index in range(3)]
    ids = [admin.create_topic(each) for each in names]
    create_acls(admin, acl(DELETE_TOPIC, names[0]))
    assert delete(alice, ids[1], names[2], names[0]) == [
        (None, ids[1], DENIED),
        (names[2], ZERO_UUID, DENIED),
        (names[0], ids[0], 0),
    ]
    assert [exists(admin, each) for each in names] == [False, True, True]


def test_topics_that_are_given_twice_are_reported_to_clients_without_permission(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    topic_id = admin.create_topic(name)
    assert delete(alice, name, name) == [(name, ZERO_UUID, E.INVALID_REQUEST)]
    assert delete(alice, topic_id, topic_id) == [(None, topic_id, E.INVALID_REQUEST)]


def test_everything_on_the_cluster_allows_deletion(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    topic_id = admin.create_topic(name)
    create_acls(admin, acl(DELETE_IN_CLUSTER, operation=AclOperation.ALL))
    assert delete(alice, name) == [(name, topic_id, 0)]


def test_a_disabled_deletion_is_reported_to_clients_without_permission() -> None:
    properties = acl_properties(delete__topic__enable="false")
    with (
        BrokerThread(overrides=properties) as broker,
        log_in(broker.broker.ports["SASL_PLAINTEXT"], "alice") as alice,
    ):
        assert delete(alice, "any") == [("any", ZERO_UUID, E.TOPIC_DELETION_DISABLED)]


def test_records_are_deleted_only_with_permission(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    names = [f"{name}-{index}" for index in range(2)]
    for each in names:
        admin.create_topic(each)
        admin.produce(each, RECORDS)
    create_acls(admin, acl(DESCRIBE_TOPIC, names[0]), acl(DELETE_TOPIC, names[1]))
    requested = [
        {"name": each, "partitions": [{"partition_index": 0, "offset": -1}]}
        for each in [*names, f"{name}-missing"]
    ]
    answer = alice.call(Api.DELETE_RECORDS, topics=requested, timeout_ms=10_000)
    results = [each.partitions[0] for each in answer.topics]
    assert [(each.error_code, each.low_watermark) for each in results] == [
        (DENIED, -1),
        (0, 1),
        (DENIED, -1),
    ]
    start = [list_offset(admin, each, -2) for each in names]
    assert [(each.error_code, each.offset) for each in start] == [(0, 0), (0, 1)]


# -------------------------------------------------------------------------------------- partitions


def test_partitions_are_added_only_to_allowed_topics(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    names = [f"{name}-{index}" for index in range(3)]
    for each in names:
        admin.create_topic(each)
    create_acls(admin, acl(ALTER_TOPIC, names[1]))

    def add(*topics: str) -> dict[str, int]:
        more = [{"name": each, "count": 2, "assignments": None} for each in topics]
        answer = alice.call(Api.CREATE_PARTITIONS, topics=more, timeout_ms=10_000)
        return codes(answer.results)

    assert add(*names, "missing") == {
        names[0]: DENIED,
        names[1]: 0,
        names[2]: DENIED,
        "missing": DENIED,
    }
    assert add(names[0], names[0]) == {names[0]: E.INVALID_REQUEST}


@pytest.mark.parametrize("api", [Api.ELECT_LEADERS, Api.ALTER_PARTITION_REASSIGNMENTS])
def test_a_denied_change_of_replicas_is_an_error_at_every_partition(
    admin: RawClient, alice: RawClient, name: str, api: Api
) -> None:
    admin.create_topic(name)
    if api is Api.ELECT_LEADERS:
        partitions = [{"topic": name, "partitions": [0, 1]}]
        request = {"election_type": 0, "topic_partitions": partitions, "timeout_ms": 1_000}
        answers = [alice.call(api, version, **request) for version in (1, 2)]
        results = [each.replica_election_results[0].partition_result for each in answers]
        unlisted = alice.call(api, **{**request, "topic_partitions": None})
        assert (unlisted.error_code, unlisted.replica_election_results) == (CLUSTER_DENIED, [])
    else:
        moved = [{"partition_index": index, "replicas": [0]} for index in (0, 1)]
        request = {"topics": [{"name": name, "partitions": moved}], "timeout_ms": 1_000}
        answers = [alice.call(api, version, **request) for version in (0, 1)]
        results = [each.responses[0].partitions for each in answers]
    for answer, partitions in zip(answers, results, strict=True):
        assert answer.error_code == CLUSTER_DENIED
        assert [each.error_code for each in partitions] == [CLUSTER_DENIED] * 2


# ----------------------------------------------------------------------------------------- offsets


def list_offset(client: RawClient, topic: str, *timestamps: int) -> Any:
    partitions = [{"partition_index": 0, "timestamp": each} for each in timestamps]
    answer = client.call(
        Api.LIST_OFFSETS,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": partitions}],
    )
    (partition,) = answer.topics[0].partitions
    return partition


def test_a_missing_permission_is_reported_before_other_errors_of_list_offsets(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    admin.create_topic(name)
    for timestamps in [(-1,), (-1, -1), (-77,)]:
        found = list_offset(alice, name, *timestamps)
        assert (found.error_code, found.timestamp, found.offset) == (DENIED, -1, -1)
    create_acls(admin, acl(DESCRIBE_TOPIC, name))
    assert list_offset(alice, name, -1).error_code == 0
    assert list_offset(alice, name, -1, -1).error_code == E.INVALID_REQUEST
    assert list_offset(alice, name, -77).error_code == E.UNSUPPORTED_VERSION


@pytest.mark.parametrize("replica", [-1, 2])
def test_offsets_of_leader_epochs_need_one_of_two_permissions(
    admin: RawClient, alice: RawClient, name: str, replica: int
) -> None:
    topics = [f"{name}-{index}" for index in range(2)]
    for each in topics:
        admin.create_topic(each)

    def ask() -> list[int]:
        partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
        answer = alice.call(
            Api.OFFSET_FOR_LEADER_EPOCH,
            replica_id=replica,
            topics=[{"topic": each, "partitions": [partition]} for each in topics],
        )
        return [each.partitions[0].error_code for each in answer.topics]

    assert ask() == [DENIED, DENIED]
    create_acls(admin, acl(DESCRIBE_TOPIC, topics[0]))
    assert ask() == [0, DENIED]
    create_acls(admin, acl(ACT_AS_BROKER))
    assert ask() == [0, 0]


# ----------------------------------------------------------------------------------------- configs


def test_configs_are_described_only_of_allowed_resources(
    broker: BrokerThread, admin: RawClient, alice: RawClient, name: str
) -> None:
    admin.create_topic(name)
    own = str(broker.broker.node_id)
    create_acls(admin, acl(DESCRIBE_TOPIC_CONFIGS, name))
    asked = [(TOPIC, name), (TOPIC, "missing"), (GROUP, "g"), (BROKER, "77"), (BROKER_LOGGER, own)]

    def ask() -> list[int]:
        resources = [
            {"resource_type": kind, "resource_name": each, "configuration_keys": None}
            for kind, each in asked
        ]
        answer = alice.call(Api.DESCRIBE_CONFIGS, resources=resources)
        assert all(bool(each.configs) is (each.error_code == 0) for each in answer.results)
        assert [(each.resource_type, each.resource_name) for each in answer.results] == asked
        return [each.error_code for each in answer.results]

    group_denied = E.GROUP_AUTHORIZATION_FAILED
    assert ask() == [0, DENIED, group_denied, CLUSTER_DENIED, CLUSTER_DENIED]
    create_acls(admin, acl(DESCRIBE_CLUSTER_CONFIGS))
    assert ask() == [0, DENIED, group_denied, E.INVALID_REQUEST, 0]


@pytest.mark.parametrize("api", [Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS])
def test_configs_are_altered_only_of_allowed_resources(
    admin: RawClient, alice: RawClient, name: str, api: Api
) -> None:
    names = [f"{name}-{index}" for index in range(2)]
    for each in names:
        admin.create_topic(each)
    create_acls(admin, acl(ALTER_TOPIC_CONFIGS, names[0]))

    def alter(*resources: tuple[int, str]) -> dict[tuple[int, str], int]:
        change = {"name": "retention.ms", "value": "5000"}
        if api is Api.INCREMENTAL_ALTER_CONFIGS:
            change["config_operation"] = 0
        requested = [
            {"resource_type": kind, "resource_name": each, "configs": [change]}
            for kind, each in resources
        ]
        answer = alice.call(api, resources=requested, validate_only=False)
        return {(e.resource_type, e.resource_name): e.error_code for e in answer.responses}

    asked = (TOPIC, names[0]), (TOPIC, names[1]), (TOPIC, "missing"), (BROKER, "0"), (GROUP, "g")
    assert alter(*asked) == dict(
        zip(asked, [0, DENIED, DENIED, CLUSTER_DENIED, E.GROUP_AUTHORIZATION_FAILED], strict=True)
    )
    assert [retention(admin, each) for each in names] == ["5000", "604800000"]
    twice = (TOPIC, names[1])
    assert alter(twice, twice) == {twice: E.INVALID_REQUEST}


def retention(admin: RawClient, topic: str) -> str:
    resource = {"resource_type": TOPIC, "resource_name": topic}
    resource["configuration_keys"] = ["retention.ms"]
    (found,) = admin.call(Api.DESCRIBE_CONFIGS, resources=[resource]).results
    return str(found.configs[0].value)


def test_levels_of_loggers_need_permission_on_the_cluster(
    broker: BrokerThread, admin: RawClient, alice: RawClient
) -> None:
    change = {"name": "ottla.broker.cleaner", "config_operation": 0, "value": "DEBUG"}
    resource = {
        "resource_type": BROKER_LOGGER,
        "resource_name": str(broker.broker.node_id),
        "configs": [change],
    }

    def alter() -> int:
        answer = alice.call(Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=True)
        return int(answer.responses[0].error_code)

    assert alter() == CLUSTER_DENIED
    create_acls(admin, acl(ALTER_CLUSTER_CONFIGS))
    assert alter() == 0


# ---------------------------------------------------------------------------------------- listings


def pages(client: RawClient, *names: str, limit: int) -> list[list[tuple[str, int]]]:
    """Return name and error code of the topics of each page."""
    found: list[list[tuple[str, int]]] = []
    cursor = None
    while True:
        answer = client.call(
            Api.DESCRIBE_TOPIC_PARTITIONS,
            topics=[{"name": each} for each in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        found.append([(each.name, each.error_code) for each in answer.topics])
        if answer.next_cursor is None:
            return found
        next_topic, index = answer.next_cursor.topic_name, answer.next_cursor.partition_index
        cursor = {"topic_name": next_topic, "partition_index": index}


def test_denied_topics_come_after_the_page_and_do_not_count_for_its_limit(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    names = [f"{name}-{index}" for index in range(5)]
    for each in names[:4]:
        admin.create_topic(each)
    create_acls(admin, *[acl(DESCRIBE_TOPIC, each) for each in names[1:4:2]])
    a, b, c, d, e = names
    assert pages(alice, *names, limit=1) == [
        [(b, 0), (a, DENIED), (c, DENIED)],
        [(d, 0), (e, DENIED)],
    ]
    assert pages(alice, limit=1) == [[(b, 0)], [(d, 0)]]


def test_described_topics_have_the_operations_of_the_client(
    admin: RawClient, alice: RawClient, name: str
) -> None:
    topic_id = admin.create_topic(name)
    create_acls(admin, acl(DESCRIBE_TOPIC, name))

    def describe(topic: str) -> Any:
        answer = alice.call(
            Api.DESCRIBE_TOPIC_PARTITIONS,
            topics=[{"name": topic}],
            response_partition_limit=10,
            cursor=None,
        )
        (found,) = answer.topics
        return found

    found = describe(name)
    assert (found.topic_id, found.topic_authorized_operations) == (
        topic_id,
        1 << AclOperation.DESCRIBE,
    )
    hidden = describe("__consumer_offsets")
    assert (hidden.error_code, hidden.topic_id, hidden.is_internal) == (DENIED, ZERO_UUID, False)
    assert hidden.topic_authorized_operations == -(2**31)


def test_clients_without_permission_see_nothing_of_the_cluster(alice: RawClient) -> None:
    for version in (2, 5):
        dirs = alice.call(Api.DESCRIBE_LOG_DIRS, version, topics=None)
        assert list(dirs.results) == []
        assert getattr(dirs, "error_code", CLUSTER_DENIED) == (CLUSTER_DENIED if version > 2 else 0)
    moves = alice.call(Api.LIST_PARTITION_REASSIGNMENTS, timeout_ms=1_000, topics=None)
    assert (moves.error_code, list(moves.topics)) == (CLUSTER_DENIED, [])
    for kinds in ([], [99]):
        resources = alice.call(Api.LIST_CONFIG_RESOURCES, resource_types=kinds)
        assert (resources.error_code, list(resources.config_resources)) == (CLUSTER_DENIED, [])
    cluster = alice.call(Api.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True)
    assert (cluster.error_code, cluster.cluster_authorized_operations) == (0, 0)
    assert len(cluster.brokers) == 1
    users = [{"name": "eve"}, {"name": "bob"}]
    described = alice.call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, users=users)
    assert described.error_code == CLUSTER_DENIED
    assert [(each.user, each.error_code) for each in described.results] == [
        ("eve", CLUSTER_DENIED),
        ("bob", CLUSTER_DENIED),
    ]

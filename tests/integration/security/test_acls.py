"""ACLs on a running broker: the APIs that change them, and when changes take effect."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.security.acl_broker import (
    acl,
    acl_properties,
    create_acls,
    creation,
    delete_acls,
    delete_all_acls,
    described,
    fetch_request,
    filter_of,
    log_in,
)
from tests.raw_client import Api, RawClient, newest

from ottla.base.acl import AclOperation, PatternType
from ottla.base.errors import ErrorCode as E
from ottla.core.security.permissions import (
    ALTER_CLUSTER,
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from ottla.testing.broker_thread import BrokerThread
from ottla.wire import schema
from ottla.wire.records.builder import build_batch

BUSY_MACHINE_S = 5.0
"""Far less than the fetch would wait."""
RECORDS = [(b"k", b"v", (), 1_000)]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=acl_properties()) as broker:
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
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic-{abs(hash(request.node.name))}"


def port(broker: BrokerThread) -> int:
    return broker.broker.ports["SASL_PLAINTEXT"]


# ---------------------------------------------------------------------------------- the ACL APIs


def test_acls_are_created_described_and_deleted(admin: RawClient) -> None:
    first = acl(READ_TOPIC, "orders")
    second = acl(
        WRITE_TOPIC, "ord", pattern=PatternType.PREFIXED, is_denied=True, host="10.0.0.0/8"
    )
    create_acls(admin, first, second)
    create_acls(admin, first)
    assert described(admin) == {first, second}
    by_match = {"resource_type_filter": 2, "resource_name_filter": "orders"}
    assert described(admin, **by_match, pattern_type_filter=PatternType.MATCH) == {first, second}
    assert described(admin, **by_match, pattern_type_filter=PatternType.LITERAL) == {first}
    delete_acls(admin, first)
    assert described(admin) == {second}


@pytest.mark.parametrize("version", schema.versions(Api.CREATE_ACLS))
def test_the_acl_apis_are_served_in_every_version(admin: RawClient, version: int) -> None:
    binding = acl(READ_TOPIC, "orders", pattern=PatternType.PREFIXED)
    answer = admin.call(Api.CREATE_ACLS, version, creations=[creation(binding)])
    assert [each.error_code for each in answer.results] == [0]
    (found,) = admin.call(Api.DESCRIBE_ACLS, version, **filter_of(binding)).resources
    assert (found.resource_name, found.pattern_type) == ("orders", PatternType.PREFIXED)
    assert [each.principal for each in found.acls] == ["User:alice"]
    (result,) = admin.call(Api.DELETE_ACLS, version, filters=[filter_of(binding)]).filter_results
    assert [each.resource_name for each in result.matching_acls] == ["orders"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"resource_type": 0}, "resource type UNKNOWN"),
        ({"resource_type": 1}, "resource type ANY"),
        ({"resource_type": 99}, "resource type UNKNOWN"),
        ({"resource_pattern_type": 2}, "pattern type MATCH"),
        ({"operation": 1}, "operation ANY"),
        ({"operation": -3}, "operation UNKNOWN"),
        ({"permission_type": 1}, "permission type ANY"),
        ({"resource_name": ""}, "must not be empty"),
        ({"resource_type": 4, "resource_name": "mine"}, "'kafka-cluster'"),
        ({"principal": "alice"}, "'alice' is not a principal"),
        ({"principal": "User:"}, "is not a principal"),
        ({"host": "example.org"}, "'example.org' is not a host"),
        ({"host": "10.0.0.0/33"}, "is not a host"),
    ],
)
def test_an_invalid_acl_is_refused_alone(
    admin: RawClient, changed: dict[str, Any], words: str
) -> None:
    valid = acl(READ_TOPIC, "orders")
    wrong = {**creation(valid), **changed}
    answer = admin.call(Api.CREATE_ACLS, creations=[wrong, creation(valid)])
    assert [each.error_code for each in answer.results] == [E.INVALID_REQUEST, E.NONE]
    assert words in answer.results[0].error_message
    assert described(admin) == {valid}


def test_a_filter_with_an_unknown_part_is_refused_alone(admin: RawClient) -> None:
    valid = acl(READ_TOPIC, "orders")
    create_acls(admin, valid)
    wrong = {**filter_of(valid), "operation": 77}
    answer = admin.call(Api.DELETE_ACLS, filters=[wrong, filter_of(valid)])
    assert [each.error_code for each in answer.filter_results] == [E.INVALID_REQUEST, E.NONE]
    answer = admin.call(Api.DESCRIBE_ACLS, **wrong)
    assert answer.error_code == E.INVALID_REQUEST


def test_a_request_with_too_many_acls_changes_nothing(admin: RawClient) -> None:
    many = [creation(acl(READ_TOPIC, f"t-{index}")) for index in range(10_001)]
    answer = admin.call(Api.CREATE_ACLS, creations=many)
    assert {each.error_code for each in answer.results} == {E.POLICY_VIOLATION}
    assert described(admin) == set()


def test_only_users_with_permission_see_and_change_acls(admin: RawClient, alice: RawClient) -> None:
    mine = acl(READ_TOPIC, "orders")
    everything = [creation(mine)], [filter_of(mine)]

    def codes() -> tuple[int, int, int]:
        created = alice.call(Api.CREATE_ACLS, creations=everything[0])
        seen = alice.call(Api.DESCRIBE_ACLS, **filter_of(mine))
        deleted = alice.call(Api.DELETE_ACLS, filters=everything[1])
        return (
            created.results[0].error_code,
            seen.error_code,
            deleted.filter_results[0].error_code,
        )

    refused = E.CLUSTER_AUTHORIZATION_FAILED
    assert codes() == (refused, refused, refused)
    create_acls(admin, acl(DESCRIBE_CLUSTER))
    assert codes() == (refused, 0, refused)
    create_acls(admin, acl(ALTER_CLUSTER))
    assert codes() == (0, 0, 0)


def test_acls_need_an_authorizer() -> None:
    with BrokerThread() as broker, RawClient(broker.broker.ports["PLAINTEXT"]) as client:
        binding = acl(READ_TOPIC, "orders")
        disabled = E.SECURITY_DISABLED
        answer = client.call(Api.CREATE_ACLS, creations=[creation(binding)])
        assert answer.results[0].error_code == disabled
        answer = client.call(Api.DELETE_ACLS, filters=[filter_of(binding)])
        assert answer.filter_results[0].error_code == disabled
        answer = client.call(Api.DESCRIBE_ACLS, **filter_of(binding))
        assert answer.error_code == disabled


def test_acls_survive_a_restart() -> None:
    binding = acl(READ_TOPIC, "orders")
    with BrokerThread(overrides=acl_properties()) as broker:
        with log_in(port(broker), "admin") as admin:
            create_acls(admin, binding)
        broker.restart()
        with log_in(port(broker), "admin") as admin:
            assert described(admin) == {binding}


# --------------------------------------------------------------------------------------- metadata


def metadata(client: RawClient, *names: str, create: bool = False) -> dict[str, int]:
    answer = client.call(
        Api.METADATA,
        topics=[{"name": name} for name in names] if names else None,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=True,
    )
    return {each.name: each.error_code for each in answer.topics}


def test_a_topic_is_hidden_whether_it_exists_or_not(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    topic_id = admin.create_topic(topic)
    denied = E.TOPIC_AUTHORIZATION_FAILED
    assert metadata(alice, topic, "missing") == {topic: denied, "missing": denied}
    assert topic not in metadata(alice)
    by_id = [{"topic_id": topic_id, "name": None}]
    (found,) = alice.call(Api.METADATA, topics=by_id).topics
    assert (found.error_code, found.name, found.topic_id) == (denied, None, topic_id)
    create_acls(admin, acl(DESCRIBE_TOPIC, topic), acl(DESCRIBE_TOPIC, "missing"))
    assert metadata(alice, topic, "missing") == {topic: 0, "missing": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert metadata(alice) == {topic: 0}
    (found,) = alice.call(Api.METADATA, topics=by_id).topics
    assert (found.error_code, found.name) == (0, topic)


def test_operations_are_those_of_the_client(admin: RawClient, alice: RawClient, topic: str) -> None:
    admin.create_topic(topic)
    create_acls(admin, acl(READ_TOPIC, topic))
    request = {"topics": [{"name": topic}], "include_topic_authorized_operations": True}
    (found,) = alice.call(Api.METADATA, **request).topics
    expected = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert found.topic_authorized_operations == expected


@pytest.mark.parametrize("in_cluster", [True, False])
def test_automatic_creation_needs_permission(
    admin: RawClient, alice: RawClient, topic: str, in_cluster: bool
) -> None:
    topic = f"{topic}-{in_cluster}"
    create_acls(admin, acl(DESCRIBE_TOPIC, topic))
    assert metadata(alice, topic, create=True) == {topic: E.TOPIC_AUTHORIZATION_FAILED}
    create_acls(admin, acl(CREATE_IN_CLUSTER) if in_cluster else acl(CREATE_TOPIC, topic))
    metadata(alice, topic, create=True)
    assert metadata(alice, topic) == {topic: 0}


# ---------------------------------------------------------------------------------------- produce


def test_producing_needs_permission(admin: RawClient, alice: RawClient, topic: str) -> None:
    assert alice.produce(topic, RECORDS).error_code == E.TOPIC_AUTHORIZATION_FAILED
    admin.create_topic(topic)
    create_acls(admin, acl(DESCRIBE_TOPIC, topic))
    assert alice.produce(topic, RECORDS).error_code == E.TOPIC_AUTHORIZATION_FAILED
    create_acls(admin, acl(WRITE_TOPIC, topic))
    assert alice.produce(topic, RECORDS).error_code == E.NONE
    create_acls(admin, acl(WRITE_TOPIC, f"{topic}-missing"))
    answer = alice.produce(f"{topic}-missing", RECORDS)
    assert answer.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_may_write_to_some_of_its_topics(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    names = [f"{topic}-{index}" for index in range(3)]
    for name in names:
        admin.create_topic(name)
    create_acls(admin, acl(WRITE_TOPIC, names[1]))
    batch = build(RECORDS)
    answer = alice.call(
        Api.PRODUCE,
        12,
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=[
            {"name": name, "partition_data": [{"index": 0, "records": batch}]} for name in names
        ],
    )
    codes = [each.partition_responses[0].error_code for each in answer.responses]
    denied = E.TOPIC_AUTHORIZATION_FAILED
    assert codes == [denied, 0, denied]


def test_a_denied_producer_without_acknowledgements_is_disconnected(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    admin.create_topic(topic)
    batch = build(RECORDS)
    alice.send(
        Api.PRODUCE,
        12,
        transactional_id=None,
        acks=0,
        timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    )
    alice.assert_is_closed()


def test_a_transaction_needs_permission_for_its_id(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    admin.create_topic(topic)
    create_acls(admin, acl(WRITE_TOPIC, topic))
    denied = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce_in_transaction(alice, topic, "tx") == denied
    assert produce_in_transaction(alice, topic, None) == denied
    create_acls(admin, acl(WRITE_TRANSACTIONAL_ID, "tx"))
    assert produce_in_transaction(alice, topic, "tx") != denied


def produce_in_transaction(client: RawClient, topic: str, transactional_id: str | None) -> int:
    batch = build(RECORDS, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    answer = client.call(
        Api.PRODUCE,
        12,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    )
    return int(answer.responses[0].partition_responses[0].error_code)


def build(records: list[Any], **batch: Any) -> bytes:
    return bytes(build_batch(records, **batch))


# ------------------------------------------------------------------------------------------ fetch


def fetch(client: RawClient, *args: Any, **kwargs: Any) -> tuple[int, int | None, Any]:
    """Return the session, the error code of the partition if it was returned, and its records."""
    answer = client.call(Api.FETCH, **fetch_request(*args, **kwargs))
    assert answer.error_code == 0, answer
    partitions = [each for topic in answer.responses for each in topic.partitions]
    if not partitions:
        return answer.session_id, None, b""
    return answer.session_id, partitions[0].error_code, partitions[0].records


def test_fetching_needs_permission(admin: RawClient, alice: RawClient, topic: str) -> None:
    topic_id = admin.create_topic(topic)
    admin.produce(topic, RECORDS)
    assert fetch(alice, topic_id)[1] == E.TOPIC_AUTHORIZATION_FAILED
    create_acls(admin, acl(DESCRIBE_TOPIC, topic))
    assert fetch(alice, topic_id) == (0, E.TOPIC_AUTHORIZATION_FAILED, b"")
    assert fetch(alice, bytes(15) + b"x")[1] == E.UNKNOWN_TOPIC_ID
    create_acls(admin, acl(READ_TOPIC, topic))
    assert fetch(alice, topic_id)[1] == 0


def test_a_client_without_permission_cannot_fetch_as_a_replica(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    topic_id = admin.create_topic(topic)
    create_acls(admin, acl(READ_TOPIC, topic))
    request = {**fetch_request(topic_id), "replica_state": {"replica_id": 2, "replica_epoch": 1}}
    answer = alice.call(Api.FETCH, **request)
    code = answer.responses[0].partitions[0].error_code
    assert code == E.TOPIC_AUTHORIZATION_FAILED


# ------------------------------------------------------------------------- changes take effect


def test_a_remembered_produce_request_is_refused_after_a_revocation(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    admin.create_topic(topic)
    allowed = acl(WRITE_TOPIC, topic)
    create_acls(admin, allowed)
    for _ in range(3):
        assert alice.produce(topic, RECORDS).error_code == 0
    delete_acls(admin, allowed)
    for _ in range(3):
        assert alice.produce(topic, RECORDS).error_code == E.TOPIC_AUTHORIZATION_FAILED
    create_acls(admin, allowed)
    assert alice.produce(topic, RECORDS).error_code == 0


def test_a_fetch_session_ends_with_the_permission(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    topic_id = admin.create_topic(topic)
    allowed = acl(READ_TOPIC, topic)
    create_acls(admin, allowed)
    session, code, _ = fetch(alice, topic_id, session=(0, 0))
    assert code == 0
    for epoch in (1, 2):
        assert fetch(alice, session=(session, epoch))[1] is None
    denied = acl(READ_TOPIC, topic, is_denied=True)
    create_acls(admin, denied)
    admin.produce(topic, RECORDS)
    for epoch in (3, 4):
        failed = fetch(alice, session=(session, epoch))
        assert failed == (session, E.TOPIC_AUTHORIZATION_FAILED, b"")
    delete_acls(admin, denied)
    assert len(fetch(alice, session=(session, 5))[2]) > 0


@pytest.mark.parametrize("in_session", [True, False])
def test_a_waiting_fetch_is_refused_when_the_permission_is_revoked(
    admin: RawClient, alice: RawClient, topic: str, in_session: bool
) -> None:
    topic = f"{topic}-{in_session}"
    topic_id = admin.create_topic(topic)
    allowed = acl(READ_TOPIC, topic)
    create_acls(admin, allowed)
    session, _, _ = fetch(alice, topic_id, session=(0, 0))
    wait = {"max_wait_ms": 20_000, "min_bytes": 1}
    request = fetch_request(topic_id, **wait)
    if in_session:
        request = fetch_request(session=(session, 1), **wait)
    sent = alice.send(Api.FETCH, newest(Api.FETCH), **request)
    create_acls(admin, acl(WRITE_TOPIC, "unrelated"))
    delete_acls(admin, allowed)
    started = time.monotonic()
    answer = alice.receive(Api.FETCH, newest(Api.FETCH), sent)
    assert answer.responses[0].partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert time.monotonic() - started < BUSY_MACHINE_S


def test_an_unrelated_change_does_not_wake_a_waiting_fetch(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    topic_id = admin.create_topic(topic)
    create_acls(admin, acl(READ_TOPIC, topic))
    request = fetch_request(topic_id, max_wait_ms=20_000, min_bytes=1)
    sent = alice.send(Api.FETCH, newest(Api.FETCH), **request)
    create_acls(admin, acl(READ_TOPIC, "another"))
    admin.produce(topic, RECORDS)
    answer = alice.receive(Api.FETCH, newest(Api.FETCH), sent)
    assert len(answer.responses[0].partitions[0].records) > 0


# -------------------------------------------------------------------------------------- audit log


def test_denials_are_logged_once_with_the_number_of_their_repetitions(
    broker: BrokerThread, alice: RawClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    for _ in range(5):
        metadata(alice, topic)
    broker.run(flush(broker))
    lines = [each.getMessage() for each in caplog.records if topic in each.getMessage()]
    line = (
        "Principal = User:alice is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = "
        f"Topic:LITERAL:{topic} for request = Metadata with resourceRefCount = %d based on rule "
        "DefaultDeny"
    )
    assert lines == [line % 1, line % 4]


async def flush(broker: BrokerThread) -> None:
    authorization = broker.broker.authorization
    assert authorization is not None
    authorization.audit.flush()


def test_listings_are_not_logged(
    admin: RawClient, alice: RawClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    admin.create_topic(topic)
    caplog.clear()
    metadata(alice)
    assert not [each for each in caplog.records if each.name == "kafka.authorizer.logger"]

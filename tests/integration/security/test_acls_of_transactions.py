"""ACLs of transactions and idempotent producers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest
from tests.integration.security.acl_broker import (
    acl,
    acl_properties,
    create_acls,
    delete_acls,
    delete_all_acls,
    log_in,
)
from tests.integration.transactions.producer import TransactionalProducer
from tests.raw_client import Api, RawClient

from ottla.base.acl import AclOperation, PatternType
from ottla.base.errors import ErrorCode as E
from ottla.core.security.permissions import (
    ACT_AS_BROKER,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    READ_GROUP,
    READ_TOPIC,
    WRITE_IDEMPOTENTLY,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from ottla.testing.broker_thread import BrokerThread
from ottla.wire import schema

PROPERTIES = acl_properties(
    offsets__topic__num__partitions="4", transaction__state__log__num__partitions="4"
)
LOGGER = "kafka.authorizer.logger"
MISSING = "missing"
OFFSETS_TOPIC = "__consumer_offsets"
DENIED_ID = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIED_TOPIC = E.TOPIC_AUTHORIZATION_FAILED
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
def topic(admin: RawClient) -> str:
    return new_topic(admin)


def new_topic(admin: RawClient) -> str:
    name = f"topic-{next(_numbers)}"
    admin.create_topic(name)
    return name


@pytest.fixture
def producer(admin: RawClient, alice: RawClient) -> TransactionalProducer:
    """A producer of alice, who has no permission any more."""
    producer = TransactionalProducer(admin, f"tx-{next(_numbers)}").begin()
    producer.client = alice
    return producer


def port(broker: BrokerThread) -> int:
    return broker.broker.ports["SASL_PLAINTEXT"]


def versions(api: int) -> list[Any]:
    return [pytest.param(each, id=f"v{each}") for each in schema.versions(api)]


def described(client: RawClient, *ids: str) -> list[tuple[str, int, list[str]]]:
    answer = client.call(Api.DESCRIBE_TRANSACTIONS, transactional_ids=list(ids))
    return [
        (each.transactional_id, each.error_code, [topic.topic for topic in each.topics])
        for each in answer.transaction_states
    ]


def state_of(client: RawClient, producer: TransactionalProducer) -> str:
    answer = client.call(
        Api.LIST_TRANSACTIONS, state_filters=[], producer_id_filters=[producer.producer_id]
    )
    state: str = answer.transaction_states[0].transaction_state
    return state


# ------------------------------------------------------------------------------- InitProducerId


def init(client: RawClient, transactional_id: str | None, version: int | None = None) -> int:
    answer = client.call(
        Api.INIT_PRODUCER_ID,
        version,
        transactional_id=transactional_id,
        transaction_timeout_ms=10_000,
    )
    assert (answer.producer_id == -1) == (answer.error_code != 0)
    code: int = answer.error_code
    return code


@pytest.mark.parametrize("version", versions(Api.INIT_PRODUCER_ID))
def test_an_idempotent_producer_needs_any_topic_that_it_may_write_to(
    admin: RawClient, alice: RawClient, version: int
) -> None:
    denied = E.CLUSTER_AUTHORIZATION_FAILED
    assert init(alice, None, version) == denied
    create_acls(admin, acl(READ_TOPIC, "orders"))
    assert init(alice, None, version) == denied
    written = acl(WRITE_TOPIC, "not-there-", pattern=PatternType.PREFIXED)
    create_acls(admin, written)
    assert init(alice, None, version) == 0
    dominating = acl(WRITE_TOPIC, "not-", pattern=PatternType.PREFIXED, is_denied=True)
    create_acls(admin, dominating)
    assert init(alice, None, version) == denied
    create_acls(admin, acl(WRITE_IDEMPOTENTLY))
    assert init(alice, None, version) == 0
    create_acls(admin, acl(WRITE_IDEMPOTENTLY, is_denied=True))
    delete_acls(admin, dominating)
    assert init(alice, None, version) == 0
    delete_acls(admin, written)
    assert init(alice, None, version) == denied


def test_a_denied_idempotent_producer_is_logged_once(
    alice: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    assert init(alice, None) == E.CLUSTER_AUTHORIZATION_FAILED
    (line,) = [each.getMessage() for each in caplog.records if each.name == LOGGER]
    assert "is Denied operation = IDEMPOTENT_WRITE" in line
    assert "for request = InitProducerId" in line


def test_a_producer_with_a_transactional_id_needs_permission_for_it(
    admin: RawClient, alice: RawClient
) -> None:
    create_acls(admin, acl(WRITE_TOPIC, "orders"), acl(WRITE_IDEMPOTENTLY))
    assert init(alice, "") == init(alice, "tx") == DENIED_ID
    create_acls(admin, acl(DESCRIBE_TRANSACTIONAL_ID, "tx"))
    assert init(alice, "tx") == DENIED_ID
    create_acls(admin, acl(WRITE_TRANSACTIONAL_ID, "tx"))
    assert TransactionalProducer(alice, "tx").begin().producer_id >= 0


# --------------------------------------------------------------------------- AddPartitionsToTxn


def add(producer: TransactionalProducer, version: int, *topics: str) -> dict[str, int]:
    """Add the first partitions of topics to the transaction, and return their errors."""
    identity = producer.identity()
    answer = producer.client.call(
        Api.ADD_PARTITIONS_TO_TXN,
        version,
        **{f"v3_and_below_{name}": value for name, value in identity.items()},
        v3_and_below_topics=[{"name": name, "partitions": [0]} for name in topics],
    )
    return {
        each.name: each.results_by_partition[0].partition_error_code
        for each in answer.results_by_topic_v3_and_below
    }


@pytest.mark.parametrize("version", range(4))
def test_no_partition_is_added_if_one_of_them_is_denied(
    admin: RawClient,
    alice: RawClient,
    topic: str,
    producer: TransactionalProducer,
    version: int,
) -> None:
    hidden = new_topic(admin)
    topics = (topic, hidden, MISSING, OFFSETS_TOPIC)
    assert add(producer, version, *topics) == dict.fromkeys(topics, DENIED_ID)
    create_acls(admin, acl(WRITE_TRANSACTIONAL_ID, producer.id), acl(WRITE_TOPIC, topic))
    create_acls(admin, acl(READ_TOPIC, hidden), acl(WRITE_TOPIC, OFFSETS_TOPIC))
    assert add(producer, version, *topics) == {
        topic: E.OPERATION_NOT_ATTEMPTED,
        hidden: DENIED_TOPIC,
        MISSING: DENIED_TOPIC,
        OFFSETS_TOPIC: DENIED_TOPIC,
    }
    assert state_of(admin, producer) == "Empty"
    create_acls(admin, acl(WRITE_TOPIC, MISSING))
    assert add(producer, version, topic, MISSING) == {
        topic: E.OPERATION_NOT_ATTEMPTED,
        MISSING: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert add(producer, version, topic) == {topic: 0}
    assert described(admin, producer.id) == [(producer.id, 0, [topic])]


@pytest.mark.parametrize("version", [4, 5])
def test_only_brokers_add_partitions_to_several_transactions(
    admin: RawClient, alice: RawClient, topic: str, producer: TransactionalProducer, version: int
) -> None:
    create_acls(admin, acl(WRITE_TRANSACTIONAL_ID, producer.id), acl(WRITE_TOPIC, topic))
    partitions = [{"name": topic, "partitions": [0]}]
    request = {**producer.identity(), "verify_only": False, "topics": partitions}
    answer = alice.call(Api.ADD_PARTITIONS_TO_TXN, version, transactions=[request])
    assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
    assert list(answer.results_by_transaction) == []
    delete_all_acls(admin)
    create_acls(admin, acl(ACT_AS_BROKER))
    assert producer.add(topic, version=version) is E.NONE


# ---------------------------------------------------------------------- the rest of a transaction


@pytest.mark.parametrize("version", versions(Api.ADD_OFFSETS_TO_TXN))
def test_a_group_is_added_with_permission_for_it_and_the_transaction(
    admin: RawClient, alice: RawClient, producer: TransactionalProducer, version: int
) -> None:
    create_acls(admin, acl(READ_GROUP, "group"))
    assert producer.add_offsets("group", version) is DENIED_ID
    assert producer.add_offsets("", version) is DENIED_ID
    create_acls(admin, acl(WRITE_TRANSACTIONAL_ID, producer.id))
    assert producer.add_offsets("group", version) is E.NONE
    assert producer.add_offsets("other", version) is E.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", versions(Api.END_TXN))
def test_a_transaction_is_ended_with_permission_for_it(
    admin: RawClient, alice: RawClient, topic: str, producer: TransactionalProducer, version: int
) -> None:
    allowed = acl(WRITE_TRANSACTIONAL_ID, producer.id)
    create_acls(admin, allowed, acl(WRITE_TOPIC, topic))
    assert producer.add(topic) is E.NONE
    delete_acls(admin, allowed)
    assert producer.end(version=version) is DENIED_ID
    assert producer.end(version=version, transactional_id="") is DENIED_ID
    create_acls(admin, allowed)
    assert producer.end(version=version) is E.NONE


def commit_offsets(
    producer: TransactionalProducer, version: int, *topics: str, group: str = "group"
) -> dict[str, int]:
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    answer = producer.client.call(
        Api.TXN_OFFSET_COMMIT,
        version,
        **producer.identity(group_id=group),
        generation_id=-1,
        member_id="",
        topics=[{"name": name, "partitions": [partition]} for name in topics],
    )
    return {each.name: each.partitions[0].error_code for each in answer.topics}


@pytest.mark.parametrize("version", versions(Api.TXN_OFFSET_COMMIT))
def test_offsets_are_committed_of_those_topics_that_the_client_may_read(
    admin: RawClient, alice: RawClient, topic: str, producer: TransactionalProducer, version: int
) -> None:
    hidden = new_topic(admin)
    topics = (hidden, topic, MISSING)
    group = f"group-{next(_numbers)}"

    def commit() -> dict[str, int]:
        return commit_offsets(producer, version, *topics, group=group)

    create_acls(admin, acl(READ_GROUP, group), acl(READ_TOPIC, topic))
    assert commit() == dict.fromkeys(topics, DENIED_ID)
    assert commit_offsets(producer, version, topic, group="") == {topic: DENIED_ID}
    create_acls(admin, acl(WRITE_TRANSACTIONAL_ID, producer.id))
    denied = commit_offsets(producer, version, topic, group=f"{group}-hidden")
    assert denied == {topic: E.GROUP_AUTHORIZATION_FAILED}
    assert producer.add_offsets(group) is E.NONE
    assert commit() == {hidden: DENIED_TOPIC, topic: 0, MISSING: DENIED_TOPIC}
    create_acls(admin, acl(READ_TOPIC, MISSING), acl(DESCRIBE_TOPIC, hidden))
    assert commit() == {hidden: DENIED_TOPIC, topic: 0, MISSING: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert producer.end() is E.NONE
    answer = admin.call(Api.OFFSET_FETCH, 9, groups=[{"group_id": group, "topics": None}])
    assert [each.name for each in answer.groups[0].topics] == [topic]


def test_a_commit_without_readable_topics_does_not_touch_the_transaction(
    admin: RawClient, alice: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    create_acls(admin, acl(WRITE_TRANSACTIONAL_ID, producer.id), acl(READ_GROUP, "group"))
    assert commit_offsets(producer, 5, topic) == {topic: DENIED_TOPIC}
    assert state_of(admin, producer) == "Empty"
    create_acls(admin, acl(READ_TOPIC, topic))
    assert commit_offsets(producer, 5, topic) == {topic: 0}
    assert described(admin, producer.id) == [(producer.id, 0, [OFFSETS_TOPIC])]


def test_a_commit_that_fails_keeps_the_errors_of_denied_topics(
    admin: RawClient, alice: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    hidden = new_topic(admin)
    create_acls(admin, acl(WRITE_TRANSACTIONAL_ID, producer.id), acl(READ_GROUP, "group"))
    create_acls(admin, acl(READ_TOPIC, topic))
    failed = commit_offsets(producer, 4, hidden, topic)
    assert failed == {hidden: DENIED_TOPIC, topic: E.TRANSACTION_ABORTABLE}


# ----------------------------------------------------------------------------------- descriptions


def test_transactions_are_described_without_hidden_topics(
    admin: RawClient, alice: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    hidden = new_topic(admin)
    producer.client = admin
    assert producer.add(topic) is producer.add(hidden) is E.NONE
    ids = (producer.id, "", "unknown")
    assert described(alice, *ids) == [(each, DENIED_ID, []) for each in ids]
    create_acls(admin, acl(DESCRIBE_TRANSACTIONAL_ID, producer.id), acl(WRITE_TOPIC, topic))
    create_acls(admin, acl(DESCRIBE_TRANSACTIONAL_ID, "unknown"))
    assert described(alice, *ids) == [
        (producer.id, 0, [topic]),
        ("", DENIED_ID, []),
        ("unknown", E.TRANSACTIONAL_ID_NOT_FOUND, []),
    ]


@pytest.mark.parametrize("version", versions(Api.LIST_TRANSACTIONS))
def test_only_visible_transactions_are_listed(
    admin: RawClient,
    alice: RawClient,
    producer: TransactionalProducer,
    version: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hidden = TransactionalProducer(admin, f"tx-{next(_numbers)}").begin()

    def listed(client: RawClient) -> set[str]:
        answer = client.call(
            Api.LIST_TRANSACTIONS,
            version,
            state_filters=["Odd"],
            producer_id_filters=[],
        )
        assert (answer.error_code, answer.unknown_state_filters) == (0, ["Odd"])
        answer = client.call(
            Api.LIST_TRANSACTIONS, version, state_filters=[], producer_id_filters=[]
        )
        assert answer.error_code == 0
        return {each.transactional_id for each in answer.transaction_states}

    caplog.set_level(logging.INFO, LOGGER)
    assert listed(alice) == set()
    denials = [each.getMessage() for each in caplog.records if each.name == LOGGER]
    assert any(f"TransactionalId:LITERAL:{hidden.id} " in each for each in denials)
    create_acls(admin, acl(DESCRIBE_TRANSACTIONAL_ID, producer.id))
    assert listed(alice) == {producer.id}
    assert listed(admin) >= {producer.id, hidden.id}


def test_producers_are_described_with_permission_for_their_topic(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    names = (f"{topic}!", topic, MISSING)

    def codes() -> list[int]:
        asked = [{"name": name, "partition_indexes": [0]} for name in names]
        answer = alice.call(Api.DESCRIBE_PRODUCERS, topics=asked)
        return [each.partitions[0].error_code for each in answer.topics]

    invalid = E.INVALID_TOPIC_EXCEPTION
    assert codes() == [invalid, DENIED_TOPIC, DENIED_TOPIC]
    create_acls(admin, acl(DESCRIBE_TOPIC, topic), acl(DESCRIBE_TOPIC, MISSING))
    assert codes() == [invalid, DENIED_TOPIC, DENIED_TOPIC]
    create_acls(admin, acl(READ_TOPIC, "*", operation=AclOperation.ALL))
    assert codes() == [invalid, 0, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_one_client_of_the_application_needs_the_permissions_of_kafkas_documentation(
    admin: RawClient, alice: RawClient, topic: str
) -> None:
    """Consume, transform and produce exactly once with no more permissions than it needs."""
    source, group, id = new_topic(admin), f"group-{next(_numbers)}", f"tx-{next(_numbers)}"
    needed: Mapping[Any, str] = {
        READ_TOPIC: source,
        WRITE_TOPIC: topic,
        READ_GROUP: group,
        WRITE_TRANSACTIONAL_ID: id,
    }
    create_acls(admin, *(acl(permission, name) for permission, name in needed.items()))
    producer = TransactionalProducer(alice, id).begin()
    assert producer.produce(topic, b"transformed") is E.NONE
    assert commit_offsets(producer, 5, source, group=group) == {source: 0}
    assert producer.end() is E.NONE

"""Errors for misbehaving transactional producers, in every version that differs.

Each row: what has happened, the request, and the error by version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from tests.integration.transactions.producer import TransactionalProducer, new_id
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode

E = ErrorCode
P = TransactionalProducer
GROUP = "g"


# --------------------------------------------------------------------------------- preconditions


def fresh(producer: P, topic: str) -> None:
    """Leave the producer initialised and without a transaction."""


def ongoing(producer: P, topic: str) -> None:
    assert producer.add(topic) is E.NONE
    assert producer.produce(topic, b"v", version=11) is E.NONE


def committed(producer: P, topic: str) -> None:
    ongoing(producer, topic)
    assert producer.end(True, 3) is E.NONE


def aborted(producer: P, topic: str) -> None:
    ongoing(producer, topic)
    assert producer.end(False, 3) is E.NONE


def committed_v2(producer: P, topic: str) -> None:
    assert producer.produce(topic, b"v") is E.NONE
    assert producer.end(True, 5) is E.NONE


def aborted_v2(producer: P, topic: str) -> None:
    assert producer.produce(topic, b"v") is E.NONE
    assert producer.end(False, 5) is E.NONE


def fenced(producer: P, topic: str) -> None:
    """Initialise another producer with the same transactional ID."""
    assert P(producer.client, producer.id).init() is E.NONE


def unknown(producer: P, topic: str) -> None:
    """Use a transactional ID that was never initialised."""
    producer.id = new_id()


def mistaken(producer: P, topic: str) -> None:
    """Use the producer ID of another producer."""
    producer.producer_id += 1_000_000


def ahead(producer: P, topic: str) -> None:
    """Use an epoch that the producer was never given."""
    producer.epoch += 1


def unnamed(producer: P, topic: str) -> None:
    producer.id = ""


# ----------------------------------------------------------------------------------------- requests


def add(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.add(topic, version=version)


def add_internal(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.add("__transaction_state", version=version)


def add_offsets(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.add_offsets(GROUP, version)


def produce(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.produce(topic, b"w", version=version)


def commit_offset(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.commit_offset(GROUP, topic, 1, version=version)


def commit(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.end(True, version)


def abort(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.end(False, version)


def init_as_me(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.init(version, as_me=True)


def init_with_half(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.init(version, producer_id=producer.producer_id)


def init_for_long(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.init(version, timeout_ms=900_001)


def init_for_no_time(producer: P, topic: str, version: int) -> ErrorCode:
    return producer.init(version, timeout_ms=0)


class Row(NamedTuple):
    given: Callable[[P, str], None]
    ask: Callable[[P, str, int], ErrorCode]
    expected: dict[ErrorCode, Sequence[int]]
    """Error -> the versions that return it."""


TABLE = [
    # identity
    Row(unknown, add, {E.INVALID_PRODUCER_ID_MAPPING: range(6)}),
    Row(mistaken, add, {E.INVALID_PRODUCER_ID_MAPPING: range(6)}),
    Row(fenced, add, {E.INVALID_PRODUCER_EPOCH: range(2), E.PRODUCER_FENCED: range(2, 6)}),
    Row(ahead, add, {E.INVALID_PRODUCER_EPOCH: range(2), E.PRODUCER_FENCED: range(2, 6)}),
    Row(unnamed, add, {E.INVALID_REQUEST: range(6)}),
    Row(fresh, add_internal, {E.TOPIC_AUTHORIZATION_FAILED: range(4), E.NONE: range(4, 6)}),
    Row(unknown, add_offsets, {E.INVALID_PRODUCER_ID_MAPPING: range(5)}),
    Row(mistaken, add_offsets, {E.INVALID_PRODUCER_ID_MAPPING: range(5)}),
    Row(fenced, add_offsets, {E.INVALID_PRODUCER_EPOCH: range(2), E.PRODUCER_FENCED: range(2, 5)}),
    Row(unnamed, add_offsets, {E.INVALID_REQUEST: range(5)}),
    Row(unknown, commit, {E.INVALID_PRODUCER_ID_MAPPING: range(6)}),
    Row(mistaken, commit, {E.INVALID_PRODUCER_ID_MAPPING: range(6)}),
    Row(fenced, commit, {E.INVALID_PRODUCER_EPOCH: range(2), E.PRODUCER_FENCED: range(2, 6)}),
    Row(ahead, abort, {E.INVALID_PRODUCER_EPOCH: range(2), E.PRODUCER_FENCED: range(2, 6)}),
    Row(unnamed, commit, {E.INVALID_REQUEST: range(6)}),
    Row(unknown, produce, {E.INVALID_PRODUCER_ID_MAPPING: range(3, 13)}),
    Row(mistaken, produce, {E.INVALID_PRODUCER_ID_MAPPING: range(3, 13)}),
    Row(fenced, produce, {E.INVALID_PRODUCER_EPOCH: range(3, 13)}),
    Row(unknown, commit_offset, {E.INVALID_PRODUCER_ID_MAPPING: range(6)}),
    Row(fenced, commit_offset, {E.INVALID_PRODUCER_EPOCH: range(6)}),
    Row(unnamed, commit_offset, {E.INVALID_REQUEST: range(6)}),
    # state of the transaction
    Row(fresh, commit, {E.INVALID_TXN_STATE: range(6)}),
    Row(fresh, abort, {E.INVALID_TXN_STATE: range(5), E.NONE: [5]}),
    Row(committed, commit, {E.NONE: range(5), E.INVALID_TXN_STATE: [5]}),
    Row(committed, abort, {E.INVALID_TXN_STATE: range(5), E.NONE: [5]}),
    Row(aborted, commit, {E.INVALID_TXN_STATE: range(6)}),
    Row(aborted, abort, {E.NONE: range(6)}),
    Row(committed_v2, commit, {E.INVALID_TXN_STATE: [5]}),
    Row(committed_v2, abort, {E.NONE: [5]}),
    Row(aborted_v2, commit, {E.INVALID_TXN_STATE: [5]}),
    # partitions that are not part of the transaction
    Row(fresh, produce,
        {E.INVALID_TXN_STATE: range(3, 11), E.TRANSACTION_ABORTABLE: [11], E.NONE: [12]}),
    Row(committed, produce,
        {E.INVALID_TXN_STATE: range(3, 11), E.TRANSACTION_ABORTABLE: [11], E.NONE: [12]}),
    Row(ongoing, produce, {E.NONE: range(3, 13)}),
    Row(fresh, commit_offset,
        {E.INVALID_TXN_STATE: range(4), E.TRANSACTION_ABORTABLE: [4], E.NONE: [5]}),
    Row(ongoing, commit_offset,
        {E.INVALID_TXN_STATE: range(4), E.TRANSACTION_ABORTABLE: [4], E.NONE: [5]}),
    # InitProducerId
    Row(fenced, init_as_me, {E.INVALID_PRODUCER_EPOCH: [3], E.PRODUCER_FENCED: range(4, 6)}),
    Row(mistaken, init_as_me, {E.INVALID_PRODUCER_EPOCH: [3], E.PRODUCER_FENCED: range(4, 6)}),
    Row(fresh, init_as_me, {E.NONE: range(3, 6)}),
    Row(committed, init_as_me, {E.NONE: range(3, 6)}),
    Row(ongoing, init_as_me, {E.CONCURRENT_TRANSACTIONS: range(3, 6)}),
    Row(fresh, init_with_half, {E.INVALID_REQUEST: range(3, 6)}),
    Row(unnamed, init_as_me, {E.INVALID_REQUEST: range(6)}),
    Row(fresh, init_for_long, {E.INVALID_TRANSACTION_TIMEOUT: range(6)}),
    Row(fresh, init_for_no_time, {E.INVALID_TRANSACTION_TIMEOUT: range(6)}),
]  # fmt: skip
CASES = [
    pytest.param(row, version, code, id=f"{row.given.__name__}-{row.ask.__name__}-{version}")
    for row in TABLE
    for code, versions in row.expected.items()
    for version in versions
]


@pytest.fixture(scope="module", autouse=True)
def _offsets_topic(broker: object) -> None:
    with RawClient(broker.port) as client:  # type: ignore[attr-defined]
        assert client.call(Api.FIND_COORDINATOR, 3, key=GROUP, key_type=0).error_code == 0


@pytest.mark.parametrize(("row", "version", "code"), CASES)
def test_the_error_is_the_one_that_kafka_answers(
    client: RawClient, topic: str, row: Row, version: int, code: ErrorCode
) -> None:
    client.create_topic(topic)
    producer = P(client).begin()
    row.given(producer, topic)
    assert row.ask(producer, topic, version) is code


def test_a_partition_that_does_not_exist_keeps_the_others_from_being_added(
    client: RawClient, topic: str
) -> None:
    client.create_topic(topic, 2)
    producer = P(client).begin()
    topics = [{"name": topic, "partitions": [0, 9, 1]}]
    body = {f"v3_and_below_{name}": value for name, value in producer.identity().items()}
    answer = client.call(Api.ADD_PARTITIONS_TO_TXN, 3, **body, v3_and_below_topics=topics)
    documented = {
        each.partition_index: each.partition_error_code
        for each in answer.results_by_topic_v3_and_below[0].results_by_partition
    }
    not_attempted = E.OPERATION_NOT_ATTEMPTED
    assert documented == {0: not_attempted, 9: E.UNKNOWN_TOPIC_OR_PARTITION, 1: not_attempted}
    listed = client.call(Api.LIST_TRANSACTIONS, 0, producer_id_filters=[producer.producer_id])
    assert [each.transaction_state for each in listed.transaction_states] == ["Empty"]


@pytest.mark.parametrize("version", [3, 9, 11, 12])
def test_transactional_batches_need_a_transactional_id(
    client: RawClient, topic: str, version: int
) -> None:
    client.create_topic(topic)
    producer = P(client).begin()
    code = producer.produce(topic, b"v", version=version, transactional_id=None)
    assert code is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for _ in range(2):  # the broker now knows requests of this shape
        plain = client.produce(topic, [(None, b"plain", (), 1)], version=version)
        assert plain.error_code == 0
    code = producer.produce(topic, b"v", version=version, transactional_id=None)
    assert code is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [11, 12])
def test_a_producer_with_an_open_transaction_writes_to_it_alone(
    client: RawClient, topic: str, version: int
) -> None:
    client.create_topic(topic)
    producer = P(client).begin()
    ongoing(producer, topic)
    code = producer.produce_many(
        {(topic, 0): [b"plain"]}, version=version, transactional=False, base_sequence=1
    )
    assert code == [E.INVALID_TXN_STATE]


def test_a_marker_of_an_older_coordinator_is_refused(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    producer = P(client).begin()

    def write(epoch: int, coordinator_epoch: int) -> int:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": epoch,
            "transaction_result": True,
            "coordinator_epoch": coordinator_epoch,
            "topics": [{"name": topic, "partition_indexes": [0]}],
        }
        answer = client.call(Api.WRITE_TXN_MARKERS, 1, markers=[marker])
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    assert write(0, 5) == E.NONE
    assert write(0, 5) == E.NONE
    assert write(1, 4) == E.TRANSACTION_COORDINATOR_FENCED
    assert write(1, 6) == E.NONE
    assert write(0, 6) == E.INVALID_PRODUCER_EPOCH

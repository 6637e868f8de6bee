"""Errors with which brokers may reject a batch, one by one, from a scripted broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.client.fake_broker import NODE_ID, FakeBroker, Stream, versions_body

from ottla import AuthorizationFailed, ClientError, Producer, RecordMetadata
from ottla.base.errors import ErrorCode
from ottla.wire import schema
from ottla.wire.api import Api
from ottla.wire.records.batch import BatchHeader, read_header

TIMEOUT_S = 20
TOPIC = "t"
TOPIC_ID = bytes(range(16))
APIS = (Api.PRODUCE, Api.METADATA, Api.API_VERSIONS, Api.INIT_PRODUCER_ID)


class Refusing:
    """A script that answers Produce with the errors that the test lists, then with success."""

    def __init__(self, produce_version: int | None = None) -> None:
        self.answers: list[dict[str, Any]] = []
        self.batches: list[BatchHeader] = []
        self.init_code = ErrorCode.NONE
        self._versions = {
            int(api): (schema.versions(api)[0], schema.versions(api)[-1]) for api in APIS
        }
        if produce_version is not None:
            self._versions[Api.PRODUCE] = (produce_version, produce_version)
        self._offset = 0

    def __call__(self, stream: Stream) -> None:
        while (asked := stream.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                stream.answer(asked, **versions_body(self._versions))
            elif asked.api == Api.METADATA:
                stream.answer(asked, **{**stream.broker.metadata(), "topics": [_topic()]})
            elif asked.api == Api.INIT_PRODUCER_ID:
                body = {"error_code": self.init_code, "producer_id": 5, "producer_epoch": 0}
                stream.answer(asked, **body)
            else:
                self._produce(stream, asked)

    def _produce(self, stream: Stream, asked: Any) -> None:
        (topic,) = asked.body.topic_data
        (partition,) = topic.partition_data
        header = read_header(partition.records)
        self.batches.append(header)
        prepared = self.answers.pop(0) if self.answers else {}
        answer = {
            "index": 0, "error_code": 0, "base_offset": self._offset, "log_append_time_ms": -1,
            "log_start_offset": 0, **prepared,
        }  # fmt: skip
        if not answer["error_code"]:
            self._offset += header.record_count
        name = {"name": TOPIC, "topic_id": TOPIC_ID}
        stream.answer(asked, responses=[{**name, "partition_responses": [answer]}])


def _topic() -> dict[str, Any]:
    partition = {
        "error_code": 0, "partition_index": 0, "leader_id": NODE_ID, "leader_epoch": 0,
        "replica_nodes": [NODE_ID], "isr_nodes": [NODE_ID], "offline_replicas": [],
    }  # fmt: skip
    return {"error_code": 0, "name": TOPIC, "topic_id": TOPIC_ID, "partitions": [partition]}


@pytest.fixture
def script() -> Refusing:
    return Refusing()


@pytest.fixture
def producer(script: Refusing) -> Iterator[Producer]:
    with (
        FakeBroker(script) as broker,
        Producer(broker.bootstrap, linger_ms=20, retry_backoff_ms=1, max_block_ms=5_000) as opened,
    ):
        yield opened


def test_an_authorisation_failure_has_topic_and_partition_and_harms_no_other_record(
    script: Refusing, producer: Producer
) -> None:
    script.answers.append({"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    refused = producer.send(TOPIC, b"refused").exception(TIMEOUT_S)
    assert isinstance(refused, AuthorizationFailed)
    assert (refused.topic, refused.partition) == (TOPIC, 0)
    assert producer.send(TOPIC, b"next").result(TIMEOUT_S).offset == 0
    assert [(batch.producer_epoch, batch.base_sequence) for batch in script.batches] == [
        (0, 0), (1, 0)
    ]  # fmt: skip


def test_single_records_that_are_refused_have_the_reason(
    script: Refusing, producer: Producer
) -> None:
    script.answers.append(
        {
            "error_code": ErrorCode.INVALID_RECORD,
            "error_message": "one is bad",
            "record_errors": [{"batch_index": 1, "batch_index_error_message": "no key"}],
        }
    )
    futures = [producer.send(TOPIC, b"%d" % number) for number in range(3)]
    messages = [str(future.exception(TIMEOUT_S)) for future in futures]
    assert "no key" in messages[1]
    assert all(
        "in a batch that the broker rejected because of other records" in messages[n]
        for n in (0, 2)
    )


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_what_may_pass_is_tried_again_with_the_same_sequence(
    script: Refusing, producer: Producer, code: ErrorCode
) -> None:
    script.answers += [{"error_code": code}] * 2
    assert producer.send(TOPIC, b"v").result(TIMEOUT_S).offset == 0
    assert [(batch.producer_epoch, batch.base_sequence) for batch in script.batches] == [(0, 0)] * 3


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
)
def test_a_broker_that_lost_the_sequence_gets_a_new_epoch(
    script: Refusing, producer: Producer, code: ErrorCode
) -> None:
    producer.send(TOPIC, b"first").result(TIMEOUT_S)
    script.answers.append({"error_code": code, "log_start_offset": 0})
    assert producer.send(TOPIC, b"second").result(TIMEOUT_S).offset == 1
    assert [(batch.producer_epoch, batch.base_sequence) for batch in script.batches] == [
        (0, 0), (0, 1), (1, 0)
    ]  # fmt: skip


def test_a_duplicate_is_a_success_with_an_unknown_offset(
    script: Refusing, producer: Producer
) -> None:
    script.answers.append({"error_code": ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
    assert producer.send(TOPIC, b"v").result(TIMEOUT_S).offset == -1


def test_the_brokers_own_time_is_reported_where_it_stamps_records(
    script: Refusing, producer: Producer
) -> None:
    script.answers.append({"log_append_time_ms": 123})
    metadata = producer.send(TOPIC, b"v", timestamp=5).result(TIMEOUT_S)
    assert metadata == RecordMetadata(TOPIC, 0, 0, 123)


def test_a_producer_that_may_not_be_idempotent_fails_at_once(
    script: Refusing, producer: Producer
) -> None:
    script.init_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with FakeBroker(script) as broker:
        refused = Producer(broker.bootstrap)
        with pytest.raises(AuthorizationFailed):
            refused.send(TOPIC, b"v").result(TIMEOUT_S)
        with pytest.raises(AuthorizationFailed):
            refused.send(TOPIC, b"v")
        refused.close()


@pytest.mark.parametrize("version", schema.versions(Api.PRODUCE))
def test_every_version_of_produce(version: int) -> None:
    with FakeBroker(Refusing(version)) as broker, Producer(broker.bootstrap) as producer:
        futures = [producer.send(TOPIC, b"%d" % number) for number in range(3)]
        assert [future.result(TIMEOUT_S).offset for future in futures] == [0, 1, 2]


def test_zstd_is_not_sent_to_a_broker_that_does_not_know_it() -> None:
    with (
        FakeBroker(Refusing(5)) as broker,
        Producer(broker.bootstrap, compression_type="zstd") as producer,
    ):
        failure = producer.send(TOPIC, b"v").exception(TIMEOUT_S)
        assert isinstance(failure, ClientError)
        assert failure.code is ErrorCode.UNSUPPORTED_VERSION

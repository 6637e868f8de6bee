"""Records: produced, fetched, looked up and deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.integration.security.authorization.case import (
    ANYTHING,
    Body,
    Listener,
    Subject,
    case,
    partition_codes,
    since,
    until,
    without_details,
)
from tests.raw_client import Api, produce_body

from ottla.base.errors import ErrorCode as E
from ottla.core.security.permissions import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ottla.wire.records.builder import build_batch

BATCH = bytes(build_batch([(b"k", b"v", (), 1_700_000_000_000)]))
PRODUCE_BY_ID, FETCH_BY_ID = 13, 13
ANOTHER_BROKER = 2


def produce(subject: Subject, version: int) -> Body:
    topic = subject.topic_id if version >= PRODUCE_BY_ID else subject.topic
    return produce_body({topic: {0: BATCH}})


def produce_in_transaction(subject: Subject, version: int) -> Body:
    """Return a request that is a retry if it is repeated."""
    batch = build_batch(
        [(b"k", b"v", (), 1_700_000_000_000)],
        transactional=True,
        producer_id=subject.producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    topic = subject.topic_id if version >= PRODUCE_BY_ID else subject.topic
    body = produce_body({topic: {0: bytes(batch)}})
    return {**body, "transactional_id": subject.transactional_id}


def produced(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return partition_codes(answer.responses, "partition_responses")


def fetch(subject: Subject, version: int) -> Body:
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    topic = {"topic_id": subject.topic_id} if version >= FETCH_BY_ID else {"topic": subject.topic}
    return {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{**topic, "partitions": [partition]}],
    }


def fetch_as_broker(subject: Subject, version: int) -> Body:
    replica = (
        {"replica_state": {"replica_id": ANOTHER_BROKER, "replica_epoch": -1}}
        if version >= 15
        else {"replica_id": ANOTHER_BROKER}
    )
    return {**fetch(subject, version), **replica}


def fetched(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (topic,) = answer.responses
    (each,) = topic.partitions
    return without_details(answer.error_code or each.error_code, each.high_watermark != -1)


def list_offsets(subject: Subject, _: int) -> Body:
    partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    return {"replica_id": -1, "topics": [{"name": subject.topic, "partitions": [partition]}]}


def listed_offsets(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (topic,) = answer.topics
    (each,) = topic.partitions
    return without_details(each.error_code, each.offset != -1, each.timestamp != -1)


def delete_records(subject: Subject, _: int) -> Body:
    partition = {"partition_index": 0, "offset": 0}
    topics = [{"name": subject.topic, "partitions": [partition]}]
    return {"topics": topics, "timeout_ms": 10_000}


def deleted_records(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (topic,) = answer.topics
    (each,) = topic.partitions
    return without_details(each.error_code, each.low_watermark != -1)


def offset_for_leader_epoch(subject: Subject, _: int) -> Body:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -2, "topics": [{"topic": subject.topic, "partitions": [partition]}]}


def found_epochs(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (topic,) = answer.topics
    (each,) = topic.partitions
    return without_details(each.error_code, each.end_offset != -1, each.leader_epoch != -1)


def describe_producers(subject: Subject, _: int) -> Body:
    return {"topics": [{"name": subject.topic, "partition_indexes": [0]}]}


def described_producers(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (topic,) = answer.topics
    (each,) = topic.partitions
    return without_details(each.error_code, each.active_producers)


MISSING = {E.UNKNOWN_TOPIC_OR_PARTITION}
BY_ID: dict[str, Any] = {
    "missing": {E.UNKNOWN_TOPIC_ID},
    "missing_denied": E.UNKNOWN_TOPIC_ID,
}
"""A topic ID that resolves to nothing is reported before any permission is asked for."""

CASES = [
    case(
        Api.PRODUCE,
        "any batch is transactional",
        body=produce_in_transaction,
        codes=produced,
        missing=ANYTHING,
        after=(WRITE_TOPIC,),
    ),
    case(
        Api.PRODUCE,
        "each topic",
        label="topic of a transaction",
        body=produce_in_transaction,
        codes=produced,
        before=(WRITE_TRANSACTIONAL_ID,),
    ),
    case(
        Api.PRODUCE,
        "each topic",
        label="topic by name",
        versions=until(Api.PRODUCE, PRODUCE_BY_ID),
        body=produce,
        codes=produced,
        missing=MISSING,
    ),
    case(
        Api.PRODUCE,
        "each topic",
        label="topic by ID",
        versions=since(Api.PRODUCE, PRODUCE_BY_ID),
        body=produce,
        codes=produced,
        **BY_ID,
    ),
    case(
        Api.FETCH,
        "replica ID >= 0",
        body=fetch_as_broker,
        codes=fetched,
        allowed=ANYTHING,
        listener=Listener.BROKER,
    ),
    case(
        Api.FETCH,
        "each topic of request and session",
        label="topic by name",
        versions=until(Api.FETCH, FETCH_BY_ID),
        body=fetch,
        codes=fetched,
        missing=MISSING,
    ),
    case(
        Api.FETCH,
        "each topic of request and session",
        label="topic by ID",
        versions=since(Api.FETCH, FETCH_BY_ID),
        body=fetch,
        codes=fetched,
        **BY_ID,
    ),
    case(Api.LIST_OFFSETS, "each topic", body=list_offsets, codes=listed_offsets, missing=MISSING),
    case(
        Api.DELETE_RECORDS,
        "each topic",
        body=delete_records,
        codes=deleted_records,
        missing=MISSING,
    ),
    case(
        Api.OFFSET_FOR_LEADER_EPOCH,
        "each topic",
        body=offset_for_leader_epoch,
        codes=found_epochs,
        missing=MISSING,
    ),
    case(
        Api.DESCRIBE_PRODUCERS,
        "each topic",
        body=describe_producers,
        codes=described_producers,
        missing=MISSING,
    ),
]

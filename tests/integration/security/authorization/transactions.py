"""Transactions and producer IDs."""

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
    shown,
    since,
    until,
    without_details,
)
from tests.integration.security.authorization.scene import Scene
from tests.raw_client import Api, RawClient

from ottla.base.acl import AclResourceType
from ottla.base.errors import ErrorCode as E
from ottla.core.security.permissions import (
    DESCRIBE_TRANSACTIONAL_ID,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from ottla.wire import codec

BETWEEN_BROKERS = 4
"""Version of AddPartitionsToTxn since which only brokers send it."""
WITH_TWO_PHASE_COMMIT = (6,)
"""Version of InitProducerId that Kafka marks as unstable."""
CORRELATION_ID = 1 << 20
SIZE_BYTES, HEADER_BYTES = 4, 10 + len("raw")
NO_TAGGED_FIELDS = b"\0"
MISSING_ID: dict[str, Any] = {"missing": {E.INVALID_PRODUCER_ID_MAPPING}}
FIRST = (WRITE_TRANSACTIONAL_ID,)


def identity(subject: Subject) -> dict[str, Any]:
    return {
        "transactional_id": subject.transactional_id,
        "producer_id": subject.producer_id,
        "producer_epoch": 0,
    }


def init_producer_id(subject: Subject, _: int) -> Body:
    return {
        "transactional_id": subject.transactional_id,
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }


def init_with_two_phase_commit(client: RawClient, subject: Subject, version: int) -> Iterable[int]:
    """Send a request in an unstable version.

    The codec writes no tagged fields into the header of a version that Ottla does not serve."""
    body = {**init_producer_id(subject, version), "enable2_pc": True, "keep_prepared_txn": False}
    pieces = codec.encode_request(Api.INIT_PRODUCER_ID, version, CORRELATION_ID, "raw", body)
    frame = b"".join(pieces)[SIZE_BYTES:]
    client.send_frame(frame[:HEADER_BYTES] + NO_TAGGED_FIELDS + frame[HEADER_BYTES:])
    return [client.receive(Api.INIT_PRODUCER_ID, version, CORRELATION_ID).error_code]


def init_idempotence(subject: Subject, version: int) -> Body:
    return {**init_producer_id(subject, version), "transactional_id": None}


def with_new_id(scene: Scene, subject: Subject) -> Subject:
    """Return a subject with a transactional ID that no transaction has."""
    return subject._replace(transactional_id=scene.new_name("new"))


def top_level(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [answer.error_code]


def add_partitions(subject: Subject, version: int) -> Body:
    topics = [{"name": subject.topic, "partitions": [0]}]
    if version >= BETWEEN_BROKERS:
        transaction = {**identity(subject), "verify_only": True, "topics": topics}
        return {"transactions": [transaction]}
    body = {f"v3_and_below_{name}": value for name, value in identity(subject).items()}
    return {**body, "v3_and_below_topics": topics}


def added_partitions(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def add_offsets(subject: Subject, _: int) -> Body:
    return {**identity(subject), "group_id": subject.group}


def end_transaction(subject: Subject, _: int) -> Body:
    """Return the request of another producer, so that the transaction stays open."""
    return {**identity(subject), "producer_id": subject.producer_id + 1_000, "committed": True}


def write_markers(subject: Subject, _: int) -> Body:
    """Return markers for two topics that do not exist."""
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "transaction_result": False,
                "coordinator_epoch": 0,
                "topics": [{"name": "missing", "partition_indexes": [0, 1]}],
            }
            for producer_id in (subject.producer_id, subject.producer_id + 1_000)
        ]
    }


def written_markers(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [code for marker in answer.markers for code in partition_codes(marker.topics)]


def commit_offsets(subject: Subject, _: int) -> Body:
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        **identity(subject),
        "group_id": subject.group,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": subject.topic, "partitions": [partition]}],
    }


def in_topics(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return partition_codes(answer.topics)


def describe_transaction(subject: Subject, _: int) -> Body:
    return {"transactional_ids": [subject.transactional_id]}


def described_transactions(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (state,) = answer.transaction_states
    return without_details(state.error_code, state.topics, state.transaction_state)


def described_topics(answer: Any, subject: Subject, _: int) -> Iterable[int]:
    (state,) = answer.transaction_states
    topics = [each.topic for each in state.topics]
    return [state.error_code] if state.error_code else shown(subject.topic in topics)


def list_transactions(_: Subject, __: int) -> Body:
    return {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}


def listed_transactions(answer: Any, subject: Subject, _: int) -> Iterable[int]:
    listed = [each.transactional_id for each in answer.transaction_states]
    return [answer.error_code] if answer.error_code else shown(subject.transactional_id in listed)


CASES = [
    case(
        Api.INIT_PRODUCER_ID,
        "transactional ID",
        body=init_producer_id,
        codes=top_level,
        missing={0},
        prepare=with_new_id,
    ),
    case(
        Api.INIT_PRODUCER_ID,
        "transactional ID, enable_2pc",
        versions=WITH_TWO_PHASE_COMMIT,
        ask=init_with_two_phase_commit,
        before=FIRST,
        prepare=with_new_id,
    ),
    case(
        Api.INIT_PRODUCER_ID,
        "no transactional ID; WRITE of at least one topic suffices",
        body=init_idempotence,
        codes=top_level,
        of_any_name=WRITE_TOPIC,
        subject=AclResourceType.CLUSTER,
    ),
    case(
        Api.ADD_PARTITIONS_TO_TXN,
        "v0-3: transactional ID",
        versions=until(Api.ADD_PARTITIONS_TO_TXN, BETWEEN_BROKERS),
        body=add_partitions,
        codes=added_partitions,
        after=(WRITE_TOPIC,),
        **MISSING_ID,
    ),
    case(
        Api.ADD_PARTITIONS_TO_TXN,
        "v0-3: each topic",
        versions=until(Api.ADD_PARTITIONS_TO_TXN, BETWEEN_BROKERS),
        body=add_partitions,
        codes=added_partitions,
        missing={E.UNKNOWN_TOPIC_OR_PARTITION},
        before=FIRST,
    ),
    case(
        Api.ADD_PARTITIONS_TO_TXN,
        "v4+: brokers only",
        versions=since(Api.ADD_PARTITIONS_TO_TXN, BETWEEN_BROKERS),
        body=add_partitions,
        codes=top_level,
        listener=Listener.BROKER,
    ),
    case(
        Api.ADD_OFFSETS_TO_TXN,
        "transactional ID",
        body=add_offsets,
        codes=top_level,
        after=(READ_GROUP,),
        **MISSING_ID,
    ),
    case(
        Api.ADD_OFFSETS_TO_TXN,
        "the group",
        body=add_offsets,
        codes=top_level,
        missing={0},
        before=FIRST,
    ),
    case(
        Api.END_TXN,
        "transactional ID",
        body=end_transaction,
        codes=top_level,
        allowed={E.INVALID_PRODUCER_ID_MAPPING},
        **MISSING_ID,
    ),
    case(
        Api.WRITE_TXN_MARKERS,
        "always",
        body=write_markers,
        codes=written_markers,
        allowed={E.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    case(
        Api.TXN_OFFSET_COMMIT,
        "transactional ID",
        body=commit_offsets,
        codes=in_topics,
        missing=ANYTHING,
        after=(READ_GROUP, READ_TOPIC),
    ),
    case(
        Api.TXN_OFFSET_COMMIT,
        "the group",
        body=commit_offsets,
        codes=in_topics,
        missing={0},
        before=FIRST,
        after=(READ_TOPIC,),
    ),
    case(
        Api.TXN_OFFSET_COMMIT,
        "each topic",
        body=commit_offsets,
        codes=in_topics,
        missing={E.UNKNOWN_TOPIC_OR_PARTITION},
        before=(*FIRST, READ_GROUP),
    ),
    case(
        Api.DESCRIBE_TRANSACTIONS,
        "each ID",
        body=describe_transaction,
        codes=described_transactions,
        missing={E.TRANSACTIONAL_ID_NOT_FOUND},
    ),
    case(
        Api.DESCRIBE_TRANSACTIONS,
        "topics in it",
        body=describe_transaction,
        codes=described_topics,
        before=(DESCRIBE_TRANSACTIONAL_ID,),
    ),
    case(
        Api.LIST_TRANSACTIONS,
        "each ID",
        body=list_transactions,
        codes=listed_transactions,
    ),
]

"""Tests of the split of an offset commit into partitions that exist and others."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.base.cluster import PartitionState, TopicImage
from ottla.base.errors import ErrorCode
from ottla.core.group.commit_request import RequestedTopic, merge_results, split_known
from ottla.core.group.events import CommitPartition, CommitTopic

UNKNOWN_ID, UNKNOWN = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ID, OTHER_ID = b"i" * 16, b"o" * 16
ORDERS = TopicImage("orders", ID, {}, tuple(PartitionState(1, 0, (1,), (1,)) for _ in range(2)))


@dataclass
class Partition:
    partition_index: int
    committed_offset: int = 7
    committed_leader_epoch: int = 3
    committed_metadata: str | None = "m"


def failed(index: int, code: ErrorCode) -> dict[str, object]:
    return {"partition_index": index, "error_code": code}


def test_existing_partitions_are_committed_and_others_fail() -> None:
    requested = RequestedTopic("", ID, ORDERS, [Partition(1), Partition(2), Partition(-1)])
    missing = RequestedTopic("", OTHER_ID, None, [Partition(0)])
    topics, refused = split_known([requested, missing], UNKNOWN_ID)
    assert topics == [CommitTopic("orders", ID, [CommitPartition(1, 7, 3, "m")])]
    assert refused == [
        {"name": "orders", "topic_id": ID, "partitions": [failed(2, UNKNOWN), failed(-1, UNKNOWN)]},
        {"name": "", "topic_id": OTHER_ID, "partitions": [failed(0, UNKNOWN_ID)]},
    ]


def test_a_topic_without_an_existing_partition_is_not_committed() -> None:
    topics, refused = split_known([RequestedTopic("orders", ID, ORDERS, [Partition(5)])], UNKNOWN)
    assert topics == []
    assert refused == [{"name": "orders", "topic_id": ID, "partitions": [failed(5, UNKNOWN)]}]


def test_a_topic_that_the_client_may_not_read_fails_whether_it_exists_or_not() -> None:
    existing = RequestedTopic("orders", ID, ORDERS, [Partition(1), Partition(9)], is_denied=True)
    missing = RequestedTopic("other", OTHER_ID, None, [Partition(0)], is_denied=True)
    topics, refused = split_known([existing, missing], UNKNOWN)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert topics == []
    assert refused == [
        {"name": "orders", "topic_id": ID, "partitions": [failed(1, denied), failed(9, denied)]},
        {"name": "other", "topic_id": OTHER_ID, "partitions": [failed(0, denied)]},
    ]


def test_results_of_one_topic_are_merged() -> None:
    refused = {"name": "orders", "topic_id": ID, "partitions": [failed(5, UNKNOWN)]}
    committed = {"name": "orders", "topic_id": ID, "partitions": [failed(0, ErrorCode.NONE)]}
    other = {"name": "other", "topic_id": OTHER_ID, "partitions": [failed(0, ErrorCode.NONE)]}
    assert merge_results([refused], [committed, other]) == [
        {**refused, "partitions": [failed(5, UNKNOWN), failed(0, ErrorCode.NONE)]},
        other,
    ]

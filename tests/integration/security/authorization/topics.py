"""Topics: described, created, deleted, given more partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.integration.security.authorization.case import (
    LEFT_OUT,
    Body,
    Subject,
    case,
    shown,
    since,
    until,
    without_details,
)
from tests.integration.security.authorization.scene import Scene
from tests.raw_client import Api

from ottla.base.acl import AclResourceType
from ottla.base.errors import ErrorCode as E
from ottla.core.security.permissions import CREATE_TOPIC, DESCRIBE_TOPIC

METADATA_BY_ID, DELETED_BY_ID = 12, 6
EXPLICIT_CREATION = 4
"""Version of Metadata since which a request decides whether missing topics are created."""
MISSING = {E.UNKNOWN_TOPIC_OR_PARTITION}
WAIT = {"timeout_ms": 10_000}


def metadata(subject: Subject, _: int) -> Body:
    return {"topics": [{"name": subject.topic}], "allow_auto_topic_creation": False}


def metadata_by_id(subject: Subject, _: int) -> Body:
    return {
        "topics": [{"topic_id": subject.topic_id, "name": None}],
        "allow_auto_topic_creation": False,
    }


def metadata_that_creates(subject: Subject, _: int) -> Body:
    return {"topics": [{"name": subject.topic}], "allow_auto_topic_creation": True}


def all_metadata(_: Subject, version: int) -> Body:
    return {"topics": [] if version == 0 else None, "allow_auto_topic_creation": False}


def metadata_of_cluster(_: Subject, __: int) -> Body:
    return {"topics": [], "include_cluster_authorized_operations": True}


def in_topics(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [each.error_code for each in answer.topics]


def described_topics(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [
        code
        for each in answer.topics
        for code in without_details(
            each.error_code, any(each.topic_id), each.partitions, each.is_internal
        )
    ]


def described_by_id(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [
        code
        for each in answer.topics
        for code in without_details(each.error_code, each.name, each.partitions)
    ]


def is_listed(answer: Any, subject: Subject, _: int) -> Iterable[int]:
    found = {each.name: each.error_code for each in answer.topics}
    return [found.get(subject.topic, LEFT_OUT)]


def cluster_operations(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return shown(answer.cluster_authorized_operations != 0)


def create_topic(subject: Subject, _: int) -> Body:
    topic = {"name": subject.topic, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [topic], "validate_only": True, **WAIT}


def created_configs(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (topic,) = answer.topics
    if topic.error_code:
        return [topic.error_code]
    has_counts = topic.num_partitions != -1 or topic.replication_factor != -1
    return without_details(topic.topic_config_error_code, topic.configs, has_counts)


def with_new_name(scene: Scene, subject: Subject) -> Subject:
    return subject._replace(topic=scene.new_name("new"))


def with_new_topic(scene: Scene, subject: Subject) -> Subject:
    """Return a subject with a topic that the request may delete."""
    if not subject.exists:
        return subject
    topic, topic_id = scene.new_topic()
    return subject._replace(topic=topic, topic_id=topic_id)


def delete_topic(subject: Subject, version: int) -> Body:
    if version >= DELETED_BY_ID:
        return {"topics": [{"name": subject.topic, "topic_id": bytes(16)}], **WAIT}
    return {"topic_names": [subject.topic], **WAIT}


def delete_topic_by_id(subject: Subject, _: int) -> Body:
    return {"topics": [{"name": None, "topic_id": subject.topic_id}], **WAIT}


def deleted_topics(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [
        code
        for each in answer.responses
        for code in without_details(each.error_code, any(each.topic_id))
    ]


def in_responses(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [each.error_code for each in answer.responses]


def create_partitions(subject: Subject, _: int) -> Body:
    topics = [{"name": subject.topic, "count": 2, "assignments": None}]
    return {"topics": topics, "validate_only": True, **WAIT}


def in_results(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [each.error_code for each in answer.results]


def describe_topic(subject: Subject, _: int) -> Body:
    topics = [{"name": subject.topic}]
    return {"topics": topics, "response_partition_limit": 2_000, "cursor": None}


def describe_all_topics(_: Subject, __: int) -> Body:
    return {"topics": [], "response_partition_limit": 2_000, "cursor": None}


CASES = [
    case(
        Api.METADATA,
        "topics by name or ID",
        label="topic by name",
        versions=since(Api.METADATA, EXPLICIT_CREATION),
        body=metadata,
        codes=described_topics,
        missing=MISSING,
    ),
    case(
        Api.METADATA,
        "topics by name or ID",
        label="topic by name, before creation was explicit",
        versions=until(Api.METADATA, EXPLICIT_CREATION),
        body=metadata,
        codes=described_topics,
    ),
    case(
        Api.METADATA,
        "topics by name or ID",
        label="topic by ID",
        versions=since(Api.METADATA, METADATA_BY_ID),
        body=metadata_by_id,
        codes=described_by_id,
        missing={E.UNKNOWN_TOPIC_ID},
        missing_denied=E.UNKNOWN_TOPIC_ID,
    ),
    case(Api.METADATA, "all topics", body=all_metadata, codes=is_listed),
    case(
        Api.METADATA,
        "missing topic that would be created",
        body=metadata_that_creates,
        codes=in_topics,
        allowed={0, E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE},
        before=(DESCRIBE_TOPIC,),
        prepare=with_new_name,
    ),
    case(
        Api.METADATA,
        "authorized operations",
        versions=range(8, 11),
        body=metadata_of_cluster,
        codes=cluster_operations,
    ),
    case(
        Api.CREATE_TOPICS,
        "each topic",
        body=create_topic,
        codes=in_topics,
        allowed={E.TOPIC_ALREADY_EXISTS},
        missing={0},
    ),
    case(
        Api.CREATE_TOPICS,
        "configs in the response",
        versions=since(Api.CREATE_TOPICS, 5),
        body=create_topic,
        codes=created_configs,
        allowed=None,
        missing={0},
        before=(CREATE_TOPIC,),
    ),
    case(
        Api.DELETE_TOPICS,
        "by name",
        body=delete_topic,
        codes=deleted_topics,
        allowed=None,
        missing=MISSING,
    ),
    case(
        Api.DELETE_TOPICS,
        "by name or ID",
        label="topic by name",
        body=delete_topic,
        codes=in_responses,
        missing=MISSING,
        missing_denied=E.UNKNOWN_TOPIC_OR_PARTITION,
        before=(DESCRIBE_TOPIC,),
        prepare=with_new_topic,
    ),
    case(
        Api.DELETE_TOPICS,
        "by name or ID",
        label="topic by ID",
        versions=since(Api.DELETE_TOPICS, DELETED_BY_ID),
        body=delete_topic_by_id,
        codes=in_responses,
        missing={E.UNKNOWN_TOPIC_ID},
        missing_denied=E.UNKNOWN_TOPIC_ID,
        prepare=with_new_topic,
    ),
    case(
        Api.CREATE_PARTITIONS,
        "each topic",
        body=create_partitions,
        codes=in_results,
        missing=MISSING,
    ),
    case(
        Api.DESCRIBE_TOPIC_PARTITIONS,
        "named topics",
        body=describe_topic,
        codes=described_topics,
        missing=MISSING,
    ),
    case(
        Api.DESCRIBE_TOPIC_PARTITIONS,
        "all topics",
        body=describe_all_topics,
        codes=is_listed,
        subject=AclResourceType.TOPIC,
    ),
]

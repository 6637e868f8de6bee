"""ListPartitionReassignments (key 46), version 0: the reassignments in progress.

Behaviours
- Without a list of topics, all are returned. Partitions that do not exist, or are not being
  reassigned, are left out.
- With an authorizer, the client needs DESCRIBE on the cluster: CLUSTER_AUTHORIZATION_FAILED.

Deviations: none known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.base.cluster import TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.ports import Metadata
from ottla.core.security.permissions import DESCRIBE_CLUSTER

if TYPE_CHECKING:
    from ottla.wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponseDict,
        OngoingPartitionReassignmentDict,
        OngoingTopicReassignmentDict,
    )


def handle(
    broker: Metadata, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponseDict:
    try:
        context.check(DESCRIBE_CLUSTER)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "topics": []}
    known = broker.image.topics
    wanted: Iterable[tuple[TopicImage, Iterable[int]]]
    if request.topics is None:
        wanted = ((topic, range(len(topic.partitions))) for topic in known.values())
    else:
        wanted = (
            (known[each.name], each.partition_indexes)
            for each in request.topics
            if each.name in known
        )
    topics: list[OngoingTopicReassignmentDict] = [
        {"name": topic.name, "partitions": moving}
        for topic, indexes in wanted
        if (moving := _moving(topic, indexes))
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": topics}


def _moving(topic: TopicImage, indexes: Iterable[int]) -> list[OngoingPartitionReassignmentDict]:
    return [
        {
            "partition_index": index,
            "replicas": state.replicas,
            "adding_replicas": state.adding,
            "removing_replicas": state.removing,
        }
        for index in dict.fromkeys(indexes)
        if 0 <= index < len(topic.partitions)
        and ((state := topic.partitions[index]).adding or state.removing)
    ]

"""DescribeLogDirs (key 35), versions 1–5: the data directories, their logs and their room."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.broker.context import Body, RequestContext
from ottla.broker.partition import Partition
from ottla.storage.log_dirs import LogDirectory

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 35


async def handle(broker: Broker, context: RequestContext, request: Any) -> Body:
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        }
    by_directory: dict[str, list[Partition]] = {}
    for key, partition in broker.partitions.items():
        if wanted is None or key in wanted:
            directory = partition.log.directory.rpartition("/")[0]
            by_directory.setdefault(directory, []).append(partition)
    return {
        "results": [
            _describe(directory, by_directory.get(directory.path, ()))
            for directory in broker.logs.directories
        ]
    }


def _describe(directory: LogDirectory, partitions: Iterable[Partition]) -> Body:
    usage = shutil.disk_usage(directory.path)
    topics: dict[str, list[Body]] = {}
    for partition in partitions:
        topics.setdefault(partition.key.topic, []).append(
            {"partition_index": partition.key.partition, "partition_size": partition.log.size}
        )
    return {
        "log_dir": directory.path,
        "topics": [
            {"name": name, "partitions": described} for name, described in sorted(topics.items())
        ],
        "total_bytes": usage.total,
        "usable_bytes": usage.free,
    }

"""DescribeLogDirs (key 35), versions 1–5: the data directories, their logs, size and free space.

A directory that refuses writes has the error KAFKA_STORAGE_ERROR. Its logs are listed all the same,
because they can still be read.

With an authorizer, the client needs DESCRIBE on the cluster; without it, the response is empty, and
CLUSTER_AUTHORIZATION_FAILED from version 3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.base.ports import DiskUsage
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.partition import Partition
from ottla.broker.ports import HostedPartitions, Threads
from ottla.core.security.permissions import DESCRIBE_CLUSTER
from ottla.storage.log_dirs import LogDirectory

if TYPE_CHECKING:
    from ottla.wire.messages.describe_log_dirs import (
        DescribeLogDirsPartitionDict,
        DescribeLogDirsRequest,
        DescribeLogDirsResponseDict,
        DescribeLogDirsResultDict,
    )

UNKNOWN_BYTES = -1


class Logs(Protocol):
    @property
    def directories(self) -> Sequence[LogDirectory]: ...


class Ports(HostedPartitions, Threads, Protocol):
    """The parts of a broker that DescribeLogDirs uses."""

    @property
    def logs(self) -> Logs: ...


async def handle(
    broker: Ports, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponseDict:
    if not context.may(DESCRIBE_CLUSTER):
        return {"error_code": DESCRIBE_CLUSTER.error, "results": []}
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
            by_directory.setdefault(partition.log.data_directory, []).append(partition)
    directories = broker.logs.directories
    usages = await broker.run_blocking(lambda: [_usage(directory) for directory in directories])
    return {
        "results": [
            _describe(directory, usage, by_directory.get(directory.path, ()))
            for directory, usage in zip(directories, usages, strict=True)
        ]
    }


def _usage(directory: LogDirectory) -> DiskUsage | None:
    try:
        return directory.fs.usage(directory.path)
    except OSError:
        return None


def _describe(
    directory: LogDirectory, usage: DiskUsage | None, partitions: Iterable[Partition]
) -> DescribeLogDirsResultDict:
    is_failing = directory.write_failure is not None or usage is None
    topics: dict[str, list[DescribeLogDirsPartitionDict]] = {}
    for partition in partitions:
        topics.setdefault(partition.key.topic, []).append(
            {"partition_index": partition.key.partition, "partition_size": partition.log.size}
        )
    return {
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR if is_failing else ErrorCode.NONE,
        "log_dir": directory.path,
        "topics": [
            {"name": name, "partitions": described} for name, described in sorted(topics.items())
        ],
        "total_bytes": UNKNOWN_BYTES if usage is None else usage.total_bytes,
        "usable_bytes": UNKNOWN_BYTES if usage is None else usage.free_bytes,
    }

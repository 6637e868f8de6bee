"""Tests that handlers, coordinators and the cleaner run on the ports that they declare."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.unit.storage.compacted_logs import compacted
from tests.unit.storage.small_logs import START_MS, open_test_log, put

from ottla.base.cluster import PartitionState, TopicImage
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import FileSystem
from ottla.broker.cleaner import Cleaner
from ottla.broker.compactor import LocalCompactor
from ottla.broker.context import RequestContext
from ottla.broker.flusher import Flusher
from ottla.broker.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from ottla.broker.handlers import delete_records
from ottla.broker.partition import Partition
from ottla.core.controller.create_topics import TopicDecision
from ottla.core.group.events import HeartbeatReceived
from ottla.metadata.image import ClusterImage
from ottla.storage.file import OsFileSystem
from ottla.storage.segment import Segment
from ottla.wire import codec
from ottla.wire.api import Api

T = TypeVar("T")


class Clock:
    def time_ms(self) -> int:
        return START_MS

    def monotonic(self) -> float:
        return 0.0


class Threads:
    async def run_blocking(self, work: Callable[[], T]) -> T:
        return work()


def request(api: Api, version: int, body: dict[str, Any]) -> Any:
    """Encode a request and decode it as the broker does."""
    frame = memoryview(b"".join(codec.encode_request(api, version, 1, "test", body)))[4:]
    position = codec.decode_request_header(frame).body_position
    return codec.decode_request(api, version, frame, position)


# ------------------------------------------------------------------------------------ a handler


class DeleteRecordsPorts:
    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.checkpoints = 0

    @property
    def logs(self) -> DeleteRecordsPorts:
        return self

    async def write_checkpoints(self) -> None:
        self.checkpoints += 1

    def find_partition(self, key: tuple[str, int]) -> Partition:
        if key != self.partition.key:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partition


def test_a_handler_runs_on_the_ports_that_it_declares(tmp_path: Path) -> None:
    log = open_test_log(str(tmp_path), TopicConfig())
    for _ in range(3):
        put(log, [(b"k", b"v")])
    partition = Partition(log, 0, waits_for_sync=False)
    partition.high_watermark = log.log_end_offset
    ports = DeleteRecordsPorts(partition)
    wanted = [{"partition_index": log.partition.partition, "offset": 2}]
    topics = [{"name": log.partition.topic, "partitions": wanted}]
    decoded = request(
        Api.DELETE_RECORDS, 2, {"topics": [*topics, {"name": "no", "partitions": wanted}]}
    )
    context = RequestContext(Api.DELETE_RECORDS, 2, 1, "test", "PLAINTEXT", "localhost")
    response = asyncio.run(delete_records.handle(ports, context, decoded))
    ((deleted,), (unknown,)) = (topic["partitions"] for topic in response["topics"])
    assert deleted["low_watermark"] == log.log_start_offset == 2
    assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ports.checkpoints == 1


# -------------------------------------------------------------------------------- a coordinator


class CoordinatorPorts(Threads):
    def __init__(self) -> None:
        self.config = BrokerConfig({})
        self.image = ClusterImage()
        self.clock = Clock()
        self.flusher = Flusher(self.clock, self.run_blocking)
        self.created: list[str] = []

    @property
    def controller(self) -> CoordinatorPorts:
        return self

    async def auto_create_topics(self, names: Sequence[str]) -> list[TopicDecision]:
        self.created += names
        state = PartitionState(1, 0, (1,), (1,))
        self.image.topics[OFFSETS_TOPIC] = TopicImage(OFFSETS_TOPIC, bytes(16), {}, (state,))
        return [TopicDecision(name) for name in names]

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return asyncio.ensure_future(coroutine)

    def check_can_prove_leadership(self, partition: Partition) -> None:
        """Accept every partition, as a standalone broker does."""

    def leadership_proof(self, partition: Partition) -> asyncio.Future[None] | None:
        return None


class Reply:
    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def reply(self, body: dict[str, Any]) -> None:
        self.codes.append(body["error_code"])

    def fail(self, error: KafkaError) -> None:
        self.codes.append(error.code)


def test_a_coordinator_runs_on_the_ports_that_it_declares() -> None:
    async def scenario() -> None:
        ports = CoordinatorPorts()
        coordinator = GroupCoordinator(ports)
        reply = Reply()
        heartbeat = HeartbeatReceived(reply, "group", member_id="m", instance_id=None, generation=0)
        coordinator.submit(heartbeat)
        await coordinator.topic.create()
        assert ports.created == [OFFSETS_TOPIC]
        assert coordinator.topic.partition_for("group") == 0
        coordinator.submit(heartbeat)
        coordinator.stop()
        coordinator.submit(heartbeat)
        assert reply.codes == [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ]

    asyncio.run(scenario())


# ---------------------------------------------------------------------------------- the cleaner


class CleanerPorts(Threads):
    def __init__(self, directory: Path) -> None:
        self.config = BrokerConfig({"log.dirs": str(directory)})
        self.fs: FileSystem = OsFileSystem()
        self.clock = Clock()
        self.flusher = Flusher(self.clock, self.run_blocking)
        self.partitions: dict[tuple[str, int], Partition] = {}


def test_the_cleaner_runs_on_the_ports_that_it_declares(tmp_path: Path) -> None:
    async def scenario() -> None:
        ports = CleanerPorts(tmp_path)
        removed: list[Segment] = []

        def remove(segments: list[Segment], delay_ms: int) -> None:
            removed.extend(segments)

        cleaner = Cleaner(ports, remove, LocalCompactor(ports.fs))
        assert await cleaner.find_dirtiest() is None
        directory = tmp_path / "orders-0"
        directory.mkdir()
        log = open_test_log(str(directory), compacted(segment_bytes=1_000))
        ports.partitions[log.partition] = partition = Partition(log, 0, waits_for_sync=False)
        for _ in range(50):
            put(log, [(b"k", b"v" * 100)])
        partition.high_watermark = log.log_end_offset
        before = log.size
        dirty = await cleaner.find_dirtiest()
        assert dirty is not None
        await cleaner.clean(dirty)
        assert removed
        assert log.size < before

    asyncio.run(scenario())

"""Tests that a fetch whose records are not in memory reads in a thread, and only reads there."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from tests.unit.storage.small_logs import PARTITION, START_MS, open_test_log, put

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.handlers import fetch
from ottla.broker.log_limit import LogLimiter
from ottla.broker.partition import Partition
from ottla.core.fetch_session import FetchSessionCache
from ottla.core.replication.throttle import Quota
from ottla.core.security.peers import PeerRule
from ottla.core.security.principal import ANONYMOUS
from ottla.metadata.image import ClusterImage
from ottla.storage.log import Log, LogSlice
from ottla.storage.segment import WouldBlock
from ottla.wire import codec
from ottla.wire.api import Api

T = TypeVar("T")
VERSION = 12
FOLLOWER = 2


class ColdLog:
    """Log of which nothing is in the page cache; reads of two fetches meet in their threads."""

    def __init__(self, log: Log, readers: int) -> None:
        self._log = log
        self._barrier = threading.Barrier(readers)
        self.readers: list[threading.Thread] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, *arguments: Any, wait: bool, **options: Any) -> LogSlice:
        if not wait:
            raise WouldBlock
        self.readers.append(threading.current_thread())
        self._barrier.wait(timeout=30)
        return self._log.read(*arguments, wait=True, **options)


class Throttle:
    """Quota that only the event loop may use."""

    def __init__(self) -> None:
        self.quota = Quota()
        self.sent: list[int] = []

    def is_quota_exhausted(self, partition: Partition, follower: int) -> bool:
        on_the_loop()
        return self.quota.is_exhausted(1_000_000, 0.0)

    def record_sent(self, partition: Partition, follower: int, size_bytes: int) -> None:
        on_the_loop()
        self.quota.record(size_bytes)
        self.sent.append(size_bytes)


def on_the_loop() -> None:
    assert threading.current_thread() is threading.main_thread(), "changed by another thread"


class WatchedFetch(fetch.Fetch):
    """Fetch that refuses to be changed outside the event loop."""

    def __setattr__(self, name: str, value: object) -> None:
        on_the_loop()
        super().__setattr__(name, value)


class Broker:
    """The ports of Fetch, for one partition."""

    def __init__(self, partition: Partition) -> None:
        self.node_id = 1
        self.config = BrokerConfig({})
        self.image = ClusterImage()
        self.clock = SimpleNamespace(time_ms=lambda: START_MS, monotonic=lambda: 0.0)
        self.partition = partition
        self.fetch_sessions: FetchSessionCache[Partition] = FetchSessionCache(0, 1)
        self.partitions_version = object()
        self.throttle = Throttle()
        self.peer_rule = PeerRule("PLAINTEXT", authenticates=False)
        self.client_log = LogLimiter(logging.getLogger(), lambda: 0.0)
        self.replication: Any = SimpleNamespace(throttle=self.throttle)
        self._executor = ThreadPoolExecutor(4)

    @property
    def partitions(self) -> dict[tuple[str, int], Partition]:
        on_the_loop()
        return {PARTITION: self.partition}

    def find_partition(self, key: tuple[str, int]) -> Partition:
        on_the_loop()
        if key != PARTITION:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partition

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return asyncio.ensure_future(coroutine)

    def endpoint_for(self, listener: str) -> tuple[str, int]:
        raise NotImplementedError


@pytest.fixture
def cold(tmp_path: Path) -> ColdLog:
    log = open_test_log(str(tmp_path), TopicConfig())
    for number in range(5):
        put(log, [(b"key", b"%d" % number * 1_000)])
    return ColdLog(log, readers=2)


def request(replica_id: int, topics: list[str]) -> Any:
    wanted = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
    body = {
        "replica_id": replica_id,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_wait_ms": 1_000,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]} for topic in topics],
    }
    frame = memoryview(b"".join(codec.encode_request(Api.FETCH, VERSION, 1, "c", body)))[4:]
    position = codec.decode_request_header(frame).body_position
    return codec.decode_request(Api.FETCH, VERSION, frame, position)


async def fetched(broker: Broker, replica_id: int, topics: list[str]) -> Any:
    connection: Any = SimpleNamespace(access=None, is_peer=True, is_tls=False, principal=ANONYMOUS)
    context = RequestContext(Api.FETCH, VERSION, 1, "c", "PLAINTEXT", "localhost", connection)
    response = fetch.handle(broker, context, request(replica_id, topics))
    assert isinstance(response, Coroutine), "the bytes are not in memory"
    return await response


@pytest.mark.parametrize("replica_id", [-1, FOLLOWER])
def test_threads_of_two_cold_fetches_only_read(
    cold: ColdLog, monkeypatch: pytest.MonkeyPatch, replica_id: int
) -> None:
    monkeypatch.setattr(fetch, "Fetch", WatchedFetch)
    partition = Partition(cold, 0, waits_for_sync=False)  # type: ignore[arg-type]
    broker = Broker(partition)

    async def scenario() -> list[Any]:
        topics = [PARTITION.topic, "unknown"]
        return await asyncio.gather(*(fetched(broker, replica_id, topics) for _ in range(2)))

    for response in asyncio.run(scenario()):
        known, unknown = (topic["partitions"][0] for topic in response["responses"])
        assert len(known["records"]) > 4_000
        assert known["high_watermark"] == 5
        assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(cold.readers) == 2
    assert threading.main_thread() not in cold.readers
    assert len(broker.throttle.sent) == (0 if replica_id < 0 else 2)

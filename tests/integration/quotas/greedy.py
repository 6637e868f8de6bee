"""Clients that use as much as they can, and quotas of the broker that they use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.raw_client import Api, RawClient, produce_body

from ottla.client.admin import Admin, QuotaEntity
from ottla.testing.broker_thread import BrokerThread
from ottla.wire.records.builder import build_batch

WINDOWS = {"quota.window.num": "2", "controller.quota.window.num": "1"}
"""A span of one second: long enough to measure, short enough for a test."""


def set_quotas(broker: BrokerThread, entity: QuotaEntity, **changes: float | None) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas(entity, changes)


def batch(size: int) -> bytes:
    """Return a batch of about this size."""
    return bytes(build_batch([(b"", bytes(max(1, size - 70)), (), 1_000)]))


class Greedy:
    """A client that sends one request after the other, on a thread of its own."""

    def __init__(self, step: Callable[[], int], until: float) -> None:
        self.uses: list[tuple[float, int]] = []
        """When each response arrived, and the size that the request used."""
        self._step = step
        self._until = until
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while time.monotonic() < self._until:
                size = self._step()
                self.uses.append((time.monotonic(), size))
        except BaseException as error:
            self.error = error

    def join(self, timeout_s: float = 120.0) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def used(self, begin: float, end: float) -> int:
        """Return how much was used between two times."""
        return sum(size for at, size in self.uses if begin <= at < end)


def producing(
    port: int, topic: str, size: int, client_id: str = "greedy", acks: int = 1
) -> Callable[[], int]:
    """Return a function that sends one request, and returns its size."""
    client = RawClient(port, client_id=client_id)
    body = produce_body({topic: {0: batch(size)}}, acks)

    def step() -> int:
        if acks:
            answer = client.call(Api.PRODUCE, 12, **body)
            assert answer.responses[0].partition_responses[0].error_code == 0
        else:
            client.send(Api.PRODUCE, 12, **body)
        return size

    return step


def fetching(port: int, topic: str, client_id: str = "greedy", **limits: int) -> Callable[[], int]:
    """Return a function that fetches from the beginning, and returns the size of the records."""
    client = RawClient(port, client_id=client_id)

    def step() -> int:
        answer = fetch(client, topic, **limits)
        return sum(
            len(partition.records or b"")
            for each in answer.responses
            for partition in each.partitions
        )

    return step


def fetch(client: RawClient, topic: str, **limits: int) -> Any:
    wanted: Mapping[str, int] = {"max_wait_ms": 100, "max_bytes": 1 << 26, **limits}
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 1 << 26,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    return client.call(
        Api.FETCH,
        12,
        min_bytes=1,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [partition]}],
        **wanted,
    )

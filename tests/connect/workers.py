"""Workers inside the test's process, and helpers to query them and to read topics."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.admin import Admin, OffsetSpec
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.connect.standalone import StandaloneHerder
from ottla.connect.states import State
from ottla.connect.worker_config import WorkerConfig

PATIENCE_S = 90.0
T = TypeVar("T")


def wait_for(look: Callable[[], T], what: str = "") -> T:
    """Call `look` until it returns a true value, and return that."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < until, f"waited in vain: {what}, {found!r}"
        time.sleep(0.02)


def worker_properties(bootstrap: str, folder: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(folder / "connect.offsets"),
        "listeners": "http://127.0.0.1:0",
        "task.restart.backoff.ms": "100",
        "offset.storage.topic": f"offsets-{folder.name}",
    }


class Standalone:
    """A standalone worker with helpers for tests."""

    def __init__(self, bootstrap: str, folder: Path, **properties: str) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        given = worker_properties(bootstrap, folder)
        given |= {name.replace("_", "."): value for name, value in properties.items()}
        self.herder = StandaloneHerder(WorkerConfig.of(given))
        self.herder.start()
        self._thread = threading.Thread(target=self.herder.run, daemon=True)
        self._thread.start()

    def put(self, name: str, kind: str, **given: Any) -> None:
        properties = {key.replace("_", "."): str(value) for key, value in given.items()}
        self.herder.put({"name": name, "connector.class": kind, **properties})

    def state(self, name: str, task: int = 0) -> State:
        return self.herder.status(name).tasks[task].state

    def wait_for_state(self, name: str, state: State) -> str:
        """Wait until the connector's task is in this state, and return its trace."""
        wait_for(lambda: self.state(name) is state, f"{name} {state}")
        return self.herder.status(name).tasks[0].trace or ""

    def close(self) -> None:
        self.herder.request_stop()
        self._thread.join(30)
        self.herder.close()


def send(bootstrap: str, topic: str, *values: bytes, **more: Any) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value, **more)
        producer.flush()


def read(bootstrap: str, topic: str) -> list[Any]:
    """Return all committed records that are in the topic now."""
    with Consumer(
        bootstrap, isolation_level="read_committed", auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer, Admin(bootstrap) as admin:  # fmt: skip
        partitions = consumer.partitions_for(topic)
        ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        consumer.assign(partitions)
        found: list[Any] = []
        until = time.monotonic() + PATIENCE_S
        while any(consumer.position(tp) < (ends[tp].offset or 0) for tp in partitions):
            assert time.monotonic() < until, "a transaction stays open"
            found += consumer.poll(0.1)
        return found


def values(bootstrap: str, topic: str) -> list[bytes]:
    return [each.value for each in read(bootstrap, topic)]


def lag(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    tp = TopicPartition(topic, partition)
    with Admin(bootstrap) as admin:
        committed = admin.list_group_offsets(group)[group].get(tp)
        end = admin.list_offsets({tp: OffsetSpec.LATEST})[tp].offset or 0
    return end - (committed.offset if committed else 0)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port

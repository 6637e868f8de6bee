"""A background producer of numbered values, idempotent with acks=all.

It records which values were acknowledged, and when."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from itertools import pairwise
from typing import Any

from confluent_kafka import KafkaException, Producer

FLUSH_TIMEOUT_S = 60.0
NOT_DOTTED = ("error_cb", "log_level")
"""Settings of librdkafka whose names have underscores."""


class Load:
    pause_s = 0.002
    """Time between two records of a partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **properties: Any) -> None:
        self._topic = topic
        self._partitions = partitions
        self.sent: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.acknowledged_at: dict[int, list[float]] = defaultdict(list)
        self.failures: list[Any] = []
        self._connect(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                **{
                    key if key in NOT_DOTTED else key.replace("_", "."): value
                    for key, value in properties.items()
                },
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _connect(self, properties: dict[str, Any]) -> None:
        own = {"topic.metadata.refresh.fast.interval.ms": 50, "log_level": 0}
        self._producer = Producer({**own, **properties})

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_TIMEOUT_S) == 0, "everything is acknowledged in the end"

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in range(self._partitions):
                self._send(partition)
            self._producer.poll(self.pause_s)

    def _send(self, partition: int) -> None:
        number = self.sent[partition]
        try:
            self._producer.produce(
                self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered
            )
        except (BufferError, KafkaException):
            self._producer.poll(0.05)
            return
        self.sent[partition] += 1

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
            return
        self.acknowledged_at[message.partition()].append(time.monotonic())
        self.acknowledged[message.partition()].append(int(message.value()))

    # ----------------------------------------------------------------------------- asserting

    def next_acknowledgement(self, partition: int, after: float, timeout_s: float = 30.0) -> float:
        """Return the seconds from `after` to the next acknowledgement."""
        deadline = time.monotonic() + timeout_s
        while True:
            times = self.acknowledged_at[partition]
            if times and times[-1] > after:
                return next(each for each in times if each > after) - after
            assert time.monotonic() < deadline, f"no acknowledgement for {timeout_s} s"
            time.sleep(0.01)

    def first_acknowledgement_from(
        self, partition: int, number: int, timeout_s: float = 60.0
    ) -> float:
        """Return when the first record with this number or a higher one was acknowledged."""
        deadline = time.monotonic() + timeout_s
        while True:
            numbers = self.acknowledged[partition]
            if numbers and numbers[-1] >= number:
                index = next(at for at, each in enumerate(numbers) if each >= number)
                return self.acknowledged_at[partition][index]
            assert time.monotonic() < deadline, f"no acknowledgement for {timeout_s} s"
            time.sleep(0.01)

    def longest_stall(self) -> tuple[float, float]:
        """Return the longest time without an acknowledgement in a partition, and when it ended."""
        times = [sorted(each) for each in self.acknowledged_at.values()]
        return max(
            ((later - earlier, later) for each in times for earlier, later in pairwise(each)),
            default=(0.0, 0.0),
        )

    def longest_stall_s(self) -> float:
        return self.longest_stall()[0]

    def assert_all_there(self, stored: dict[int, list[bytes]]) -> None:
        """Assert that each acknowledged record is there exactly once, in the order of sending."""
        assert not self.failures, self.failures[:3]
        for partition, acknowledged in self.acknowledged.items():
            numbers = [int(value) for value in stored[partition]]
            missing = set(acknowledged) - set(numbers)
            assert not missing, f"{len(missing)} lost in {partition}: {sorted(missing)[:5]}"
            assert numbers == sorted(set(numbers)), f"repeated or reordered in {partition}"

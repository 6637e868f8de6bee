"""Handles for consumers that run in processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.raw_client import Api, RawClient, eventually

from ottla.testing.broker import BrokerProcess

PROGRAM = Path(__file__).with_name("consumer_process.py")
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")
END_TIMEOUT_S = 20.0
START_TIMEOUT_S = 60.0
"""Time to start Python and a client, join and fetch on a busy machine."""


class ConsumerProcess:
    def __init__(
        self, broker: BrokerProcess, client: str, group: str, topic: str, **options: Any
    ) -> None:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self.owned: set[int] = set()
        self.said: list[dict[str, Any]] = []
        self.records: list[tuple[int, int, float]] = []
        """Partition, offset and arrival time of each record."""
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), client, broker.bootstrap, group, topic, *flags],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            self.said.append(said)
            self.owned |= set(said.get("assigned", ()))
            self.owned -= set(said.get("revoked", ()))
            if "record" in said:
                self.records.append((*said["record"], time.monotonic()))

    def first_records(self) -> list[tuple[int, int, float]]:
        """Wait for the first records; the time to get them is not under test."""

        def look() -> list[tuple[int, int, float]]:
            assert self._process.poll() is None, f"the consumer ended: {self._process.returncode}"
            return self.records

        return eventually(look, timeout_s=START_TIMEOUT_S)

    def changes(self) -> list[dict[str, Any]]:
        """Return the assignments and revocations so far."""
        return [said for said in list(self.said) if "record" not in said and any(said.values())]

    def kill(self) -> float:
        """Kill the process and return the time of that."""
        self._process.kill()
        self._end()
        return time.monotonic()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Leave the group and end the process."""
        if self._process.poll() is None:
            self._process.terminate()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(END_TIMEOUT_S)
        finally:
            self._process.kill()
        self._reader.join(END_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def describe(client: RawClient, group: str) -> Any:
    (described,) = client.call(Api.DESCRIBE_GROUPS, 5, groups=[group]).groups
    assert described.error_code == 0
    return described


def assigned_partitions(assignment: bytes) -> list[int]:
    """Parse a consumer's assignment of one topic: version, topic count, name, partitions."""
    if len(assignment) < 6 or not int.from_bytes(assignment[2:6], "big"):
        return []
    position = 8 + int.from_bytes(assignment[6:8], "big")
    count = int.from_bytes(assignment[position : position + 4], "big")
    start = position + 4
    return [
        int.from_bytes(assignment[at : at + 4], "big") for at in range(start, start + 4 * count, 4)
    ]


def describe_consumers(client: RawClient, group: str) -> Any:
    """Describe a group of the consumer protocol."""
    (described,) = client.call(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group]).groups
    return described


def owned_by(described: Any) -> dict[str, list[int]]:
    """Return member -> partitions for a group that reads one topic."""
    owned = {
        member.member_id: [
            number for topic in member.assignment.topic_partitions for number in topic.partitions
        ]
        for member in described.members
    }
    everything = [number for numbers in owned.values() for number in numbers]
    assert len(set(everything)) == len(everything), "a partition has two owners"
    return owned


def wait_until_consumers_share(client: RawClient, group: str, members: int, partitions: int) -> Any:
    """Wait until the consumer group is stable and its members own each partition once."""

    def is_shared(described: Any) -> bool:
        owned = owned_by(described)
        everything = sorted(number for numbers in owned.values() for number in numbers)
        is_stable = described.group_state == "Stable" and len(owned) == members
        return is_stable and everything == list(range(partitions))

    return eventually(lambda: describe_consumers(client, group), is_shared)


def wait_until_shared(client: RawClient, group: str, members: int, partitions: int) -> Any:
    """Wait until the classic group is stable and its members own each partition once."""

    def is_shared(described: Any) -> bool:
        if described.group_state != "Stable" or len(described.members) != members:
            return False
        owned = [
            partition
            for member in described.members
            for partition in assigned_partitions(bytes(member.member_assignment))
        ]
        assert len(set(owned)) == len(owned), "a partition has two owners"
        return sorted(owned) == list(range(partitions))

    return eventually(lambda: describe(client, group), is_shared)

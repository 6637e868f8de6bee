"""Common basis of the checks: a running broker, and Java's tools pointed at it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat.java import TIMEOUT_S, Java, Output
from compat.report import Skipped

JOIN_GROUP = 11
ADD_PARTITIONS_TO_TXN = 24


def offered_apis(java: Java, bootstrap: str) -> set[int]:
    """Return the keys of the APIs that a broker offers."""
    output = java.succeed("kafka-broker-api-versions", "--bootstrap-server", bootstrap).out
    found = re.findall(r"^\s+\w+\((\d+)\): (\S+)", output, re.MULTILINE)
    assert found, output
    return {int(key) for key, first in found if not first.startswith("UNSUPPORTED")}


@dataclass
class Tools:
    java: Java
    bootstrap: str
    scratch: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Output:
        return self.java.run(tool, *self.where, *arguments, stdin=stdin)

    def succeed(
        self, tool: str, *arguments: str, stdin: str = "", timeout_s: float = TIMEOUT_S
    ) -> Output:
        return self.java.succeed(tool, *self.where, *arguments, stdin=stdin, timeout_s=timeout_s)

    def fail(self, tool: str, *arguments: str, saying: str) -> Output:
        """Run a tool that must fail, with a given text in its output."""
        output = self.run(tool, *arguments)
        assert output.code == 1, f"exit code {output.code}: {output.all}"
        assert saying in output.all, f"{saying!r} is not in: {output.all}"
        return output

    def new_topic(self, partitions: int = 1, **configs: str) -> str:
        """Create a topic, without a tool: kafka-topics has its own checks."""
        name = f"compat-{next(self._numbers)}"
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        created = self._admin.create_topics([NewTopic(name, partitions, 1, config=dotted)])
        created[name].result(TIMEOUT_S)
        return name

    def fill(self, topic: str, records: int, size: int = 100) -> None:
        """Write records, without a tool."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for number in range(records):
            producer.produce(topic, bytes(size), str(number))
        assert producer.flush(TIMEOUT_S) == 0

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def produce(self, topic: str, records: int, size: int, *properties: str) -> str:
        """Write records with kafka-producer-perf-test, and return its final report."""
        output = self.java.succeed(
            "kafka-producer-perf-test",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", "-1"),
            *("--command-property", f"bootstrap.servers={self.bootstrap}", *properties),
        )
        last = output.lines[-1]
        assert last.startswith(f"{records} records sent"), output.all
        return last

    def offsets(self, topic: str, *arguments: str) -> dict[int, int]:
        """Return the offsets of kafka-get-offsets by partition."""
        lines = self.succeed("kafka-get-offsets", "--topic", topic, *arguments).lines
        rows = [line.rsplit(":", 2) for line in lines]
        assert all(row[0] == topic for row in rows), lines
        return {int(partition): int(offset) for _, partition, offset in rows}

    def require_groups(self) -> None:
        if JOIN_GROUP not in self.apis:
            raise Skipped("needs consumer groups")

    @cached_property
    def apis(self) -> set[int]:
        return offered_apis(self.java, self.bootstrap)

    @property
    def where(self) -> tuple[str, str]:
        return "--bootstrap-server", self.bootstrap

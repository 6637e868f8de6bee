"""Runner for Apache Kafka's tools, unmodified, each in its own JVM, tuned for a fast start."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

LIGHT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
SILENT_CLASS_SHARING = ("-Xshare:auto", "-Xlog:disable")
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
TIMEOUT_S = 60.0

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}
"""Main classes of the scripts with these names."""


class Output(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def all(self) -> str:
        return f"{self.out}\n{self.err}"


class ToolFailed(AssertionError):
    """A tool failed or timed out. The message includes its output."""


@dataclass(frozen=True)
class Java:
    command: str
    class_path: str
    archive: Path
    """Archive of loaded classes (CDS), with which Java starts in half the time."""

    def arguments(self, main_class: str, *options: str) -> list[str]:
        shared = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive.exists() else []
        return [
            *(self.command, *LIGHT, *SILENT_CLASS_SHARING, *shared, *options),
            *("-cp", self.class_path, main_class),
        ]

    def make_archive(self) -> None:
        """Create the archive from the classes that a tool loads without finding a broker.

        If this fails, tools only start more slowly.
        """
        if self.archive.exists():
            return
        hurry = self.archive.with_name("hurry.properties")
        hurry.write_text("default.api.timeout.ms=500\nrequest.timeout.ms=400\n")
        subprocess.run(
            [
                *self.arguments(TOOLS["kafka-topics"], f"-XX:ArchiveClassesAtExit={self.archive}"),
                *("--list", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(hurry)),
            ],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def run(
        self,
        tool: str,
        *arguments: str,
        stdin: str = "",
        timeout_s: float = TIMEOUT_S,
        options: Sequence[str] = (),
    ) -> Output:
        """Run a tool until it ends, with any exit code; `options` are those of the JVM."""
        try:
            result = subprocess.run(
                [*self.arguments(TOOLS[tool], *QUIET, *options), *arguments],
                input=stdin.encode(),
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"")[-500:].decode(errors="replace")
            raise ToolFailed(
                f"{tool} did not exit within {timeout_s:.0f} s; its output: {output}"
            ) from None
        return Output(
            result.returncode, result.stdout.decode(errors="replace"), result.stderr.decode()
        )

    def succeed(
        self, tool: str, *arguments: str, stdin: str = "", timeout_s: float = TIMEOUT_S
    ) -> Output:
        """Run a tool that must succeed."""
        output = self.run(tool, *arguments, stdin=stdin, timeout_s=timeout_s)
        if output.code:
            raise ToolFailed(f"{tool} {' '.join(arguments)}: exit code {output.code}\n{output.all}")
        return output

"""What a task's run needs to know of the worker it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla.client.config import CommonConfig, table_of
from ottla.connect.api import Offsets
from ottla.connect.config import ConnectorConfig
from ottla.connect.definition import Settings
from ottla.connect.ledger import Ledger
from ottla.connect.states import TaskId
from ottla.connect.worker_config import WorkerConfig

PRODUCER_DEFAULTS = {
    "max.block.ms": "30000",
    "request.timeout.ms": "15000",
    "delivery.timeout.ms": "30000",
    "linger.ms": "0",
    "acks": "all",
}
"""Brokers that are away for longer fail the task, and its status says so; it is started again.
(Kafka's Connect waits for ever, and nobody learns why nothing moves.)"""
ADMIN_TIMEOUT_MS = "15000"


def _nothing(*arguments: object) -> None:
    return


@dataclass(frozen=True)
class TaskContext:
    id: TaskId
    config: ConnectorConfig
    settings: Settings
    """The task's own."""
    worker: WorkerConfig
    ledger: Ledger
    namespace: str
    """Of the connector's records in the ledger."""
    transactional_id: str
    directory: Path
    worker_name: str = ""
    """Of this process, if there are others that may take over from it or it from them."""
    task_count: int = 1
    first_offsets: Offsets = field(default_factory=list)
    """Where a source begins that the ledger does not know."""
    on_offsets: Callable[[Offsets], None] = _nothing
    """A source has delivered what is before these."""
    on_topic: Callable[[str], None] = _nothing
    """Records came from this topic, or went to it; told for each batch."""
    on_trouble: Callable[[str | None], None] = _nothing
    """Something does not work just now and is tried again; None: it works."""

    def client(self, kind: str) -> dict[str, str]:
        """Properties of a client: the worker's, then the connector's."""
        found = self.worker.client(kind) | self.config.client(kind)
        if kind == "admin":
            found.setdefault("default.api.timeout.ms", ADMIN_TIMEOUT_MS)
        return found

    def ledger_client(self) -> dict[str, str]:
        """Of the cluster that the records are in: a transaction is of one cluster."""
        kind = "producer" if self.config.is_source else "consumer"
        return in_common(self.client(kind))

    def producer(self) -> dict[str, str]:
        """Of the producer that writes the ledger and a source's records."""
        given = self.client("producer") if self.config.is_source else self.ledger_client()
        return PRODUCER_DEFAULTS | given | {"transactional.id": self.transactional_id}


def in_common(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that clients of every kind have: where brokers are, and how they are reached."""
    common = table_of(CommonConfig)
    return {name: value for name, value in properties.items() if name in common}

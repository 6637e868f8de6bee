"""Everything that a run of a task needs from its worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla.client.config import CommonConfig, table_of
from ottla.client.inlined_files import with_inlined_files
from ottla.client.profile import layered
from ottla.connect.api import Offsets
from ottla.connect.config import ConnectorConfig
from ottla.connect.definition import Settings
from ottla.connect.offset_storage import TopicOffsetStorage
from ottla.connect.states import TaskId
from ottla.connect.worker_config import WorkerConfig

PRODUCER_DEFAULTS = {
    "max.block.ms": "30000",
    "request.timeout.ms": "15000",
    "delivery.timeout.ms": "30000",
    "linger.ms": "0",
    "acks": "all",
}
"""Producer defaults. A task fails visibly if the brokers are unavailable for longer.

Its status shows the error and the worker restarts it, whereas Kafka Connect blocks without one.
"""
ADMIN_TIMEOUT_MS = "15000"


def _nothing(*arguments: object) -> None:
    return


@dataclass(frozen=True)
class TaskContext:
    id: TaskId
    config: ConnectorConfig
    settings: Settings = field(repr=False)
    """Settings of this task."""
    worker: WorkerConfig
    offset_storage: TopicOffsetStorage
    namespace: str
    """Namespace of the connector in the offset storage."""
    transactional_id: str
    directory: Path
    worker_name: str = ""
    """Name of this worker process, if several workers can run the task."""
    task_count: int = 1
    first_offsets: Offsets = field(default_factory=list)
    """Source offsets to start from if the offset storage has none."""
    on_offsets: Callable[[Offsets], None] = _nothing
    """Called with the source offsets up to which records are stored."""
    on_topic: Callable[[str], None] = _nothing
    """Called for each batch with every topic it was read from or written to."""
    on_retry: Callable[[str | None], None] = _nothing
    """Called with an error that is being retried, and with None when it has passed."""

    def client(self, kind: str) -> dict[str, str]:
        """Return the properties of a client; the connector's override the worker's."""
        found = layered(self.worker.client(kind), self.config.client(kind))
        if kind == "admin":
            found.setdefault("default.api.timeout.ms", ADMIN_TIMEOUT_MS)
        return found

    def connector_for_executors(self) -> dict[str, str]:
        """Return the connector's properties for other machines, which do not have its files.

        Raises:
            UserError: A key or certificate file of an overridden client cannot be used.
        """
        common = table_of(CommonConfig)
        found = dict(self.config.resolved)
        for kind in ("producer", "consumer", "admin"):
            own = self.config.client(kind)
            if any(name.endswith(".location") and name in common for name in own):
                inlined = with_inlined_files(CommonConfig, in_common(self.client(kind)))
                prefix = f"{kind}.override."
                kept = {name: text for name, text in own.items() if name not in common}
                found = {n: text for n, text in found.items() if not n.startswith(prefix)}
                found |= {f"{prefix}{name}": text for name, text in (kept | inlined).items()}
        return found

    def offset_storage_client(self) -> dict[str, str]:
        """Return properties for the records' cluster, as a transaction cannot span clusters."""
        kind = "producer" if self.config.is_source else "consumer"
        return in_common(self.client(kind))

    def producer(self) -> dict[str, str]:
        """Return the properties of the producer that writes offsets and a source's records."""
        properties = (
            self.client("producer") if self.config.is_source else self.offset_storage_client()
        )
        return PRODUCER_DEFAULTS | properties | {"transactional.id": self.transactional_id}


def in_common(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties common to all kinds of clients: brokers and how to connect."""
    common = table_of(CommonConfig)
    return {name: value for name, value in properties.items() if name in common}

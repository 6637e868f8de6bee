"""Description of a task that the driver sends to an executor, which makes its context of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla.connect.api import Offsets
from ottla.connect.config import ConnectorConfig
from ottla.connect.definition import Settings
from ottla.connect.offset_storage import TopicOffsetStorage
from ottla.connect.states import TaskId
from ottla.connect.task_context import TaskContext
from ottla.connect.worker_config import DISTRIBUTED, STANDALONE, WorkerConfig


@dataclass(frozen=True)
class ControlAddress:
    """Address at which the process of a run reaches its driver, and the key of the run."""

    host: str
    port: int
    run: str
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class TaskSpec:
    """A task in terms of properties, from which the executor constructs the connector itself.

    Connectors and converters may hold locks and connections, so they are never pickled.
    """

    control: ControlAddress
    id: TaskId
    connector: Mapping[str, str] = field(repr=False)
    worker: Mapping[str, str] = field(repr=False)
    is_distributed: bool
    settings: Settings = field(repr=False)
    offset_storage: TopicOffsetStorage
    namespace: str
    transactional_id: str
    directory: str
    task_count: int
    first_offsets: Offsets
    shutdown_s: float
    """Time that the task has to stop; afterwards its process exits."""
    log_levels: Mapping[str, int]
    import_path: tuple[str, ...]
    """Directories from which the driver imports, if the executor has the same ones."""

    @classmethod
    def of(
        cls,
        context: TaskContext,
        control: ControlAddress,
        log_levels: Mapping[str, int],
        import_path: tuple[str, ...],
    ) -> TaskSpec:
        return cls(
            control,
            context.id,
            context.connector_for_executors(),
            context.worker.for_executors(),
            context.worker.definition is DISTRIBUTED,
            context.settings,
            context.offset_storage,
            context.namespace,
            context.transactional_id,
            str(context.directory.absolute()),
            context.task_count,
            list(context.first_offsets),
            context.worker.settings["task.shutdown.graceful.timeout.ms"] / 1000,
            log_levels,
            import_path,
        )

    def context(
        self,
        worker_name: str,
        *,
        on_offsets: Callable[[Offsets], None],
        on_topic: Callable[[str], None],
        on_retry: Callable[[str | None], None],
    ) -> TaskContext:
        """Return the context of the task in this process."""
        definition = DISTRIBUTED if self.is_distributed else STANDALONE
        return TaskContext(
            self.id,
            ConnectorConfig.of(self.connector, self.worker),
            self.settings,
            WorkerConfig.of(self.worker, definition),
            self.offset_storage,
            self.namespace,
            self.transactional_id,
            Path(self.directory),
            worker_name=worker_name,
            task_count=self.task_count,
            first_offsets=list(self.first_offsets),
            on_offsets=on_offsets,
            on_topic=on_topic,
            on_retry=on_retry,
        )

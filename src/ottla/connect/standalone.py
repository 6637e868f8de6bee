"""Standalone worker: runs connectors in one process, from property files and REST.

Changes through REST are not persisted: a restarted worker reads its files again. Offsets are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import UserError
from ottla.client.profile import layered
from ottla.connect.api import SourceConnector
from ottla.connect.config import ConnectorConfig
from ottla.connect.herder import BadRequest, Conflict, Herder, NoSuchConnector
from ottla.connect.offset_storage import TopicOffsetStorage
from ottla.connect.offsets import FileOffsetStorage, canonical, checked, merged, to_json
from ottla.connect.retrying import restart_delay_ms
from ottla.connect.sink_offsets import alter_group_offsets, group_offsets, reset_group_offsets
from ottla.connect.sink_task import group_id
from ottla.connect.states import AT_REST, ConnectorStatus, State, Status, TaskId
from ottla.connect.task_context import ADMIN_TIMEOUT_MS, TaskContext
from ottla.connect.task_thread import sentence
from ottla.connect.worker import Worker, task_settings
from ottla.connect.worker_config import WorkerConfig

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
ALTERED = "The offsets for this connector have been altered successfully"
RESET = "The offsets for this connector have been reset successfully"
MUST_BE_STOPPED = (
    "Connectors must be in the STOPPED state before their offsets can be modified. Stop the "
    "connector with PUT /connectors/{name}/stop."
)


@dataclass
class _Connector:
    config: ConnectorConfig
    state: State = State.UNASSIGNED
    trace: str | None = None
    task_count: int = 0
    topics: set[str] = field(default_factory=set)
    failures: int = 0
    restart_at: float | None = None


class StandaloneHerder(Herder):
    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.worker = Worker(config)
        self.store = FileOffsetStorage(config.settings["offset.storage.file.filename"])
        self._ledger = TopicOffsetStorage(config.settings["offset.storage.topic"])
        self._lock = threading.RLock()
        self._connectors: dict[str, _Connector] = {}
        self._stopping = threading.Event()

    # ----------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Open the offset store; raise UserError if it cannot be used."""
        for notice in self.config.notices():
            logger.warning("%s", notice)
        self.store.open()
        self.worker.start()
        self.is_ready = True

    def run(self) -> None:
        """Run until `request_stop` is called."""
        interval_s = self.config.settings["offset.flush.interval.ms"] / 1000
        flush_at = time.monotonic() + interval_s
        while not self._stopping.wait(LOOK_EVERY_S):
            with self._lock:
                for name, each in self._connectors.items():
                    if each.restart_at is not None and time.monotonic() >= each.restart_at:
                        self._start(name)
            if time.monotonic() >= flush_at:
                self._flush()
                flush_at = time.monotonic() + interval_s

    def _flush(self) -> None:
        try:
            self.store.flush()
        except UserError as error:
            # The offset storage in the cluster is authoritative; the next flush may succeed.
            logger.error("%s", error)

    def request_stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        with self._lock:
            self.worker.close()
            self.store.close()

    # ------------------------------------------------------------------------------- queries

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._connectors)

    def _found(self, name: str) -> _Connector:
        found = self._connectors.get(name)
        if found is None:
            raise NoSuchConnector(name)
        return found

    def config_of(self, name: str) -> dict[str, str]:
        with self._lock:
            return dict(self._found(name).config.given)

    def task_configs(self, name: str) -> list[dict[str, str]]:
        with self._lock:
            return [self.config_of(name)] * self._found(name).task_count

    def status(self, name: str) -> ConnectorStatus:
        with self._lock:
            found = self._found(name)
            worker_id = self.config.worker_id
            tasks = {
                task: self._task_status(TaskId(name, task), found.state)
                for task in range(found.task_count)
            }
            return ConnectorStatus(Status(found.state, worker_id, found.trace), tasks)

    def _task_status(self, id: TaskId, target: State) -> Status:
        thread = self.worker.task(id)
        if thread is None:
            return Status(target, self.config.worker_id)
        return Status(thread.state, self.config.worker_id, thread.trace)

    def topics(self, name: str) -> list[str]:
        with self._lock:
            return sorted(self._found(name).topics)

    def forget_topics(self, name: str) -> None:
        with self._lock:
            self._found(name).topics.clear()

    # ------------------------------------------------------------------------------- changes

    def put(
        self, properties: Mapping[str, str], state: State | None = None, *, is_new: bool = False
    ) -> bool:
        config, unknown = self.check(properties)
        for document in unknown:
            logger.warning("connector %s: %s", config.name, document)
        with self._lock:
            old = self._connectors.get(config.name)
            if old is not None and is_new:
                raise Conflict(f"Connector {config.name} already exists")
            if old is not None:
                self._end(config.name)
                state = old.state if old.state in AT_REST else state
            topics = set() if old is None else old.topics  # kept across configurations
            self._connectors[config.name] = _Connector(config, topics=topics)
            self.set_target_state(config.name, state or State.RUNNING)
            return old is None

    def delete(self, name: str) -> None:
        with self._lock:
            self._found(name)
            self._end(name)
            del self._connectors[name]

    def set_target_state(self, name: str, state: State) -> None:
        with self._lock:
            found = self._found(name)
            if state is State.RUNNING:
                if found.state is not State.RUNNING:
                    self._start(name)
                return
            self._end(name)
            if state is State.STOPPED:
                found.task_count = 0
            elif not found.task_count:
                self._make_tasks(found)
            found.state, found.trace, found.restart_at, found.failures = state, None, None, 0
            logger.info("connector %s is %s", name, state.value.lower())

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
        with self._lock:
            found = self._found(name)
            if found.state in AT_REST:
                return self.status(name)
            if found.state is State.FAILED:
                self._start(name)
            elif include_tasks:
                for task in range(found.task_count):
                    thread = self.worker.task(TaskId(name, task))
                    if not only_failed or thread is None or thread.state is State.FAILED:
                        self.restart_task(name, task)
            return self.status(name)

    def restart_task(self, name: str, task: int) -> None:
        with self._lock:
            found = self._found(name)
            if found.state in AT_REST:
                return
            self.worker.start_task(self._contexts(found)[task])

    # ------------------------------------------------------------------------- start and stop

    def _start(self, name: str) -> None:
        found = self._found(name)
        self._end(name)
        found.restart_at = None
        try:
            if found.config.resolved != found.config.given:
                found.config, _ = self.check(found.config.given)  # a secret may have changed
            contexts = self._contexts(found)
        except Exception as error:
            # A custom connector may raise anything; the other connectors continue.
            self._failed(name, sentence(error))
            return
        found.task_count = len(contexts)
        found.state, found.trace, found.failures = State.RUNNING, None, 0
        for context in contexts:
            self.worker.start_task(context)

    def _end(self, name: str) -> None:
        self.worker.stop_tasks([each for each in self.worker.running() if each.connector == name])

    def _make_tasks(self, found: _Connector) -> None:
        try:
            found.task_count = len(task_settings(found.config))
        except Exception as error:
            # The error is reported when the connector is resumed.
            logger.warning("connector %s: %s", found.config.name, sentence(error))

    def _failed(self, name: str, reason: str) -> None:
        found = self._found(name)
        found.failures += 1
        found.state, found.trace, found.task_count = State.FAILED, reason, 0
        settings = self.config.settings
        if 0 <= settings["task.restart.max.attempts"] < found.failures:
            logger.error("connector %s failed and will not be restarted: %s", name, reason)
            return
        pause_ms = restart_delay_ms(
            found.failures,
            settings["task.restart.backoff.ms"],
            settings["task.restart.backoff.max.ms"],
        )
        found.restart_at = time.monotonic() + pause_ms / 1000
        logger.error("connector %s failed; restarting it in %d ms: %s", name, pause_ms, reason)

    def _contexts(self, found: _Connector) -> list[TaskContext]:
        """Return the contexts of all tasks."""
        config, settings = found.config, task_settings(found.config)
        name, entry = config.name, self.store.entry(config.name)
        return [
            TaskContext(
                TaskId(name, task),
                config,
                each,
                self.config,
                self._ledger,
                f"{name}/{entry.generation}",
                f"connect-{name}-{entry.generation}-{task}",
                self.store.directory(name) / str(task),
                task_count=len(settings),
                first_offsets=list(entry.offsets),
                on_offsets=lambda offsets: self.store.update(name, entry.generation, offsets),
                on_topic=found.topics.add,
            )
            for task, each in enumerate(settings)
        ]

    # ------------------------------------------------------------------------------- offsets

    def offsets(self, name: str) -> list[dict[str, Any]]:
        with self._lock:
            config = self._found(name).config
            if config.is_source:
                return to_json(self.store.entry(name).offsets)
        return group_offsets(self._admin(config), group_id(config))

    def alter_offsets(self, name: str, document: Any) -> str:
        with self._lock:
            config = self._stopped(name)
            try:
                offsets = checked(document, config.connector)
            except ValueError as error:
                raise BadRequest(str(error)) from None
            if not isinstance(config.connector, SourceConnector):
                alter_group_offsets(self._admin(config), group_id(config), offsets)
                return ALTERED
            changed = merged(self.store.entry(name).offsets, offsets)
            # A null offset means from the beginning.
            gone = {canonical(partition) for partition, offset in offsets if not offset}
            kept = [each for each in changed if canonical(each[0]) not in gone]
            self.store.replace(name, kept)
            return ALTERED

    def reset_offsets(self, name: str) -> str:
        with self._lock:
            config = self._stopped(name)
            if not config.is_source:
                reset_group_offsets(self._admin(config), group_id(config))
            self.store.replace(name, [])
            return RESET

    def _stopped(self, name: str) -> ConnectorConfig:
        found = self._found(name)
        if found.state is not State.STOPPED:
            raise BadRequest(MUST_BE_STOPPED.format(name=name))
        return found.config

    def _admin(self, config: ConnectorConfig) -> dict[str, str]:
        found = layered(self.config.client("admin"), config.client("admin"))
        found.setdefault("default.api.timeout.ms", ADMIN_TIMEOUT_MS)
        return found

"""Distributed worker: runs the units that the group assigns to it and handles REST requests.

    config topic ──► ConfigState ─┐
    group ─────────► assignment ──┼─► units to run here ─► Worker ─► status topic
    REST ─► leader ─► config topic┘

A single thread (`run`) compares the units that should run with those that do, and starts and stops
tasks; the member's threads only pass assignments on. A task runs here if it is assigned to this
worker and its connector's target state is RUNNING, with the latest configuration. The next
iteration of the loop picks up any change to these. Tasks start only while this worker is a live
member of the group (`Member.is_alive`): one that was suspended must not fence the workers that took
over.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from ottla.base.errors import KafkaError, UserError
from ottla.connect.distributed.assignor import LeaderState, assign
from ottla.connect.distributed.changes import ConnectorChanges
from ottla.connect.distributed.config_state import (
    ConfigState,
    ConnectorEntry,
    LevelRequest,
    RestartRequest,
)
from ottla.connect.distributed.member import WorkerGroupMember, WorkerRebalanceListener
from ottla.connect.distributed.protocol import CONNECTOR, Assignment, WorkerMetadata
from ottla.connect.distributed.status_state import StatusState
from ottla.connect.distributed.status_writer import StatusWriter
from ottla.connect.distributed.topic_log import TopicLog
from ottla.connect.herder import NoSuchConnector
from ottla.connect.log_levels import set_level
from ottla.connect.offsets import safe_name
from ottla.connect.states import AT_REST, ConnectorStatus, State, Status, TaskId
from ottla.connect.task_context import ADMIN_TIMEOUT_MS, TaskContext
from ottla.connect.task_thread import sentence
from ottla.connect.worker import Worker, task_settings
from ottla.connect.worker_config import WorkerConfig

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
"""Longest pause between two iterations of the main loop, if no event arrives."""


class DistributedHerder(ConnectorChanges, WorkerRebalanceListener):
    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.worker = Worker(config)
        self.worker_name = uuid.uuid4().hex[:12]
        client, settings = config.client("admin"), config.settings
        client.setdefault("default.api.timeout.ms", ADMIN_TIMEOUT_MS)
        super().__init__(client, config)
        self._lock = threading.RLock()
        self.configs, self.states = ConfigState(), StatusState()
        self._restarts: list[RestartRequest] = []
        self._has_read_configs = False
        self._config_log = TopicLog(
            client,
            settings["config.storage.topic"],
            self._on_config,
            replication=settings["config.storage.replication.factor"],
        )
        self._status_log = TopicLog(
            client,
            settings["status.storage.topic"],
            lambda record: self.states.apply(record.key, record.value),
            partitions=settings["status.storage.partitions"],
            replication=settings["status.storage.replication.factor"],
        )
        self._status_writer = StatusWriter(
            config.client("producer"), settings["status.storage.topic"]
        )
        self._member = WorkerGroupMember(config, self)
        self._owned: frozenset[TaskId] = frozenset()
        self._must_rejoin = False
        self._generation = -1
        self._leader_url = ""
        self._leader_state = LeaderState()
        self._shared_units: frozenset[TaskId] = frozenset()
        """Units that the leader assigned in the last rebalance."""
        self._versions: dict[TaskId, int] = {}
        """Configuration versions that tasks were started with."""
        self._written_statuses: dict[TaskId, Status] = {}
        self._reported_troubles: dict[str, Status] = {}
        self._written_topics: set[tuple[str, str]] = set()
        self._stopping, self._wakeup = threading.Event(), threading.Event()

    # ----------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Start the worker; raise UserError if it cannot join the group or read its topics."""
        for notice in self.config.notices():
            logger.warning("%s", notice)
        self.worker.start()
        try:
            self.offset_storage.create_topic(self.client)
            self._config_log.start()
            self._has_read_configs = True
            self._status_log.start()
            self._member.start()
            self.is_ready = True
        except KafkaError as error:
            raise UserError(f"The worker cannot start: {error}") from error

    def run(self) -> None:
        """Run until `request_stop` is called."""
        logger.info("Kafka Connect distributed worker started: %s", self.config.worker_id)
        while not self._stopping.is_set():
            self._wakeup.wait(LOOK_EVERY_S)
            self._wakeup.clear()
            try:
                self._reconcile()
            except Exception as error:
                # An error of one connector must not end the worker; the next iteration retries.
                logger.error(
                    "an iteration of the worker's loop failed: %s", sentence(error), exc_info=error
                )

    def request_stop(self) -> None:
        self._stopping.set()
        self._wakeup.set()

    def close(self) -> None:
        """Stop all tasks, then leave the group, so that new owners find everything committed."""
        self._stopping.set()
        self.worker.close()
        self._member.close()
        self.close_config_writer()
        self._status_writer.close()
        self._config_log.close()
        self._status_log.close()

    # ----------------------------------------------------------------------- membership

    def metadata(self) -> WorkerMetadata:
        with self._lock:
            return WorkerMetadata(self.url, self._config_log.offset, self._owned)

    def compute_assignments(
        self, leader: str, members: Mapping[str, WorkerMetadata]
    ) -> Mapping[str, Assignment]:
        if max(each.config_offset for each in members.values()) > self._config_log.offset:
            self._config_log.read_to_end()
        with self._lock:
            units = self.configs.units()
            shares = assign(
                {member: each.owned for member, each in members.items()},
                units,
                self._leader_state,
                int(time.monotonic() * 1000),
                self.config.settings["scheduled.rebalance.max.delay.ms"],
            )
            self._leader_state, self._shared_units = shares.state, units
            offset = self._config_log.offset
        return {
            member: Assignment(
                leader,
                members[leader].url,
                offset,
                shares.assigned[member],
                shares.revoked[member],
                shares.delay_ms,
            )
            for member in members
        }

    def on_assigned(self, assignment: Assignment, *, generation: int, is_leader: bool) -> None:
        with self._lock:
            self._generation, self.is_leader = generation, is_leader
            self._leader_url = assignment.leader_url
            self._owned = (self._owned | assignment.assigned) - assignment.revoked
            self._must_rejoin = self._must_rejoin or bool(assignment.revoked)
            if not is_leader:
                self._leader_state = LeaderState()
            logger.info(
                "generation %d, leader %s: %d assigned, %d revoked, %d in total",
                generation, assignment.leader_url, len(assignment.assigned),
                len(assignment.revoked), len(self._owned),
            )  # fmt: skip
        self._wakeup.set()

    def on_lost(self) -> None:
        with self._lock:
            self._owned, self._generation = frozenset(), -1
            self._leader_url, self.is_leader = "", False
            self._written_statuses.clear()
        self._wakeup.set()

    # ------------------------------------------------------------------------ main loop

    def _on_config(self, record: Any) -> None:
        with self._lock:
            request = self.configs.apply(record.key, record.value, record.offset)
            if isinstance(request, RestartRequest) and self._generation >= 0:
                self._restarts.append(request)
        if isinstance(request, LevelRequest) and self._has_read_configs:
            # Requests from before this worker started are ignored, as in Kafka.
            set_level(request.logger, request.level)
        self._wakeup.set()

    def _reconcile(self) -> None:
        wanted = self._wanted()
        running = self.worker.running()
        ending = [id for id in running if self._versions.get(id) != wanted.get(id)]
        self.worker.stop_tasks(ending)
        with self._lock:
            rejoins, self._must_rejoin = self._must_rejoin, False
        if rejoins:
            self._member.request_rejoin()
        self._serve_restarts()
        for id, version in sorted(wanted.items()):
            if self.worker.task(id) is None:
                self._start(id, version)
        self._write_statuses()
        if self.is_leader:
            self.open_config_writer()
            self._reconcile_as_leader()
        else:
            self.close_config_writer()

    def _wanted(self) -> dict[TaskId, int]:
        """Return the tasks that should run here, with the versions of their configurations."""
        with self._lock:
            found = {}
            for id in self._owned:
                entry = self.configs.connectors.get(id.connector)
                if entry is None or not 0 <= id.task < len(entry.tasks):
                    continue
                if self.configs.target(id.connector) is State.RUNNING:
                    found[id] = entry.tasks_version
            return found

    def _start(self, id: TaskId, version: int) -> None:
        with self._lock:
            entry = self.configs.connectors.get(id.connector)
            if entry is None or entry.tasks_version != version:
                return
            properties = dict(entry.tasks[id.task])
        self._versions[id] = version
        try:
            context = self._context(id, properties)
        except Exception as error:
            # The connector raised an error, or this worker lacks its class.
            logger.error("task %s cannot be started on this worker: %s", id, sentence(error))
            self._write_status(id, Status(State.FAILED, self.config.worker_id, sentence(error)))
            return
        self.worker.start_task(
            context,
            may_start=lambda: self._member.is_alive and id in self._owned,
            on_state=lambda *_: self._wakeup.set(),
        )

    def _context(self, id: TaskId, properties: dict[str, str]) -> TaskContext:
        properties.pop("task.class", None)
        config, _ = self.check(properties)
        settings = task_settings(config)
        if id.task >= len(settings):
            raise UserError(f"Connector {id.connector} now has only {len(settings)} tasks.")
        group, state_dir = self.config.settings["group.id"], self.config.settings["state.dir"]
        return TaskContext(
            id,
            config,
            settings[id.task],
            self.config,
            self.offset_storage,
            id.connector,
            f"{group}-{id.connector}-{id.task}",
            self.directory_of(state_dir, group, safe_name(id.connector)) / str(id.task),
            worker_name=self.worker_name,
            task_count=len(settings),
            on_topic=lambda topic: self._topic_used(topic, id),
        )

    def _serve_restarts(self) -> None:
        with self._lock:
            request, self._restarts = self._restarts, []
        for each in request:
            for id in self.worker.running():
                thread = self.worker.task(id)
                if id.connector != each.connector or thread is None:
                    continue
                if each.only_failed and thread.state is not State.FAILED:
                    continue
                if each.include_tasks:
                    self.worker.stop_tasks([id])

    # ---------------------------------------------------------------------------- leadership

    def _reconcile_as_leader(self) -> None:
        with self._lock:
            lacking = [name for name in self.configs.connectors if self.configs.lacks_tasks(name)]
        for name in lacking:
            self.retry_task_creation(name)
            trouble = self.failure_of(name)
            if trouble is not None and self._reported_troubles.get(name) != trouble:
                self._reported_troubles[name] = trouble
                self._status_writer.status(TaskId(name, CONNECTOR), trouble, self._generation)
        with self._lock:
            has_changed = self.configs.units() != self._shared_units
        if has_changed:
            self._member.request_rejoin()

    # -------------------------------------------------------------------------------- states

    def _write_statuses(self) -> None:
        """Write the changed statuses of units that are assigned to this worker."""
        if not self._member.is_alive:
            return
        with self._lock:
            owned = sorted(self._owned)
        for id in owned:
            status = self._status_of(id)
            if status is not None:
                self._write_status(id, status)
        for id in [each for each in self._written_statuses if each not in self._owned]:
            del self._written_statuses[id]

    def _status_of(self, id: TaskId) -> Status | None:
        with self._lock:
            if id.connector not in self.configs.connectors:
                return None
            target = self.configs.target(id.connector)
        if target in AT_REST:
            return Status(target, self.config.worker_id)
        if id.task == CONNECTOR:
            # The leader reports on a connector without tasks.
            is_whole = not self.configs.lacks_tasks(id.connector)
            return Status(State.RUNNING, self.config.worker_id) if is_whole else None
        thread = self.worker.task(id)
        if thread is None:
            return None
        return Status(thread.state, self.config.worker_id, thread.trace)

    def _write_status(self, id: TaskId, status: Status) -> None:
        if self._written_statuses.get(id) != status:
            self._written_statuses[id] = status
            self._status_writer.status(id, status, self._generation)

    def forget_states(self, name: str, tasks: int) -> None:
        for task in range(CONNECTOR, tasks):
            self._status_writer.status(TaskId(name, task), None, self._generation)

    def _topic_used(self, topic: str, id: TaskId) -> None:
        if topic not in self.states.topics.get(id.connector, ()):
            known = (topic, id.connector)
            if known not in self._written_topics:
                self._written_topics.add(known)
                self._status_writer.topic(topic, id)

    def forget_topics(self, name: str) -> None:
        self.config_of(name)
        for topic in self.topics(name):
            self._written_topics.discard((topic, name))
            self._status_writer.forget_topic(topic, name)

    # ------------------------------------------------------------------------------- queries

    @property
    def url(self) -> str:
        return f"http://{self.config.worker_id}/"

    def leader_url(self) -> str | None:
        with self._lock:
            return None if self.is_leader and self._member.is_alive else self._leader_url_now()

    def _leader_url_now(self) -> str:
        return "" if self._leader_url == self.url else self._leader_url

    def url_for(self, method: str, path: str) -> str | None:
        """Return the URL of the responsible worker: the task's for a restart, else the leader's."""
        parts = path.strip("/").split("/")
        if len(parts) == 5 and parts[2] == "tasks" and parts[4] == "restart":
            return self._task_url(parts[1], parts[3])
        return self.leader_url()

    def _task_url(self, name: str, task: str) -> str | None:
        if not task.isdecimal():
            return None
        worker_id = self.states.of(TaskId(name, int(task))).worker_id
        is_here = not worker_id or worker_id == self.config.worker_id
        return None if is_here else f"http://{worker_id}/"

    def catch_up(self) -> None:
        try:
            self._config_log.read_to_end(5)
        except (KafkaError, UserError) as error:
            logger.info("%s", error)

    def entry(self, name: str) -> ConnectorEntry:
        found = self.configs.connectors.get(name)
        if found is None:
            raise NoSuchConnector(name)
        return found

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self.configs.connectors)

    def config_of(self, name: str) -> dict[str, str]:
        with self._lock:
            return dict(self.entry(name).properties)

    def task_configs(self, name: str) -> list[dict[str, str]]:
        with self._lock:
            return [dict(each) for each in self.entry(name).tasks]

    def status(self, name: str) -> ConnectorStatus:
        with self._lock:
            count, target = len(self.entry(name).tasks), self.configs.target(name)
        own = self.states.of(TaskId(name, CONNECTOR))
        if target in AT_REST:
            # The target state, as the assigned worker may not have written its status yet.
            own = Status(target, own.worker_id)
        tasks = {task: self.states.of(TaskId(name, task)) for task in range(count)}
        return ConnectorStatus(own, tasks)

    def topics(self, name: str) -> list[str]:
        self.config_of(name)
        return sorted(self.states.topics.get(name, ()))

    def restart_task(self, name: str, task: int) -> None:
        """Stop the task here; the next iteration of the main loop starts it again."""
        self.config_of(name)
        self.worker.stop_tasks([TaskId(name, task)])
        self._wakeup.set()

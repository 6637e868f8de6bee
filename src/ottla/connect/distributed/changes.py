"""Changes that the leader makes for the group: configurations, target states, offsets.

Each change is written to the config topic and returns once this worker has read it back; the other
workers follow. The leader also computes the task configurations (`share_into_tasks`), whereas
Kafka asks the worker that runs the connector: here they follow from the configuration alone.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.profile import layered
from ottla.connect.api import SourceConnector
from ottla.connect.config import ConnectorConfig
from ottla.connect.distributed.config_state import (
    ConfigState,
    ConnectorEntry,
    Entry,
    connector_entry,
    level_entry,
    restart_entry,
    target_entry,
    task_entries,
)
from ottla.connect.distributed.config_writer import ConfigWriter
from ottla.connect.herder import BadRequest, Conflict, Herder
from ottla.connect.offset_storage import (
    SINK_TASK,
    SinkPosition,
    TopicOffsetStorage,
    encode,
    offset_key,
)
from ottla.connect.offsets import checked, to_json
from ottla.connect.retrying import restart_delay_ms
from ottla.connect.sink_offsets import alter_group_offsets, group_offsets, reset_group_offsets
from ottla.connect.sink_task import group_id
from ottla.connect.standalone import ALTERED, MUST_BE_STOPPED, RESET
from ottla.connect.states import ConnectorStatus, State, Status
from ottla.connect.task_context import PRODUCER_DEFAULTS
from ottla.connect.task_thread import sentence
from ottla.connect.worker import MAX_TASKS, task_settings
from ottla.connect.worker_config import WorkerConfig


class ConnectorChanges(Herder):
    configs: ConfigState
    is_leader = False

    def __init__(self, client: Mapping[str, str], config: WorkerConfig) -> None:
        settings = config.settings
        self.client = dict(client)
        self.offset_storage = TopicOffsetStorage(
            settings["offset.storage.topic"],
            settings["offset.storage.partitions"],
            settings["offset.storage.replication.factor"],
        )
        self._writer = ConfigWriter(client, settings["config.storage.topic"], settings["group.id"])
        self._failures: dict[str, tuple[int, float, str]] = {}
        """Connectors whose tasks could not be computed: failures, next attempt, reason."""

    @abstractmethod
    def entry(self, name: str) -> ConnectorEntry: ...

    @abstractmethod
    def forget_states(self, name: str, tasks: int) -> None: ...

    def open_config_writer(self) -> None:
        """Fence the previous leader, when this worker becomes the leader."""
        self._writer.open()

    def close_config_writer(self) -> None:
        self._writer.close()

    def directory_of(self, *parts: str) -> Path:
        return Path(*parts)

    def _write(self, *entries: Entry) -> None:
        self._writer.write(entries)
        self.catch_up()

    # ------------------------------------------------------------------------ configurations

    def put(
        self, properties: Mapping[str, str], state: State | None = None, *, is_new: bool = False
    ) -> bool:
        config, _ = self.check(properties)
        name = config.name
        was_there = name in self.configs.connectors
        if was_there and is_new:
            raise Conflict(f"Connector {name} already exists")
        target = self.configs.target(name) if was_there else state or State.RUNNING
        entries = [connector_entry(name, properties)]
        if not was_there:
            entries.append(target_entry(name, target))
        self._failures.pop(name, None)
        self._write(*entries, *self._tasks(config, target))
        return not was_there

    def _tasks(self, config: ConnectorConfig, target: State) -> list[Entry]:
        """Return the task entries; empty if they cannot be computed now, and the leader retries."""
        if target is State.STOPPED:
            return task_entries(config.name, [])
        try:
            count = len(task_settings(config))
        except Exception as error:
            # A custom connector may raise anything, for example if its system is unavailable.
            self._record_failure(config.name, sentence(error))
            return []
        self._failures.pop(config.name, None)
        kind = type(config.connector).__name__
        return task_entries(config.name, [{**config.given, "task.class": kind}] * count)

    def _record_failure(self, name: str, reason: str) -> None:
        times = self._failures.get(name, (0, 0.0, ""))[0] + 1
        settings = self.config.settings
        pause_ms = restart_delay_ms(
            times, settings["task.restart.backoff.ms"], settings["task.restart.backoff.max.ms"]
        )
        self._failures[name] = times, time.monotonic() + pause_ms / 1000, reason

    def retry_task_creation(self, name: str) -> None:
        """Compute and write a connector's task configurations, unless a retry is not due yet."""
        _, again_at, _ = self._failures.get(name, (0, 0.0, ""))
        if time.monotonic() < again_at:
            return
        try:
            config, _ = self.check(self.config_of(name))
        except Exception as error:
            self._record_failure(name, sentence(error))
            return
        entries = self._tasks(config, self.configs.target(name))
        if entries:
            self._write(*entries)

    def failure_of(self, name: str) -> Status | None:
        """Return the status of a connector whose tasks could not be computed."""
        trouble = self._failures.get(name)
        return trouble and Status(State.FAILED, self.config.worker_id, trouble[2])

    def delete(self, name: str) -> None:
        tasks = len(self.entry(name).tasks)
        self._write(connector_entry(name, None), target_entry(name, None), (f"commit-{name}", None))
        self.forget_states(name, max(tasks, 1))

    # -------------------------------------------------------------------------------- states

    def set_target_state(self, name: str, state: State) -> None:
        config, _ = self.check(self.config_of(name))
        was, entries = self.configs.target(name), [target_entry(name, state)]
        if State.STOPPED in (was, state) and was is not state:
            entries += self._tasks(config, state)
        self._write(*entries)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
        self.config_of(name)
        self._failures.pop(name, None)
        self._write(restart_entry(name, include_tasks=include_tasks, only_failed=only_failed))
        return self.status(name)

    def set_cluster_level(self, name: str, level: str) -> None:
        self._write(level_entry(name, level))

    # ------------------------------------------------------------------------------- offsets

    def offsets(self, name: str) -> list[dict[str, Any]]:
        config, _ = self.check(self.config_of(name))
        if config.is_source:
            return to_json(self.offset_storage.offsets(self._cluster_of(config), name))
        return group_offsets(self._admin(config), group_id(config))

    def alter_offsets(self, name: str, data: Any) -> str:
        config = self._stopped(name)
        try:
            offsets = checked(data, config.connector)
        except ValueError as error:
            raise BadRequest(str(error)) from None
        self._fence(config)
        if isinstance(config.connector, SourceConnector):
            self._write_offsets(
                config, [(partition, offset or None) for partition, offset in offsets]
            )
        else:
            alter_group_offsets(self._admin(config), group_id(config), offsets)
        return ALTERED

    def reset_offsets(self, name: str) -> str:
        config = self._stopped(name)
        self._fence(config)
        if config.is_source:
            known = self.offset_storage.offsets(self._cluster_of(config), name)
            self._write_offsets(config, [(partition, None) for partition, _ in known])
            return RESET
        reset_group_offsets(self._admin(config), group_id(config))
        # Batch numbers continue, because a task may have stored the last one.
        positions = self.offset_storage.sink_positions(self._cluster_of(config), name)
        self._write_offsets(config, [
            ({SINK_TASK: task}, SinkPosition(each.batch, each.epoch, each.worker).to_json())
            for task, each in positions.items()
        ])  # fmt: skip
        return RESET

    def _stopped(self, name: str) -> ConnectorConfig:
        config, _ = self.check(self.config_of(name))
        if self.configs.target(name) is not State.STOPPED:
            raise BadRequest(MUST_BE_STOPPED.format(name=name))
        return config

    def _transactional_id(self, name: str, task: int) -> str:
        return f"{self.config.settings['group.id']}-{name}-{task}"

    def _fence(self, config: ConnectorConfig) -> None:
        """Fence tasks that a worker may not have stopped yet."""
        from ottla.client.admin import Admin

        ids = [self._transactional_id(config.name, task) for task in range(MAX_TASKS)]
        limit = min(config.settings["tasks.max"], MAX_TASKS)
        with Admin(profile=self._admin(config)) as admin:
            try:
                admin.fence_producers(*ids[:limit])
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise

    def _write_offsets(
        self, config: ConnectorConfig, offsets: list[tuple[dict[str, Any], dict[str, Any] | None]]
    ) -> None:
        from ottla.client.producer.producer import Producer

        if not offsets:
            return
        profile = PRODUCER_DEFAULTS | self._cluster_of(config)
        profile["transactional.id"] = self._transactional_id(config.name, 0)
        with Producer(profile=profile) as producer, producer.transaction():
            for partition, offset in offsets:
                value = None if offset is None else encode(offset)
                key = offset_key(config.name, partition)
                producer.send(self.offset_storage.topic, value, key=key)

    def _admin(self, config: ConnectorConfig) -> dict[str, str]:
        return layered(self.client, config.client("admin"))

    def _cluster_of(self, config: ConnectorConfig) -> dict[str, str]:
        kind = "producer" if config.is_source else "consumer"
        own = config.client(kind)
        return {**self.client, **{name: own[name] for name in own if name == "bootstrap.servers"}}

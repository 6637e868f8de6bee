"""State in `status.storage.topic`: states of connectors and tasks, and the topics they use.

The format is Kafka's, as JSON without schemas:

| key | value |
|---|---|
| status-connector-NAME, status-task-NAME-0 | {"state", "trace", "worker_id", "generation"} |
| status-topic-TOPIC:connector-NAME | {"topic": {"name", "connector", "task", …}} |

A worker writes the states of the units it runs while it is a live member of the group. The leader
removes those of deleted connectors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ottla.connect.distributed.protocol import CONNECTOR
from ottla.connect.states import State, Status, TaskId

CONNECTOR_PREFIX, TASK_PREFIX, TOPIC_PREFIX = "status-connector-", "status-task-", "status-topic-"
TOPIC_SEPARATOR = ":connector-"


@dataclass
class StatusState:
    """Materialized state of the status topic; only `apply` changes it."""

    states: dict[TaskId, Status] = field(default_factory=dict)
    topics: dict[str, set[str]] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record. Malformed records are ignored."""
        name = (key or b"").decode("utf-8", "replace")
        try:
            document = json.loads(value) if value else None
            if name.startswith(TOPIC_PREFIX):
                self._topic(name.removeprefix(TOPIC_PREFIX), is_there=document is not None)
                return
            id = _id(name)
            if id is None:
                return
            if document is None:
                self.states.pop(id, None)
                return
            trace = document.get("trace")
            self.states[id] = Status(State(document["state"]), str(document["worker_id"]), trace)
        except (ValueError, KeyError, TypeError, AttributeError):
            return

    def _topic(self, name: str, *, is_there: bool) -> None:
        topic, _, connector = name.partition(TOPIC_SEPARATOR)
        known = self.topics.setdefault(connector, set())
        if is_there:
            known.add(topic)
        else:
            known.discard(topic)

    def of(self, id: TaskId) -> Status:
        return self.states.get(id, Status(State.UNASSIGNED, ""))


def _id(key: str) -> TaskId | None:
    if key.startswith(CONNECTOR_PREFIX):
        return TaskId(key.removeprefix(CONNECTOR_PREFIX), CONNECTOR)
    if key.startswith(TASK_PREFIX):
        name, _, number = key.removeprefix(TASK_PREFIX).rpartition("-")
        return TaskId(name, int(number))
    return None


def status_key(id: TaskId) -> bytes:
    if id.task == CONNECTOR:
        return f"{CONNECTOR_PREFIX}{id.connector}".encode()
    return f"{TASK_PREFIX}{id.connector}-{id.task}".encode()


def status_value(status: Status, generation: int) -> bytes:
    document: dict[str, Any] = {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": generation,
    }
    return json.dumps(document).encode()


def topic_key(topic: str, connector: str) -> bytes:
    return f"{TOPIC_PREFIX}{topic}{TOPIC_SEPARATOR}{connector}".encode()


def topic_value(topic: str, id: TaskId, now_ms: int) -> bytes:
    document = {
        "name": topic,
        "connector": id.connector,
        "task": id.task,
        "discoverTimestamp": now_ms,
    }
    return json.dumps({"topic": document}).encode()

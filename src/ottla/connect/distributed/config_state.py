"""State in `config.storage.topic`: connectors, their tasks, and requests to them.

The format is Kafka's, as JSON without schemas:

| key | value |
|---|---|
| connector-NAME | {"properties": {…}}; a tombstone deletes the connector |
| task-NAME-0 | {"properties": {…}} |
| commit-NAME | {"tasks": 1}: the preceding task records are complete and take effect |
| target-state-NAME | {"state": "STARTED" or "PAUSED", "state.v2": also "STOPPED"} |
| restart-connector-NAME | {"include-tasks": …, "only-failed": …} |
| logger-cluster-NAME | {"level": …}: level of the logger in every running worker |

Only the leader writes, each change in one transaction. Other keys that Java's workers write
(`session-key`, `tasks-fencing-…`) are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.connect.distributed.protocol import CONNECTOR
from ottla.connect.log_levels import LEVELS
from ottla.connect.states import State, TaskId

PREFIXES = (
    "connector-", "commit-", "target-state-", "restart-connector-", "task-", "logger-cluster-",
)  # fmt: skip
_TARGETS = {"STARTED": State.RUNNING, "PAUSED": State.PAUSED, "STOPPED": State.STOPPED}
_WORDS = {state: word for word, state in _TARGETS.items()}


@dataclass(frozen=True)
class RestartRequest:
    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True)
class LevelRequest:
    logger: str
    level: str


@dataclass
class ConnectorEntry:
    properties: dict[str, str]
    version: int
    """Offset of the record that last configured the connector or let it run again."""
    tasks: list[dict[str, str]] = field(default_factory=list)
    tasks_version: int = -1
    """Offset of the commit record; if below `version`, the tasks have an older configuration."""


@dataclass
class ConfigState:
    """Materialized state of the config topic; only `apply` changes it."""

    connectors: dict[str, ConnectorEntry] = field(default_factory=dict)
    targets: dict[str, State] = field(default_factory=dict)
    _pending: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)

    def apply(
        self, key: bytes | None, value: bytes | None, offset: int
    ) -> RestartRequest | LevelRequest | None:
        """Apply a record and return the request in it, if any. Malformed records are ignored."""
        kind, name = _split((key or b"").decode("utf-8", "replace"))
        try:
            document = json.loads(value) if value else None
            document = document if isinstance(document, dict) else None
            if kind == "connector-":
                self._connector(name, document, offset)
            elif kind == "task-":
                self._task(name, document)
            elif kind == "commit-":
                self._commit(name, document, offset)
            elif kind == "target-state-":
                self._target(name, document, offset)
            elif kind == "restart-connector-" and document is not None:
                return RestartRequest(name, bool(document.get("include-tasks")),
                                      bool(document.get("only-failed")))  # fmt: skip
            elif kind == "logger-cluster-" and document is not None:
                level = str(document["level"]).upper()
                return LevelRequest(name, level) if level in LEVELS else None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return None

    def _connector(self, name: str, document: dict[str, Any] | None, offset: int) -> None:
        if document is None:
            self.connectors.pop(name, None)
            self.targets.pop(name, None)
            self._pending.pop(name, None)
            return
        properties = {str(key): str(text) for key, text in document["properties"].items()}
        old = self.connectors.get(name)
        if old is None:
            self.connectors[name] = ConnectorEntry(properties, offset)
        else:
            old.properties, old.version = properties, offset

    def _task(self, name: str, document: dict[str, Any] | None) -> None:
        connector, _, number = name.rpartition("-")
        if document is not None:
            self._pending.setdefault(connector, {})[int(number)] = dict(document["properties"])

    def _commit(self, name: str, document: dict[str, Any] | None, offset: int) -> None:
        entry, pending = self.connectors.get(name), self._pending.pop(name, {})
        if entry is None or document is None:
            return
        count = int(document["tasks"])
        whole = [pending.get(number, _at(entry.tasks, number)) for number in range(count)]
        tasks = [each for each in whole if each is not None]
        if len(tasks) == count:
            entry.tasks, entry.tasks_version = tasks, offset

    def _target(self, name: str, document: dict[str, Any] | None, offset: int) -> None:
        if document is None:
            self.targets.pop(name, None)
            return
        before, entry = self.target(name), self.connectors.get(name)
        self.targets[name] = _TARGETS[str(document.get("state.v2") or document["state"])]
        if before is State.STOPPED and self.target(name) is not before and entry is not None:
            # A stopped connector has no tasks, so tasks committed earlier are outdated.
            entry.version = offset

    # ------------------------------------------------------------------------------- queries

    def target(self, name: str) -> State:
        return self.targets.get(name, State.RUNNING)

    def units(self) -> frozenset[TaskId]:
        """Return all connectors and tasks to assign to workers."""
        found = set()
        for name, entry in self.connectors.items():
            found |= {TaskId(name, task) for task in range(CONNECTOR, len(entry.tasks))}
        return frozenset(found)

    def lacks_tasks(self, name: str) -> bool:
        """Return whether the tasks do not match the connector's configuration and state."""
        entry = self.connectors[name]
        if self.target(name) is State.STOPPED:
            return bool(entry.tasks)
        return entry.tasks_version < entry.version


def _at(tasks: list[dict[str, str]], number: int) -> dict[str, str] | None:
    return tasks[number] if number < len(tasks) else None


def _split(key: str) -> tuple[str, str]:
    for prefix in PREFIXES:
        if key.startswith(prefix):
            return prefix, key.removeprefix(prefix)
    return "", key


# ------------------------------------------------------------------------------ records to write

Entry = tuple[str, dict[str, Any] | None]


def connector_entry(name: str, properties: Mapping[str, str] | None) -> Entry:
    return f"connector-{name}", None if properties is None else {"properties": dict(properties)}


def task_entries(name: str, tasks: list[dict[str, str]]) -> list[Entry]:
    entries: list[Entry] = [
        (f"task-{name}-{number}", {"properties": each}) for number, each in enumerate(tasks)
    ]
    return [*entries, (f"commit-{name}", {"tasks": len(tasks)})]


def target_entry(name: str, state: State | None) -> Entry:
    if state is None:
        return f"target-state-{name}", None
    old = "STARTED" if state is State.RUNNING else "PAUSED"
    return f"target-state-{name}", {"state": old, "state.v2": _WORDS[state]}


def restart_entry(name: str, *, include_tasks: bool, only_failed: bool) -> Entry:
    return f"restart-connector-{name}", {"include-tasks": include_tasks, "only-failed": only_failed}


def level_entry(logger: str, level: str) -> Entry:
    return f"logger-cluster-{logger}", {"level": level}

"""What REST asks of a worker, alone or with others: Kafka's herder.

Names are the connectors'. Whatever is asked of one that is not there raises NoSuchConnector. The
calls come from REST's threads, any of them at any time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.config import ConnectorConfig, validate
from ottla.connect.loggers import set_level
from ottla.connect.states import ConnectorStatus, State
from ottla.connect.worker_config import WorkerConfig


class NoSuchConnector(UserError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Connector {name} not found")


class NoSuchTask(UserError):
    def __init__(self, name: str, task: str) -> None:
        super().__init__(f"No status found for task {name}-{task}")


class Conflict(UserError):
    """Not now, or not so: 409."""


class BadRequest(UserError):
    """400."""


class Herder(ABC):
    config: WorkerConfig
    is_ready = False
    """Whether it has started, and knows what there is."""

    def check(self, given: Mapping[str, str]) -> tuple[ConnectorConfig, list[str]]:
        """The connector, and what of its properties nothing reads. Raises InvalidConnector with all
        that is wrong."""
        made = ConnectorConfig.of(given, self.config.given)
        return made, validate(given, self.config.given).unknown()

    def place_of(self, method: str, path: str) -> str | None:
        """Whose to do a change is, as a URL; empty: nobody knows just now; None: this worker's."""
        return None

    def catch_up(self) -> None:
        """Learn of what another worker has just changed for us."""
        return

    def set_cluster_level(self, name: str, level: str) -> None:
        """Of a logger in all workers: here, unless there are others."""
        set_level(name, level)

    # -------------------------------------------------------------------------------- asking

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def given(self, name: str) -> dict[str, str]:
        """Its configuration, as it was given."""

    @abstractmethod
    def task_configs(self, name: str) -> list[dict[str, str]]: ...

    @abstractmethod
    def status(self, name: str) -> ConnectorStatus: ...

    @abstractmethod
    def topics(self, name: str) -> list[str]:
        """Those that records came from or went to."""

    @abstractmethod
    def offsets(self, name: str) -> list[dict[str, Any]]: ...

    # ------------------------------------------------------------------------------ changing

    @abstractmethod
    def put(
        self, given: Mapping[str, str], state: State | None = None, *, is_new: bool = False
    ) -> bool:
        """Make a connector, or give it another configuration; whether it is new. `is_new`: raise
        Conflict if it is there."""

    @abstractmethod
    def delete(self, name: str) -> None: ...

    @abstractmethod
    def bring(self, name: str, state: State) -> None:
        """Into the state that was asked for."""

    @abstractmethod
    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus: ...

    @abstractmethod
    def restart_task(self, name: str, task: int) -> None: ...

    @abstractmethod
    def forget_topics(self, name: str) -> None: ...

    @abstractmethod
    def alter_offsets(self, name: str, told: Any) -> str:
        """What to say. Raises BadRequest unless it is stopped and they can be its offsets."""

    @abstractmethod
    def reset_offsets(self, name: str) -> str: ...

"""Operations that the REST API performs on a worker, standalone or distributed (Kafka's Herder).

Methods that take a connector's name raise NoSuchConnector if it does not exist. REST threads call
them concurrently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.config import ConnectorConfig, validate
from ottla.connect.log_levels import set_level
from ottla.connect.states import ConnectorStatus, State
from ottla.connect.worker_config import WorkerConfig


class NoSuchConnector(UserError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Connector {name} not found")


class NoSuchTask(UserError):
    def __init__(self, name: str, task: str) -> None:
        super().__init__(f"No status found for task {name}-{task}")


class Conflict(UserError):
    """The request conflicts with the current state: HTTP 409."""


class BadRequest(UserError):
    """The request is invalid: HTTP 400."""


class Herder(ABC):
    config: WorkerConfig
    is_ready = False
    """Whether the worker has started and has read the configuration."""

    def check(self, properties: Mapping[str, str]) -> tuple[ConnectorConfig, list[str]]:
        """Return a validated configuration and a sentence for each unknown property.

        Raises:
            InvalidConnector: The configuration has errors; the message lists all of them.
        """
        made = ConnectorConfig.of(properties, self.config.given)
        return made, validate(properties, self.config.given).unknown()

    def url_for(self, method: str, path: str) -> str | None:
        """Return the URL of the worker that must handle a request.

        Returns:
            None if this worker handles it, or '' if the leader is unknown.
        """
        return None

    def catch_up(self) -> None:
        """Read changes that another worker has just made on behalf of this one."""
        return

    def set_cluster_level(self, name: str, level: str) -> None:
        """Set the level of a logger in all workers of the cluster."""
        set_level(name, level)

    # ------------------------------------------------------------------------------- queries

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def config_of(self, name: str) -> dict[str, str]:
        """Return the connector's configuration as it was submitted."""

    @abstractmethod
    def task_configs(self, name: str) -> list[dict[str, str]]: ...

    @abstractmethod
    def status(self, name: str) -> ConnectorStatus: ...

    @abstractmethod
    def topics(self, name: str) -> list[str]:
        """Return the topics that the connector has read from or written to."""

    @abstractmethod
    def offsets(self, name: str) -> list[dict[str, Any]]: ...

    # ------------------------------------------------------------------------------- changes

    @abstractmethod
    def put(
        self, properties: Mapping[str, str], state: State | None = None, *, is_new: bool = False
    ) -> bool:
        """Create a connector or replace its configuration.

        Args:
            given: Configuration of the connector.
            state: Initial state of a new connector.
            is_new: Whether to raise Conflict if the connector exists.

        Returns:
            Whether the connector is new.
        """

    @abstractmethod
    def delete(self, name: str) -> None: ...

    @abstractmethod
    def set_target_state(self, name: str, state: State) -> None:
        """Request that the connector reaches a state."""

    @abstractmethod
    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus: ...

    @abstractmethod
    def restart_task(self, name: str, task: int) -> None: ...

    @abstractmethod
    def forget_topics(self, name: str) -> None: ...

    @abstractmethod
    def alter_offsets(self, name: str, data: Any) -> str:
        """Change the offsets of a stopped connector and return a message for the client.

        Raises:
            BadRequest: The connector is not stopped, or the offsets are invalid.
        """

    @abstractmethod
    def reset_offsets(self, name: str) -> str: ...

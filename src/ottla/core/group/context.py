"""Context of the decision on one event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.config.group import ASSIGNMENT_INTERVAL, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from ottla.core.coordinator import Decision
from ottla.core.group.settings import GroupSettings
from ottla.core.group.topics import NoTopics, TopicsView


class DecisionContext(NamedTuple):
    now_ms: int
    settings: GroupSettings
    decision: Decision
    topics: TopicsView = NoTopics()
    configs: Mapping[str, int] = {}
    """The dynamic configs of the group that the event concerns."""

    @property
    def consumer_session_timeout_ms(self) -> int:
        return self.configs.get(SESSION_TIMEOUT, self.settings.consumer_session_timeout_ms)

    @property
    def consumer_heartbeat_interval_ms(self) -> int:
        return self.configs.get(HEARTBEAT_INTERVAL, self.settings.consumer_heartbeat_interval_ms)

    @property
    def consumer_assignment_interval_ms(self) -> int:
        return self.configs.get(ASSIGNMENT_INTERVAL, self.settings.consumer_assignment_interval_ms)

"""What the decisions of one event share."""

from __future__ import annotations

from typing import NamedTuple

from ottla.core.coordinator import Decision
from ottla.core.group.settings import GroupSettings


class Turn(NamedTuple):
    now_ms: int
    settings: GroupSettings
    decision: Decision

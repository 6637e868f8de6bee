"""The properties of an admin client: those that every client has, and no others."""

from __future__ import annotations

import dataclasses

from ottla.client.config import CommonConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(CommonConfig):
    """What an admin client has."""

"""Properties of the admin client: only those that all clients have."""

from __future__ import annotations

import dataclasses

from ottla.client.config import CommonConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(CommonConfig):
    """Configuration of an admin client."""

"""Errors of topologies: one sentence with the operator, the line of the call and the choices."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from ottla.base.errors import UserError

_PACKAGE = __name__.rpartition(".")[0]


class TopologyError(UserError):
    """An operator or argument that the topology does not support, raised when it is added."""


def topology_error(operator: str, reason: str) -> TopologyError:
    place = _calling_line()
    return TopologyError(f"{operator} ({place}): {reason}" if place else f"{operator}: {reason}")


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _calling_line() -> str | None:
    """Return the file and line of the nearest caller outside of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return None
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _is_ours(frame: FrameType) -> bool:
    """Return whether the code belongs to this package.

    The file does not tell: a dataclass's `__init__` is compiled from a string.
    """
    return f"{frame.f_globals.get('__name__')}.".startswith(f"{_PACKAGE}.")

"""A command that did a part of what it was asked to: what failed is listed, and it ends with 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.errors import UserError
from ottla.cli.failure import sentence


def reasons(errors: Mapping[Any, BaseException]) -> dict[str, str]:
    """What failed, and why, for people and for JSON."""
    return {str(what): sentence(error) for what, error in errors.items()}


def fail_if_any(errors: Mapping[Any, BaseException], what: str) -> None:
    """Raises UserError: one line for each failure; `what` says what was meant to be done."""
    if errors:
        lines = [
            reason if key in reason else f"{what} {key}: {reason}"
            for key, reason in reasons(errors).items()
        ]
        raise UserError("\n".join(lines))

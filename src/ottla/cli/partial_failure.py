"""Errors of commands that act on several objects, some of which may fail (exit code 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.errors import UserError
from ottla.cli.failure import sentence


def reasons(errors: Mapping[Any, BaseException]) -> dict[str, str]:
    """Return the error message of each failed object, for text and JSON output."""
    return {str(what): sentence(error) for what, error in errors.items()}


def fail_if_any(errors: Mapping[Any, BaseException], what: str) -> None:
    """Raise UserError with one line per failure, if there are any.

    Args:
        errors: The error of each failed object.
        what: Noun before the object in messages that do not name it, such as "Partition".
    """
    if errors:
        lines = [
            reason if key in reason else f"{what} {key}: {reason}"
            for key, reason in reasons(errors).items()
        ]
        raise UserError("\n".join(lines))

"""Rules for topic names. They are Kafka's, because names become directory and metric names.

A name has 1 to 249 characters: ASCII letters, digits, `.`, `_` and `-`. It is neither `.` nor `..`.
"""

from __future__ import annotations

import re

from ottla.base.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH = 249
"""Longest legal name: a file system allows 255 characters, and `-<partition>` is appended."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """Check that a topic name is legal.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION if it is not.
    """
    reason = topic_name_error(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def topic_name_error(name: str) -> str | None:
    """Return the reason why a topic name is illegal, or None if it is legal."""
    if not name:
        return "Topic name is illegal, it must not be empty."
    if name in (".", ".."):
        return f"Topic name '{name}' is illegal, '.' and '..' are not allowed."
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"Topic name is illegal, it has {len(name)} characters, but the maximum is "
            f"{MAX_NAME_LENGTH}."
        )
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name '{name}' is illegal, it contains characters other than ASCII "
            "alphanumerics, '.', '_' and '-'."
        )
    return None

"""Small value types shared by every layer."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable
from typing import NamedTuple

ZERO_UUID = bytes(16)
"""Kafka's null ID.

IDs are kept as 16 raw bytes: they are compared, hashed and copied to the wire on every request, and
rarely displayed.
"""


class TopicPartition(NamedTuple):
    """A partition of a topic, as a named tuple."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition, from 0."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic, in the given order."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def new_uuid() -> bytes:
    """Return a random ID that Kafka accepts.

    It is never one of Kafka's reserved values, and its text form never starts with a dash, which
    tools would parse as an option.
    """
    while True:
        raw = os.urandom(16)
        if raw[:15] != bytes(15) and not format_uuid(raw).startswith("-"):
            return raw


def format_uuid(raw: bytes) -> str:
    """Return Kafka's text form of an ID: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def parse_uuid(text: str) -> bytes:
    """Parse Kafka's text form of an ID.

    Raises:
        ValueError: The text is not a 16-byte ID in URL-safe base64.
    """
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a 16-byte id in URL-safe base64")
    return raw

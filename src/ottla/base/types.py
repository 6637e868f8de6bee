"""Small value types shared by every layer."""

from __future__ import annotations

import base64
import os
from typing import NamedTuple

ZERO_UUID = bytes(16)
"""Kafka's "no id". Ids are kept as their 16 raw bytes: they are compared, hashed and
copied to the wire on every request, and only rarely shown to a person."""


class TopicPartition(NamedTuple):
    """A partition of a topic, as a named tuple."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition, from 0."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def new_uuid() -> bytes:
    """A random id that Kafka accepts: never one of its reserved values, and never one whose
    text form starts with a dash (tools would read it as a flag)."""
    while True:
        raw = os.urandom(16)
        if raw[:15] != bytes(15) and not format_uuid(raw).startswith("-"):
            return raw


def format_uuid(raw: bytes) -> str:
    """Kafka's text form of an id: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def parse_uuid(text: str) -> bytes:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a 16-byte id in URL-safe base64")
    return raw

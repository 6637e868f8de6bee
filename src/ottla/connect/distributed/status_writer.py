"""Asynchronous writer of statuses to the status topic; no caller waits for brokers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from ottla.base.errors import KafkaError
from ottla.connect.distributed.status_state import (
    status_key,
    status_value,
    topic_key,
    topic_value,
)
from ottla.connect.states import Status, TaskId

logger = logging.getLogger(__name__)


class StatusWriter:
    def __init__(self, client: Mapping[str, str], topic: str) -> None:
        self._client = dict(client)
        self._topic = topic
        self._lock = threading.Lock()
        self._producer: Any = None

    def status(self, id: TaskId, status: Status | None, generation: int) -> None:
        """Write a status; None deletes it."""
        value = None if status is None else status_value(status, generation)
        self._send(status_key(id), value)

    def topic(self, topic: str, id: TaskId) -> None:
        self._send(topic_key(topic, id.connector), topic_value(topic, id, int(time.time() * 1000)))

    def forget_topic(self, topic: str, connector: str) -> None:
        self._send(topic_key(topic, connector), None)

    def _send(self, key: bytes, value: bytes | None) -> None:
        from ottla.client.producer.producer import Producer

        try:
            with self._lock:
                if self._producer is None:
                    self._producer = Producer(profile=self._client)
                self._producer.send(self._topic, value, key=key)
        except KafkaError as error:
            # A lost status is not fatal; the next change is sent as usual.
            logger.warning("could not write a status: %s", error)

    def close(self) -> None:
        with self._lock:
            if self._producer is not None:
                self._producer.close(5)
                self._producer = None

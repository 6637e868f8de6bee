"""Writer of the config topic, which only the leader uses.

Each change is one transaction with a transactional ID that all workers of the group share. A former
leader that was suspended cannot write its outdated decisions: its producer is fenced.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.client.errors import ClientError
from ottla.connect.distributed.config_state import Entry
from ottla.connect.herder import Conflict
from ottla.connect.task_context import PRODUCER_DEFAULTS


class ConfigWriter:
    def __init__(self, client: Mapping[str, str], topic: str, group_id: str) -> None:
        self._client = {
            **PRODUCER_DEFAULTS, **client, "transactional.id": f"connect-cluster-{group_id}",
        }  # fmt: skip
        self._topic = topic
        self._lock = threading.Lock()
        self._producer: Any = None

    def open(self) -> None:
        """Initialize the producer, which fences the previous writer."""
        from ottla.client.producer.producer import Producer

        with self._lock:
            if self._producer is None:
                self._producer = Producer(profile=self._client)

    def write(self, entries: Iterable[Entry]) -> None:
        """Write all entries in one transaction; raise Conflict if another worker is the leader."""
        self.open()
        with self._lock:
            try:
                with self._producer.transaction():
                    for key, value in entries:
                        data = None if value is None else json.dumps(value).encode()
                        self._producer.send(self._topic, data, key=key.encode(), partition=0)
            except ClientError as error:
                self._drop()
                if error.fatal:
                    raise Conflict("Another worker has become the leader of the group.") from error
                raise

    def close(self) -> None:
        """Close the producer, when this worker loses leadership or stops."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.close(0)
            self._producer = None

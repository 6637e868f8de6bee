"""Reports of a task that wait to be sent to its driver.

The task never waits for the driver: reports are combined until the sender takes them. Of states and
source offsets only the latest counts, and at most `MAX_LOG_RECORDS` log messages are kept.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

from ottla.connect.api import Json, Offsets

MAX_LOG_RECORDS = 1_000


class Outbox(logging.Handler):
    """Collects reports. It is also the log handler of the process."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = threading.Condition()
        self._offsets: dict[str, tuple[Json, Json]] = {}
        self._topics: dict[str, None] = {}
        self._states: list[Json] = []
        self._log: list[tuple[str, int, str]] = []
        self._dropped = 0
        self._is_closed = False

    # ------------------------------------------------------------------------- from the task

    def offsets(self, offsets: Offsets) -> None:
        with self._condition:
            for partition, offset in offsets:
                self._offsets[json.dumps(partition, sort_keys=True)] = partition, offset
            self._condition.notify()

    def topic(self, name: str) -> None:
        with self._condition:
            self._topics[name] = None
            self._condition.notify()

    def started(self) -> None:
        self._state({"started": True})

    def retry(self, reason: str | None) -> None:
        self._state({"retry": reason})

    def _state(self, state: Json) -> None:
        with self._condition:
            if self._states and self._states[-1].keys() == state.keys():
                self._states.pop()
            self._states.append(state)
            self._condition.notify()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a log message. Overrides `logging.Handler.emit`."""
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        with self._condition:
            if len(self._log) >= MAX_LOG_RECORDS:
                self._dropped += 1
                return
            self._log.append((record.name, record.levelno, text))
            self._condition.notify()

    def finish(self) -> None:
        """Let `take` return what is left, and then None."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()

    # ----------------------------------------------------------------------- from the sender

    def take(self, timeout_s: float) -> dict[str, Any] | None:
        """Wait for reports and return them; empty if none arrive, None after `finish`."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or self._has_any(), timeout_s)
            if self._is_closed and not self._has_any():
                return None
            if self._dropped:
                lost = f"{self._dropped} log messages of the task were dropped"
                self._log.append((__name__, logging.WARNING, lost))
            found: dict[str, Any] = {
                "states": self._states,
                "offsets": list(self._offsets.values()),
                "topics": list(self._topics),
                "log": self._log,
            }
            self._offsets, self._topics, self._states, self._log = {}, {}, [], []
            self._dropped = 0
            return {name: value for name, value in found.items() if value}

    def _has_any(self) -> bool:
        return bool(self._offsets or self._topics or self._states or self._log)

"""What may pass by itself is tried again, for `errors.retry.timeout`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ottla.connect.api import RetriableError
from ottla.connect.config import ConnectorConfig

logger = logging.getLogger(__name__)

FIRST_DELAY_MS = 300
T = TypeVar("T")


def retried(config: ConnectorConfig, stopping: threading.Event, do: Callable[[], T]) -> T:
    policy, delay_ms = config.policy, FIRST_DELAY_MS
    until = time.monotonic() + policy.retry_timeout_ms / 1000
    while True:
        try:
            return do()
        except RetriableError as error:
            is_over = policy.retry_timeout_ms >= 0 and time.monotonic() >= until
            if is_over or stopping.is_set():
                raise
            logger.warning("connector %s tries again: %s", config.name, error)
        stopping.wait(min(delay_ms, policy.retry_delay_max_ms) / 1000)
        delay_ms *= 2

"""Retries of operations that fail with RetriableError, and the delay before a task restarts.

An operation is retried for `errors.retry.timeout`, and the task's status shows the error meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ottla.connect.api import RetriableError
from ottla.connect.task_context import TaskContext

logger = logging.getLogger(__name__)

FIRST_DELAY_MS = 300
T = TypeVar("T")


def retried(context: TaskContext, stopping: threading.Event, do: Callable[[], T]) -> T:
    policy, delay_ms = context.config.policy, FIRST_DELAY_MS
    until = time.monotonic() + policy.retry_timeout_ms / 1000
    while True:
        try:
            done = do()
            if delay_ms > FIRST_DELAY_MS:
                context.on_retry(None)
            return done
        except RetriableError as error:
            is_over = policy.retry_timeout_ms >= 0 and time.monotonic() >= until
            if is_over or stopping.is_set():
                raise
            logger.warning("connector %s: retrying after an error: %s", context.config.name, error)
            context.on_retry(f"Retrying after an error: {error}")
        stopping.wait(min(delay_ms, policy.retry_delay_max_ms) / 1000)
        delay_ms *= 2


def restart_delay_ms(failures: int, first_ms: int, longest_ms: int) -> int:
    """Return the delay after a number of consecutive failures; it doubles up to a maximum."""
    return min(first_ms << min(max(failures - 1, 0), 30), longest_ms)

"""Levels of Python's loggers, with Kafka's level names.

Setting a level affects a logger and all its descendants: those with a level of their own are set
too, and the others inherit it. Loggers and the times of their changes are global to the process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

ROOT = "root"
_LEVELS = {
    "TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50, "OFF": 100,
}  # fmt: skip
LEVELS = tuple(_LEVELS)

_lock = threading.Lock()
_modified_ms: dict[str, int] = {}
Listener = Callable[[str, str], None]
_listeners: list[Listener] = []


def is_known(name: str) -> bool:
    return name == ROOT or name in logging.Logger.manager.loggerDict


def levels() -> dict[str, dict[str, Any]]:
    """Return the levels of the root logger and of loggers with a level of their own."""
    with_own = [name for name in _names() if logging.getLogger(name).level != logging.NOTSET]
    return {name: level_of(name) for name in (ROOT, *with_own)}


def level_of(name: str) -> dict[str, Any]:
    """Return the effective level and the time it was set, in the format of the REST API."""
    level = _logger(name).getEffectiveLevel()
    word = next((each for each in LEVELS if _LEVELS[each] >= level), "OFF")
    return {"level": word, "last_modified": _modified_ms.get(name)}


def set_level(name: str, level: str) -> list[str]:
    """Set the level of a logger, one of LEVELS, and return the names of the affected loggers."""
    number = _LEVELS[level]
    with _lock:
        below = [each for each in _names() if name == ROOT or each.startswith(f"{name}.")]
        _set(name, number)
        for each in below:
            if logging.getLogger(each).level != logging.NOTSET:
                _set(each, number)
        listeners = list(_listeners)
    for listener in listeners:
        listener(name, level)
    return sorted({name, *below})


def add_listener(listener: Listener) -> None:
    """Call the function with the arguments of each `set_level`, after it took effect."""
    with _lock:
        _listeners.append(listener)


def remove_listener(listener: Listener) -> None:
    with _lock:
        if listener in _listeners:
            _listeners.remove(listener)


def _set(name: str, number: int) -> None:
    if _logger(name).level != number:
        _logger(name).setLevel(number)
        _modified_ms[name] = int(time.time() * 1000)


def _names() -> list[str]:
    return sorted(logging.Logger.manager.loggerDict)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)

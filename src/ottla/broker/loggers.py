"""The broker's loggers as a config resource (KIP-412): each config is a logger and its level.

Levels have Kafka's names: Python's WARNING is WARN and CRITICAL is FATAL. A changed level lasts
until the process ends. Loggers of other libraries are not listed, but the audit log of
the authorizer is."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.base.config.resource import AlterOp
from ottla.base.errors import ErrorCode, KafkaError

ROOT = "root"
OURS = "ottla"
AUDIT = "kafka.authorizer.logger"
TRACE = 5
LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """Return the effective level of each logger by name."""
    names = [name for name in list(logging.root.manager.loggerDict) if _is_ours(name)]
    return {name: _level_name(_logger(name)) for name in (ROOT, *sorted(names))}


def alter_levels(
    alterations: Sequence[tuple[str, int, str | None]], *, validate_only: bool
) -> None:
    """Set or reset levels. Either all changes are applied or, with KafkaError, none."""
    known = logger_levels()
    for name, op, value in alterations:
        _check(name, op, value, known)
    if validate_only:
        return
    for name, op, value in alterations:
        level = logging.NOTSET if op == AlterOp.DELETE else LEVELS[(value or "").upper()]
        _logger(name).setLevel(level)


def _check(name: str, op: int, value: str | None, known: dict[str, str]) -> None:
    if op not in (AlterOp.SET, AlterOp.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"The level of a logger can be set or deleted, not {op}."
        )
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist.")
    if op == AlterOp.DELETE:
        if name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The root logger must have a level.")
    elif (value or "").upper() not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{value} is not a level of logger {name}; the levels are {', '.join(LEVELS)}.",
        )


def _is_ours(name: str) -> bool:
    return name in (OURS, AUDIT) or name.startswith(OURS + ".")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, known in LEVELS.items() if level <= known), "FATAL")

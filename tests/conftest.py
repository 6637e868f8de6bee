"""What all tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

from ottla.wire.codec import set_strict

# A response with a field that no version of its API has is a mistake that production forgives.
set_strict(True)

# Machines that run tests are shared, and slow at times: a limit per example would fail at random.
settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """Brokers inside a test let clients change the levels of their loggers, as Kafka does, and
    import-linter switches off all loggers there are; the next test must not find them so."""
    before = {logger.name: logger.level for logger in _our_loggers()}
    yield
    for logger in _our_loggers():
        logger.setLevel(before.get(logger.name, logging.NOTSET))
        logger.disabled = False


def _our_loggers() -> list[logging.Logger]:
    names = logging.root.manager.loggerDict
    return [logging.getLogger(name) for name in names if name.partition(".")[0] == "ottla"]

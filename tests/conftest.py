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
def levels_of_loggers_as_before() -> Iterator[None]:
    """Brokers inside a test let clients change the levels of their loggers, as Kafka does; the
    next test must not find them changed."""
    before = {name: logging.getLogger(name).level for name in _our_loggers()}
    yield
    for name in _our_loggers():
        logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


def _our_loggers() -> list[str]:
    known = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "ottla"]
    return ["", *known]

"""Settings and hooks shared by all tests."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings

from ottla.broker.loggers import AUDIT
from ottla.wire.codec import set_strict

# Fail on a response field that no version of its API has; outside tests it is ignored.
set_strict(True)

# Test machines are shared and sometimes slow: a deadline per example would fail at random.
settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")


# No test leaves a process behind that makes a cache of Java's classes.
os.environ.setdefault("OTTLA_JAVA_CACHE", "off")

# The profile of the person who runs the tests does not apply to them.
os.environ["OTTLA_PROFILE"] = ""

# A shell ignores SIGINT for background jobs, and the programs that the tests start would inherit
# that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exempt the collected tests and their modules from garbage collection.

    There are thousands of them, and every full collection would visit them all."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report a failure when it happens: an interrupted run prints no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.when} of {report.nodeid} failed after {report.duration:.1f} s")
        print("\n".join(report.longreprtext.splitlines()[-40:]), flush=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Dump the stacks and exit if a test hangs for a minute longer than its timeout.

    pytest-timeout relies on a signal, which Python does not handle during a C call that never
    returns (librdkafka has some)."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else _default_timeout(item.config))
    if not seconds:
        return (yield)
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(seconds + 60, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _default_timeout(config: pytest.Config) -> str:
    return config.getoption("timeout") or config.getini("timeout") or "0"


@pytest.fixture(scope="module", autouse=True)
def collect_garbage() -> Iterator[None]:
    """Collect the garbage of a test file before the next one runs.

    pytest reports exceptions in finalizers with a traceback, for which Python 3.11 parses source.
    If it is parsing other source at that moment, it fails with a SystemError ("AST constructor
    recursion depth mismatch")."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """Restore the levels of a broker's loggers after each test.

    Brokers inside a test let clients change the log levels, as Kafka does, and import-linter
    disables all existing loggers."""
    before = {logger.name: logger.level for logger in _loggers_of_brokers()}
    yield
    for logger in _loggers_of_brokers():
        logger.setLevel(before.get(logger.name, logging.NOTSET))
        logger.disabled = False


def _loggers_of_brokers() -> list[logging.Logger]:
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "ottla"]
    return [logging.root, *map(logging.getLogger, [*names, AUDIT])]

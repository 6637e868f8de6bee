"""Fixtures to run the command-line tools against the shared broker."""

from __future__ import annotations

import pytest
from tests.integration.cli.running import Fail, Ran, Run, running_on

from ottla.testing.broker import BrokerProcess


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    """Return a function that runs a tool on the shared broker: `run("topics", "--list")`."""
    return running_on(broker.bootstrap)


@pytest.fixture
def succeed(run: Run) -> Run:
    def succeed(*words: str, stdin: str | None = None) -> Ran:
        ran = run(*words, stdin=stdin)
        assert ran.code == 0, ran
        return ran

    return succeed


@pytest.fixture
def fail(run: Run) -> Fail:
    """Return a function that runs a failing command and returns its error output.

    The command must end with exit code 1 and without a traceback."""

    def fail(*words: str, stdin: str | None = None) -> str:
        ran = run(*words, stdin=stdin)
        assert ran.code == 1, ran
        assert "Traceback" not in ran.err
        return ran.err

    return fail

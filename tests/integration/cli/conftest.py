"""Tools against the shared broker."""

from __future__ import annotations

import pytest
from tests.integration.cli.running import Fail, Ran, Run, running_on

from ottla.testing.broker import BrokerProcess


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    """`run("topics", "--list")` on the shared broker."""
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
    """Runs what must end with exit code 1 and nothing on the standard output; what it said."""

    def fail(*words: str, stdin: str | None = None) -> str:
        ran = run(*words, stdin=stdin)
        assert ran.code == 1, ran
        assert "Traceback" not in ran.err
        return ran.err

    return fail

from __future__ import annotations

import logging

import pytest

from ottla.broker.log_limit import MAX_SUBJECTS, LogLimiter


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(clock: Clock, caplog: pytest.LogCaptureFixture) -> LogLimiter:
    caplog.set_level(logging.INFO)
    return LogLimiter(logging.getLogger("limited"), clock.monotonic, burst=2, interval_s=1.0)


def test_a_burst_passes_and_later_lines_at_the_given_rate(
    limiter: LogLimiter, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        limiter.log(logging.INFO, "again")
    clock.now = 1.0
    limiter.log(logging.INFO, "again")
    assert caplog.messages == ["again", "again", "again (3 similar messages were suppressed)"]


def test_a_subject_does_not_hide_another(
    limiter: LogLimiter, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        limiter.log(logging.INFO, "noisy", about="noisy")
    limiter.log(logging.INFO, "quiet", about="quiet")
    limiter.log(logging.INFO, "no subject")
    assert caplog.messages == ["noisy", "noisy", "quiet", "no subject"]


def test_many_busy_subjects_share_one_limit(
    limiter: LogLimiter, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_SUBJECTS):
        limiter.log(logging.INFO, "first", about=number)
    caplog.clear()
    for number in range(MAX_SUBJECTS, 3 * MAX_SUBJECTS):
        limiter.log(logging.INFO, "further", about=number)
    assert caplog.messages == ["further", "further"]


def test_a_subject_that_became_quiet_makes_room(
    limiter: LogLimiter, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_SUBJECTS):
        limiter.log(logging.INFO, "first", about=number)
    clock.now = 2.0
    caplog.clear()
    for _ in range(3):
        limiter.log(logging.INFO, "new", about="new")
    limiter.log(logging.INFO, "no subject")
    assert caplog.messages == ["new", "new", "no subject"]

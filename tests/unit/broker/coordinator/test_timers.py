"""Tests of the timer heap, on a clock that the test advances."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.timers import SPARE_PLACES, TIMERS_PER_WAKEUP, Timers


class Handle:
    def __init__(self, loop: Loop, time: float, action: Callable[[], None]) -> None:
        self.loop, self.time, self.action = loop, time, action

    def cancel(self) -> None:
        self.loop.handles.remove(self)


class Loop:
    """Manual clock and the event loop that runs on it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Handle] = []

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return int(self.now * 1000)

    def call_later(self, delay_s: float, action: Callable[[], None]) -> Handle:
        handle = Handle(self, self.now + delay_s, action)
        self.handles.append(handle)
        return handle

    def pass_s(self, duration_s: float) -> None:
        end = self.now + duration_s
        while due := [each for each in self.handles if each.time <= end]:
            handle = min(due, key=lambda each: each.time)
            self.now = max(self.now, handle.time)
            handle.action()
        self.now = end


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def timers(loop: Loop) -> Timers:
    return Timers(loop, loop.call_later)


def test_a_timer_runs_out_once_at_its_time(loop: Loop, timers: Timers) -> None:
    fired: list[float] = []
    timers.start("a", 5, lambda: fired.append(loop.now))
    loop.pass_s(4.9)
    assert not fired
    loop.pass_s(10)
    assert fired == [105.0]
    assert not timers
    assert not loop.handles


def test_a_timer_that_starts_anew_runs_out_later(loop: Loop, timers: Timers) -> None:
    fired: list[float] = []
    for _ in range(10):
        timers.start("a", 5, lambda: fired.append(loop.now))
        loop.pass_s(3)
    assert not fired
    loop.pass_s(3)
    assert fired == [132.0]


def test_a_timer_may_start_anew_with_a_shorter_delay(loop: Loop, timers: Timers) -> None:
    fired: list[str] = []
    timers.start("a", 50, lambda: fired.append("long"))
    timers.start("a", 5, lambda: fired.append("short"))
    loop.pass_s(100)
    assert fired == ["short"]


def test_a_cancelled_timer_does_not_run_out(loop: Loop, timers: Timers) -> None:
    fired: list[str] = []
    timers.start("a", 5, lambda: fired.append("first"))
    timers.cancel("a")
    timers.cancel("never started")
    timers.start("a", 7, lambda: fired.append("second"))
    loop.pass_s(6)
    assert not fired
    loop.pass_s(1)
    assert fired == ["second"]


def test_heartbeats_leave_one_wake_up_and_no_rubbish(loop: Loop, timers: Timers) -> None:
    for _ in range(1_000):
        for member in range(20):
            timers.start(member, 10, lambda: None)
        loop.pass_s(0.01)
    assert len(timers) == 20
    assert len(timers._heap) == 20
    assert len(loop.handles) == 1


def test_cancelled_timers_are_swept(loop: Loop, timers: Timers) -> None:
    for number in range(10_000):
        timers.start(number, 300, lambda: None)
        timers.cancel(number)
    assert len(timers._heap) <= SPARE_PLACES + 1


def test_what_fails_does_not_keep_others_from_running(loop: Loop, timers: Timers) -> None:
    def fail() -> None:
        raise RuntimeError

    fired: list[str] = []
    timers.start("a", 1, fail)
    timers.start("b", 1, lambda: fired.append("b"))
    loop.pass_s(1)
    assert fired == ["b"]


def test_many_that_run_out_at_once_leave_room_for_others(loop: Loop, timers: Timers) -> None:
    fired: list[int] = []
    for number in range(2 * TIMERS_PER_WAKEUP + 1):
        timers.start(number, 1, lambda number=number: fired.append(number))  # type: ignore[misc]
    loop.now += 1
    (handle,) = loop.handles
    handle.action()
    assert fired == list(range(TIMERS_PER_WAKEUP))
    loop.pass_s(0)
    assert fired == list(range(2 * TIMERS_PER_WAKEUP + 1))


def test_actions_may_start_and_cancel_timers(loop: Loop, timers: Timers) -> None:
    fired: list[str] = []

    def again() -> None:
        fired.append("again")
        timers.cancel("b")
        timers.start("a", 1, lambda: fired.append("last"))

    timers.start("a", 1, again)
    timers.start("b", 1, lambda: fired.append("b"))
    loop.pass_s(5)
    assert fired == ["again", "last"]


def test_all_are_cancelled(loop: Loop, timers: Timers) -> None:
    timers.start("a", 1, lambda: None)
    timers.cancel_all()
    assert not timers
    assert not loop.handles


actions = st.tuples(st.sampled_from("scp"), st.integers(0, 3), st.integers(0, 9))


@given(st.lists(actions, max_size=60))
def test_any_order_of_starts_and_cancels(steps: list[tuple[str, int, int]]) -> None:
    loop = Loop()
    timers = Timers(loop, loop.call_later)
    expected: dict[int, float] = {}
    fired: list[tuple[int, float]] = []
    for action, key, number in steps:
        if action == "s":
            expected[key] = loop.now + number
            timers.start(key, number, lambda key=key: fired.append((key, loop.now)))  # type: ignore[misc]
        elif action == "c":
            expected.pop(key, None)
            timers.cancel(key)
        else:
            loop.pass_s(number)
            due = {key: time for key, time in expected.items() if time <= loop.now}
            assert dict(fired) == due
            assert len(fired) == len(due)
            fired.clear()
            for key in due:
                del expected[key]

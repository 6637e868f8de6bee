"""Connections that are held until a time of their own."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.held_connections import MIN_STALE, HeldConnections


class Clock:
    """A clock with at most one timer, like the one of the event loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[OneTimer] = []

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay_s: float, call: Callable[[], None]) -> OneTimer:
        timer = OneTimer(self, self.now + delay_s, call)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [each for each in self.timers if each.at <= self.now]:
            self.timers.remove(timer)
            timer.call()


class OneTimer:
    def __init__(self, clock: Clock, at: float, call: Callable[[], None]) -> None:
        self.clock, self.at, self.call = clock, at, call

    def cancel(self) -> None:
        self.clock.timers.remove(self)


def held() -> tuple[Clock, HeldConnections[str], list[str]]:
    clock, released = Clock(), list[str]()
    return clock, HeldConnections(clock.monotonic, clock.call_later, released.append), released


def test_connections_are_released_in_the_order_of_their_times() -> None:
    clock, connections, released = held()
    for name, until in (("c", 103.0), ("a", 101.0), ("b", 102.0), ("a2", 101.0)):
        connections.hold(name, until)
        assert len(clock.timers) == 1
    clock.advance(1.0)
    assert released == ["a", "a2"]
    clock.advance(5.0)
    assert released == ["a", "a2", "b", "c"]
    assert (len(connections), clock.timers) == (0, [])


def test_a_connection_is_held_until_the_latest_of_its_times() -> None:
    clock, connections, released = held()
    connections.hold("a", 101.0)
    connections.hold("a", 103.0)
    connections.hold("a", 102.0)
    clock.advance(2.5)
    assert released == []
    clock.advance(0.5)
    assert released == ["a"]


def test_a_closed_connection_is_not_released() -> None:
    clock, connections, released = held()
    connections.hold("a", 101.0)
    connections.hold("b", 101.0)
    connections.forget("a")
    connections.forget("never held")
    clock.advance(1.0)
    assert released == ["b"]


def test_closed_connections_leave_nothing_for_long() -> None:
    _, connections, _ = held()
    for number in range(10_000):
        connections.hold(str(number), 1e9 + number)
        connections.forget(str(number))
    assert len(connections) == 0
    assert len(connections._heap) <= MIN_STALE + 2


def test_all_connections_can_be_released_at_once() -> None:
    clock, connections, released = held()
    connections.hold("a", 101.0)
    connections.hold("b", 900.0)
    connections.release_all()
    assert released == ["a", "b"]
    assert clock.timers == []


def test_a_released_connection_can_be_held_again_at_once() -> None:
    clock = Clock()
    held_again: list[str] = []

    def release(name: str) -> None:
        held_again.append(name)
        if len(held_again) < 3:
            connections.hold(name, clock.now + 1)

    connections = HeldConnections[str](clock.monotonic, clock.call_later, release)
    connections.hold("a", 101.0)
    for _ in range(3):
        clock.advance(1.0)
    assert held_again == ["a"] * 3
    assert clock.timers == []

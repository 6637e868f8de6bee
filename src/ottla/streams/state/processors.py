"""Processors of users, with stores and timers.

    class Reminder(st.Processor):
        waiting = st.ValueStore()

        def process(self, record):
            self.waiting.set(record.value)
            self.schedule(record.timestamp_ms + 60_000)

        def on_timer(self, timer):
            self.forward({"late": self.waiting.get()})

    orders.process(Reminder, schema="late string")

For timers on the wall clock, use `schedule_wall_clock` and `on_wall_clock`.

Stores and timers belong to the key of the current record. (In Kafka Streams they belong to a
partition; here, a map store holds a separate map for each key.) A timer expires once stream time,
which advances between micro-batches, has reached it. With `ttl`, an entry expires once stream time
has passed the time of the record or timer that wrote it by that much.

Wall-clock timers are checked at intervals, after the records of a micro-batch. The wall-clock time
is part of the query's offsets, so a batch that is repeated after a crash has the same result. What
these timers write to stores is written at stream time.

    state   key -> {TIMERS: [ms, …] in order, WALL_CLOCK: the same, name of a store: its data}

Data of stores: a value is [value, written at], a list [[item, written at], …], a map
{name: [value, written at]}.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ottla.streams.durations import Duration, duration_ms
from ottla.streams.state.program import Batch, Output, State

TIMERS = ("timers",)
WALL_CLOCK = ("wall clock",)
MAX_TIMERS_PER_KEY = 100_000
"""Maximum number of timers that expire for one key in a batch. More of them means that timers
reschedule each other forever."""


class Record(NamedTuple):
    """A record that `process` receives."""

    key: Any
    """Key of the record."""
    value: Any
    """Value of the record."""
    timestamp_ms: int
    """Event time of the record, in milliseconds since the epoch."""
    stream_time_ms: int
    """Stream time: the greatest timestamp seen before this micro-batch."""


class Timer(NamedTuple):
    """A timer that has expired, with the time that it was set to."""

    key: Any
    """Key that the timer belongs to."""
    at_ms: int
    """Time that the timer was set to, in milliseconds since the epoch."""
    stream_time_ms: int
    """Stream time when the timer expired."""


class ProcessorStore(ABC):
    """Store, declared in a processor's class. In its methods it is the data of the current key."""

    def __init__(self, ttl: Duration | None = None) -> None:
        self.ttl_ms = None if ttl is None else duration_ms(ttl, name="ttl", min_ms=1)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, processor: Processor | None, owner: type | None = None) -> Any:
        return self if processor is None else self._view(processor._context)

    @abstractmethod
    def _view(self, context: Context) -> Any:
        """Return the data of the current key."""

    @abstractmethod
    def written_ms(self, data: Any) -> Iterator[int]:
        """Return the times at which the entries were written."""

    @abstractmethod
    def unexpired(self, data: Any, expired_ms: int) -> Any:
        """Return the data without expired entries, or None if nothing is left."""


class Context:
    """Context of the record or timer that is being processed."""

    __slots__ = (
        "data", "key", "now_ms", "outputs", "stream_time_ms", "wall_clock_ms", "written_ms",
    )  # fmt: skip

    def __init__(self, stream_time_ms: int, wall_clock_ms: int = 0) -> None:
        self.stream_time_ms = stream_time_ms
        self.wall_clock_ms = wall_clock_ms
        self.outputs: list[Output] = []
        self.key: Any = None
        self.now_ms = 0
        """Timestamp of records that are forwarded."""
        self.written_ms = 0
        """Time at which entries are written to stores."""
        self.data: dict[Any, Any] = {}

    def switch_to(self, key: Any, data: dict[Any, Any], now_ms: int, written_ms: int) -> None:
        self.key, self.data, self.now_ms, self.written_ms = key, data, now_ms, written_ms


class Processor:
    """Base class for your own stateful operators.

    Declare stores as class attributes and override `process`; override `on_timer` or
    `on_wall_clock` to use timers. State and timers belong to the key of the current record.
    """

    _context: Context

    def process(self, record: Record) -> None:
        """Process a record. Every processor must override it.

        Args:
            record: The record, with its key and timestamp.
        """
        raise TypeError(f"{type(self).__name__} does not define process(self, record)")

    def on_timer(self, timer: Timer) -> None:
        """Handle a timer of `schedule`. Override it to use timers.

        Args:
            timer: The timer that has expired.
        """
        raise TypeError(
            f"{type(self).__name__} calls schedule(), but does not define on_timer(self, timer)"
        )

    def on_wall_clock(self, timer: Timer) -> None:
        """Handle a timer of `schedule_wall_clock`. Override it to use such timers.

        Args:
            timer: The timer that has expired.
        """
        raise AssertionError("a processor with wall-clock timers overrides on_wall_clock")

    def forward(self, value: Any, *, key: Any = None, timestamp_ms: int | None = None) -> None:
        """Emit a record.

        Args:
            value: Value of the record.
            key: Key of the record; the current key by default.
            timestamp_ms: Event time of the record; that of the current record by default.
        """
        context = self._context
        context.outputs.append(
            Output(
                context.key if key is None else key,
                value,
                context.now_ms if timestamp_ms is None else timestamp_ms,
            )
        )

    def schedule(self, at_ms: int) -> None:
        """Call `on_timer` for the current key when stream time reaches a time.

        Scheduling the same time again has no effect.

        Args:
            at_ms: Stream time, in milliseconds since the epoch.
        """
        timers = self._context.data.setdefault(TIMERS, [])
        if at_ms not in timers:
            insort(timers, int(at_ms))

    def cancel(self, at_ms: int) -> None:
        """Cancel a timer of the current key, if it is set.

        Args:
            at_ms: Time that was given to `schedule`.
        """
        timers = self._context.data.get(TIMERS, [])
        if at_ms in timers:
            timers.remove(at_ms)

    @property
    def wall_clock_ms(self) -> int:
        """Wall-clock time of this micro-batch, in milliseconds since the epoch."""
        if not has_wall_clock(type(self)):
            raise TypeError(
                f"{type(self).__name__} uses the wall clock, but does not define "
                "on_wall_clock(self, timer)"
            )
        return self._context.wall_clock_ms

    def schedule_wall_clock(self, after: Duration) -> int:
        """Call `on_wall_clock` for the current key after a duration.

        Args:
            after: Duration on the wall clock.

        Returns:
            The time of the timer, for `cancel_wall_clock`.
        """
        at_ms = self.wall_clock_ms + duration_ms(after, name="after", min_ms=1)
        timers = self._context.data.setdefault(WALL_CLOCK, [])
        if at_ms not in timers:
            insort(timers, at_ms)
        return at_ms

    def cancel_wall_clock(self, at_ms: int) -> None:
        """Cancel a wall-clock timer of the current key, if it is set.

        Args:
            at_ms: Time that `schedule_wall_clock` returned.
        """
        timers = self._context.data.get(WALL_CLOCK, [])
        if at_ms in timers:
            timers.remove(at_ms)


def has_wall_clock(processor: type[Processor]) -> bool:
    return processor.on_wall_clock is not Processor.on_wall_clock


@dataclass(frozen=True)
class Processing:
    """Program that runs a processor over a bucket. `make` creates one for each batch."""

    factory: Callable[[], Processor]
    needs_time: ClassVar[bool] = True

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        processor = self.factory()
        context = processor._context = Context(stream_time_ms, batch.wall_clock_ms)
        stores = stores_of(type(processor))
        self._remove_expired(state, stores, stream_time_ms)
        self._run_timers(processor, context, state)
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            context.switch_to(key, state.setdefault(key, {}), at_ms, at_ms)
            processor.process(Record(key, value, at_ms, stream_time_ms))
        self._run_timers(processor, context, state)
        if batch.is_tick:
            self._run_wall_clock_timers(processor, context, state)
        for key in [each for each, data in state.items() if not any(data.values())]:
            del state[key]
        return context.outputs

    def next_time_ms(self, state: State) -> int | None:
        stores = stores_of(type(self.factory()))
        times = []
        for data in state.values():
            times += data.get(TIMERS, [])[:1]
            for name, store in stores.items():
                if store.ttl_ms is not None and data.get(name):
                    times.append(min(store.written_ms(data[name])) + store.ttl_ms)
        return min(times, default=None)

    def _run_timers(self, processor: Processor, context: Context, state: State) -> None:
        now_ms = context.stream_time_ms
        for key in _due(state, TIMERS, now_ms):
            timers = state[key][TIMERS]
            for _ in range(MAX_TIMERS_PER_KEY):
                if not timers or timers[0] > now_ms:
                    break
                at_ms = timers.pop(0)
                context.switch_to(key, state[key], at_ms, at_ms)
                processor.on_timer(Timer(key, at_ms, now_ms))
            else:
                raise RuntimeError(
                    f"{type(processor).__name__}: timers of key {key!r} have scheduled "
                    f"another one that is already due {MAX_TIMERS_PER_KEY} times"
                )

    def _run_wall_clock_timers(self, processor: Processor, context: Context, state: State) -> None:
        stream_time_ms, now_ms = context.stream_time_ms, context.wall_clock_ms
        for key in _due(state, WALL_CLOCK, now_ms):
            timers = state[key][WALL_CLOCK]
            while timers and timers[0] <= now_ms:  # new timers are in the future
                at_ms = timers.pop(0)
                context.switch_to(key, state[key], at_ms, stream_time_ms)
                processor.on_wall_clock(Timer(key, at_ms, stream_time_ms))

    def next_tick_ms(self, state: State) -> int | None:
        times = (data[WALL_CLOCK][0] for data in state.values() if data.get(WALL_CLOCK))
        return min(times, default=None)

    def _remove_expired(
        self, state: State, stores: dict[str, ProcessorStore], stream_time_ms: int
    ) -> None:
        expiring = {name: each for name, each in stores.items() if each.ttl_ms is not None}
        for data in state.values() if expiring else ():
            for name, store in expiring.items():
                if name in data:
                    kept = store.unexpired(data[name], stream_time_ms - (store.ttl_ms or 0))
                    data.pop(name) if kept is None else data.update({name: kept})


def _due(state: State, timers: Any, now_ms: int) -> list[Any]:
    """Return the keys with a timer that has expired, the earliest first."""
    first = [(data[timers][0], key) for key, data in state.items() if data.get(timers)]
    first = [each for each in first if each[0] <= now_ms]
    return [key for _, key in sorted(first, key=lambda each: each[0])]


def stores_of(processor: type) -> dict[str, ProcessorStore]:
    found: dict[str, ProcessorStore] = {}
    for base in reversed(processor.__mro__):
        found |= {
            name: each for name, each in vars(base).items() if isinstance(each, ProcessorStore)
        }
    return found

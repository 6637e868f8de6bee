"""Processors of users' own, with stores and timers.

    class Reminder(st.Processor):
        waiting = st.ValueStore()

        def process(self, record):
            self.waiting.set(record.value)
            self.schedule(record.timestamp_ms + 60_000)

        def on_timer(self, timer):
            self.forward({"late": self.waiting.get()})

    orders.process(Reminder, schema="late string")

Stores and timers belong to the key of the record that is being processed (Kafka Streams' belong to
a partition; a map store gives each key a map of its own). A timer rings once stream time, which
moves between micro-batches, has reached it. With `ttl` what was written is gone once stream time
is that much past the record, or timer, by which it was written; there are no timers by the clock on
the wall, since a batch that is run again after a crash must give the same.

    state   key -> {TIMERS: [ms, …] in order, store's name: its data}

Data of stores: a value [value, written at]; a list [[item, written at], …]; a map
{name: [value, written at]}."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ottla.streams.durations import Duration, duration_ms
from ottla.streams.state.program import Batch, Output, State

TIMERS = ("timers",)
MAX_RINGS = 100_000
"""Of one key's timers in a batch: beyond it they set each other for ever."""


class Record(NamedTuple):
    """What `process` is called with."""

    key: Any
    value: Any
    timestamp_ms: int
    stream_time_ms: int


class Timer(NamedTuple):
    """What `on_timer` is called with: the time that it was set to."""

    key: Any
    at_ms: int
    stream_time_ms: int


class Store(ABC):
    """Declared in a processor's class; in its methods, the data of the record's key."""

    def __init__(self, ttl: Duration | None = None) -> None:
        self.ttl_ms = None if ttl is None else duration_ms(ttl, name="ttl", least_ms=1)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, processor: Processor | None, owner: type | None = None) -> Any:
        return self if processor is None else self._view(processor._context)

    @abstractmethod
    def _view(self, context: Context) -> Any:
        """The data of its key."""

    @abstractmethod
    def written_ms(self, data: Any) -> Iterator[int]:
        """When what there is was written."""

    @abstractmethod
    def kept(self, data: Any, expired_ms: int) -> Any:
        """Without what is gone; None if nothing is left."""


class Context:
    """Of the record or timer that is being processed."""

    __slots__ = ("data", "key", "now_ms", "outputs", "stream_time_ms")

    def __init__(self, stream_time_ms: int) -> None:
        self.stream_time_ms = stream_time_ms
        self.outputs: list[Output] = []
        self.key: Any = None
        self.now_ms = 0
        self.data: dict[Any, Any] = {}


class Processor:
    """Subclass it: declare stores, and write `process`; `on_timer` if it schedules."""

    _context: Context

    def process(self, record: Record) -> None:
        raise TypeError(f"{type(self).__name__} has no process(self, record)")

    def on_timer(self, timer: Timer) -> None:
        raise TypeError(f"{type(self).__name__} schedules, but has no on_timer(self, timer)")

    def forward(self, value: Any, *, key: Any = None, timestamp_ms: int | None = None) -> None:
        """A record onward, with the key and the time of what is being processed unless given."""
        context = self._context
        context.outputs.append(
            Output(
                context.key if key is None else key,
                value,
                context.now_ms if timestamp_ms is None else timestamp_ms,
            )
        )

    def schedule(self, at_ms: int) -> None:
        """Call `on_timer` for this key once stream time is there. The same time twice is once."""
        timers = self._context.data.setdefault(TIMERS, [])
        if at_ms not in timers:
            insort(timers, int(at_ms))

    def cancel(self, at_ms: int) -> None:
        """A timer that was set; none is no error."""
        timers = self._context.data.get(TIMERS, [])
        if at_ms in timers:
            timers.remove(at_ms)


@dataclass(frozen=True)
class Processing:
    """Runs a processor over a bucket. `make` makes one, for each batch."""

    make: Callable[[], Processor]
    needs_time: ClassVar[bool] = True

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        processor = self.make()
        context = processor._context = Context(stream_time_ms)
        stores = stores_of(type(processor))
        self._sweep(state, stores, stream_time_ms)
        self._ring(processor, context, state)
        for key, value, at_ms in zip(batch.keys, batch.values, batch.times_ms, strict=True):
            context.key, context.now_ms = key, at_ms
            context.data = state.setdefault(key, {})
            processor.process(Record(key, value, at_ms, stream_time_ms))
        self._ring(processor, context, state)
        for key in [each for each, data in state.items() if not any(data.values())]:
            del state[key]
        return context.outputs

    def next_time_ms(self, state: State) -> int | None:
        stores = stores_of(type(self.make()))
        times = []
        for data in state.values():
            times += data.get(TIMERS, [])[:1]
            for name, store in stores.items():
                if store.ttl_ms is not None and data.get(name):
                    times.append(min(store.written_ms(data[name])) + store.ttl_ms)
        return min(times, default=None)

    def _ring(self, processor: Processor, context: Context, state: State) -> None:
        now_ms = context.stream_time_ms
        due = [(data[TIMERS][0], key) for key, data in state.items() if data.get(TIMERS)]
        for _, key in sorted((each for each in due if each[0] <= now_ms), key=lambda each: each[0]):
            context.key, context.data = key, state[key]
            timers = context.data[TIMERS]
            for _ in range(MAX_RINGS):
                if not timers or timers[0] > now_ms:
                    break
                context.now_ms = timers.pop(0)
                processor.on_timer(Timer(key, context.now_ms, now_ms))
            else:
                raise RuntimeError(
                    f"{type(processor).__name__}: a timer of key {key!r} sets another that is due "
                    f"already, {MAX_RINGS} times"
                )

    def _sweep(self, state: State, stores: dict[str, Store], stream_time_ms: int) -> None:
        expiring = {name: each for name, each in stores.items() if each.ttl_ms is not None}
        for data in state.values() if expiring else ():
            for name, store in expiring.items():
                if name in data:
                    kept = store.kept(data[name], stream_time_ms - (store.ttl_ms or 0))
                    data.pop(name) if kept is None else data.update({name: kept})


def stores_of(processor: type) -> dict[str, Store]:
    found: dict[str, Store] = {}
    for base in reversed(processor.__mro__):
        found |= {name: each for name, each in vars(base).items() if isinstance(each, Store)}
    return found

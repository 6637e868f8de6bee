"""Scheduler that runs many processes under one virtual clock, in an order that a seed decides.

Each simulated process has an event loop of its own (`ProcessLoop`), on which real asyncio code runs
unchanged: `asyncio.get_running_loop()` returns that loop. The `Scheduler` runs one callback at a
time, of a process that it draws:

    callbacks of one process    in the order that asyncio guarantees (ready callbacks first in,
                                first out; timers by time)
    callbacks of two processes  in an order drawn from the seed, if they are due at the same time
    work in threads             at once, without interruption, after a delay drawn from the seed

A process can be killed (none of its code runs any more, its connections break), paused (nothing
runs until it is resumed, then everything that was due), or have a wrong clock. Nothing here waits
in real time, and the same seed always produces the same run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from math import inf, nextafter
from typing import Any, TypeVar

from ottla.testing.simulation.clock import START_MS

T = TypeVar("T")


class Deadlock(AssertionError):
    """Deadlock: no process has anything to do, and the awaited result is missing."""


class Scheduler:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        """Seconds since the start of the simulation, for an outside observer."""
        self.steps = 0
        self.processes: list[Process] = []
        self.max_thread_delay_s = 0.004
        """Maximum delay of work in a thread."""
        self.after_step: list[Callable[[Process], None]] = []
        """Callbacks that check invariants after each step, called with the process that ran."""

    def process(self, name: str) -> Process:
        created = Process(self, name)
        self.processes.append(created)
        return created

    def run(self, coroutine: Coroutine[Any, Any, T], process: Process | None = None) -> T:
        """Run all processes until a coroutine is done.

        The coroutine runs in `process`, or in a new process if that is None.
        """
        owner = process if process is not None else self.process("test")
        task = owner.loop.create_task(coroutine)
        self.run_until(task.done)
        return task.result()

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.now + seconds
        while self._step(end):
            pass
        self.now = max(self.now, end)

    def run_until(self, condition: Callable[[], bool], max_steps: int = 10_000_000) -> None:
        for _ in range(max_steps):
            if condition():
                return
            if not self._step():
                raise Deadlock(f"at {self.now:.6f} s, after {self.steps} steps")
        raise AssertionError(f"not in {max_steps} steps")

    def _step(self, end: float = inf) -> bool:
        """Run one of the callbacks that are due next, or return False if none is due by `end`."""
        now, soonest = self.now, inf
        ready: list[Process] = []
        for process in self.processes:
            if process.is_paused:
                continue
            loop = process.loop
            due = loop.find_due() if loop.due is None else loop.due
            if due <= now:
                due = now
            if due < soonest:
                soonest, ready = due, [process]
            elif due == soonest:
                ready.append(process)
        if soonest == inf or soonest > end:
            return False
        self.now = soonest
        chosen = ready[0] if len(ready) == 1 else self.random.choice(ready)
        self.steps += 1
        chosen.loop.run_one()
        for check in self.after_step:
            check(chosen)
        return True


class Process:
    """Simulated operating system process. A restart replaces `loop`."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.loop = _new_loop(self)
        self.is_paused = False
        self._clock_rate = 1.0
        self.clock_offset_s = 0.0
        self.on_kill: list[Callable[[], None]] = []
        """Callbacks that break the connections of the process when it ends."""

    def kill(self) -> None:
        """Kill the process as with kill -9: no more of its code runs, not even `finally`."""
        self.loop.abandon()
        self.is_paused = False
        ended, self.on_kill = self.on_kill, []
        for callback in ended:
            callback()

    def restart(self) -> None:
        """Replace a killed process by a new, empty one."""
        assert self.loop.is_closed(), "it was killed"
        self.loop = _new_loop(self)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    @property
    def is_alive(self) -> bool:
        return not self.loop.is_closed()

    @property
    def clock_rate(self) -> float:
        return self._clock_rate

    @clock_rate.setter
    def clock_rate(self, rate: float) -> None:
        self._clock_rate = rate
        self.loop.due = None

    def monotonic(self) -> float:
        return self.scheduler.now * self._clock_rate

    def time_ms(self) -> int:
        return START_MS + int((self.scheduler.now * self._clock_rate + self.clock_offset_s) * 1000)

    def at(self, monotonic: float) -> float:
        """Return the first scheduler time at which this process's clock shows at least `monotonic`.

        If the clock showed less, even by a rounding error, a timer would fire again and again.
        """
        time = monotonic / self._clock_rate
        while time * self._clock_rate < monotonic:
            time = nextafter(time, inf)
        return time


class ProcessLoop(asyncio.AbstractEventLoop):
    def __init__(self, process: Process) -> None:
        self.process = process
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._sequence = 0
        self._closed = False
        self.due: float | None = None
        """Cached result of `find_due`, or None after a change.

        The scheduler asks every process after every step, and most have not changed.
        """
        self.network: Any = None
        """Simulated network for connections; set by `SimulatedNetwork.attach`."""
        self.failures: list[dict[str, Any]] = []
        """Contexts passed to asyncio's exception handler, for tests to inspect at the end."""
        self.abandoned: list[asyncio.Handle] = []

    # ------------------------------------------------------------------------- for the scheduler

    def find_due(self) -> float:
        """Return the scheduler time at which the next callback is due, or infinity."""
        self.due = self._next_due()
        return self.due

    def _next_due(self) -> float:
        if self._closed:
            return inf
        if self._ready:
            return 0.0
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        return self.process.at(timers[0][0]) if timers else inf

    def run_one(self) -> None:
        self.due = None
        now, timers = self.time() + 1e-9, self._timers
        while timers and timers[0][0] <= now:
            _, _, timer = heapq.heappop(timers)
            if not timer._cancelled:
                self._ready.append(timer)
        if not self._ready:
            return
        handle = self._ready.popleft()
        if handle._cancelled:
            return
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(before)

    def abandon(self) -> None:
        # Keep the handles alive: a coroutine that is garbage-collected would run its `finally`
        # blocks, which a killed process does not.
        self.abandoned += [*self._ready, *(timer for _, _, timer in self._timers)]
        self._ready.clear()
        self._timers.clear()
        self._closed = True
        self.due = inf

    # --------------------------------------------------------------------------------- for asyncio

    def time(self) -> float:
        process = self.process
        return process.scheduler.now * process._clock_rate

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
            self.due = 0.0
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._closed:
            self._sequence += 1
            heapq.heappush(self._timers, (when, self._sequence, timer))
            self.due = None
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Handle a notification of TimerHandle. Cancelled timers are dropped when they are due."""
        self.due = None

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:  # type: ignore[override, unused-ignore]
        """Create a task on this loop. `options` differ between versions of Python."""
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> Any:
        """Run the work without interruption, after a delay, unless the process is gone by then."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        scheduler = self.process.scheduler
        self.call_later(scheduler.random.uniform(0, scheduler.max_thread_delay_s), work)
        return future

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        return await self.network.create_server(self.process, protocol_factory, *args, **options)

    async def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        return await self.network.create_connection(
            self.process, protocol_factory, *args, **options
        )

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return [(2, 1, 6, "", (host, port))]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self.due = inf

    async def shutdown_asyncgens(self) -> None:
        return None


def _new_loop(process: Process) -> ProcessLoop:
    # Simulated code does not use what the class leaves out: subprocesses, signals, real sockets.
    return ProcessLoop(process)  # type: ignore[abstract]


class ProcessClock:
    """Clock port of a simulated process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def time_ms(self) -> int:
        return self._process.time_ms()

    def monotonic(self) -> float:
        return self._process.monotonic()

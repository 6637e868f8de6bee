"""A sweep over many simulated worlds until one fails: `make sim SEEDS=10000`.

The worlds run in parallel on every core. An event is a step of the scheduler: one callback of
one process, such as an arriving message, a timer, or the result of a thread. A world may lose a
partition together with every member of its ISR; nothing is checked after that, and such worlds
are counted."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple, NoReturn

from tests.sim.cluster.world import simulate

from ottla.wire.codec import set_strict

FAULTS = 12
"""Number of faults; a replay uses the same number by default."""
WORLD_LIMIT_S = 900
"""Time limit of a world, in real seconds. A world that takes longer is in an endless loop."""
REPORT_INTERVAL_S = 10.0


class Outcome(NamedTuple):
    seed: int
    events: int
    simulated_s: float
    was_lost: bool
    violation: str


class TookTooLong(KeyboardInterrupt):
    """Timeout of a world.

    It is a KeyboardInterrupt because event loops let no other exception out of a callback."""


# ----------------------------------------------------------------------------- running one world


def prepare() -> None:
    """Set up a worker process before its first world."""
    set_strict(True)
    # Broker logs under faults are only searched for tracebacks (`no_tracebacks`).
    ours = logging.getLogger("ottla")
    ours.setLevel(logging.WARNING)
    ours.propagate = False
    ours.addHandler(logging.NullHandler())
    logging.disable(logging.INFO)
    # Killed brokers never shut down cleanly, and Python warns about that when it collects them.
    sys.unraisablehook = lambda _: None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    signal.signal(signal.SIGALRM, _give_up)
    gc.collect()
    gc.freeze()


def _give_up(*_: object) -> NoReturn:
    raise TookTooLong


def outcome_of(seed: int, faults: int) -> Outcome:
    signal.alarm(WORLD_LIMIT_S)
    try:
        world = simulate(seed, faults=faults)
    except TookTooLong:
        return Outcome(seed, 0, 0.0, False, f"seed {seed}: not over in {WORLD_LIMIT_S} s")
    except AssertionError as error:
        return Outcome(seed, 0, 0.0, False, str(error))
    except Exception:
        return Outcome(seed, 0, 0.0, False, f"seed {seed}: {traceback.format_exc()}")
    finally:
        signal.alarm(0)
    scheduler = world.cluster.scheduler
    return Outcome(seed, scheduler.steps, scheduler.now, world.was_lost, "")


# ----------------------------------------------------------------------------- running all worlds


@dataclass(slots=True)
class Tally:
    worlds: int = 0
    events: int = 0
    fewest_events: int = 0
    simulated_s: float = 0.0
    lost: int = 0
    began: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        fewest = self.fewest_events if self.worlds else outcome.events
        self.fewest_events = min(fewest, outcome.events)
        self.worlds += 1
        self.events += outcome.events
        self.simulated_s += outcome.simulated_s
        self.lost += outcome.was_lost

    def line(self, wanted: int) -> str:
        minutes = max(time.monotonic() - self.began, 0.001) / 60
        return (
            f"{self.worlds:,} of {wanted:,} worlds in {minutes:.1f} min, {self.events:,} events "
            f"(at least {self.fewest_events:,} each), {self.simulated_s / 3600:.2f} h simulated: "
            f"{self.simulated_s / 3600 / minutes:.3f} h per minute; {self.lost} lost a partition"
        )


def outcomes(seeds: Sequence[int], faults: int, jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes in the order in which the worlds end.

    Start no further world once the caller stops iterating."""
    waiting = iter(seeds)
    with ProcessPoolExecutor(jobs, get_context("spawn"), prepare) as pool:
        running: set[Future[Outcome]] = set()
        try:
            while True:
                for seed in islice(waiting, jobs + 1 - len(running)):
                    running.add(pool.submit(outcome_of, seed, faults))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        finally:
            pool.shutdown(cancel_futures=True)


def sweep(seeds: Sequence[int], faults: int, jobs: int, limit_s: float | None) -> Outcome | None:
    """Run the worlds and return the first violation, or None."""
    tally, reported_at = Tally(), time.monotonic()
    for outcome in outcomes(seeds, faults, jobs):
        if outcome.violation:
            print(tally.line(len(seeds)), flush=True)
            return outcome
        tally.add(outcome)
        now = time.monotonic()
        if limit_s is not None and now - tally.began > limit_s:
            break
        if now - reported_at > REPORT_INTERVAL_S:
            reported_at = now
            print(tally.line(len(seeds)), flush=True)
    print(tally.line(len(seeds)), flush=True)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make sim", description="Simulated clusters under faults."
    )
    parser.add_argument("--seeds", type=int, required=True, help="Number of worlds.")
    parser.add_argument("--first", type=int, default=0, help="Seed of the first world.")
    parser.add_argument(
        "--faults", type=int, default=FAULTS, help="Number of faults in each world."
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="Number of worlds that run at the same time.",
    )
    parser.add_argument("--minutes", type=float, help="Minutes after which the sweep stops.")
    given = parser.parse_args(arguments)
    if given.seeds < 1 or given.jobs < 1 or given.faults < 0:
        parser.error("--seeds and --jobs must be at least 1, and --faults at least 0")
    seeds = range(given.first, given.first + given.seeds)
    limit_s = None if given.minutes is None else given.minutes * 60
    try:
        broken = sweep(seeds, given.faults, min(given.jobs, given.seeds), limit_s)
    except KeyboardInterrupt:
        return 130
    if broken is None:
        print("no violation")
        return 0
    faults = "" if given.faults == FAULTS else f" FAULTS={given.faults}"
    print(f"{broken.violation}\n\nagain: make sim SEED={broken.seed}{faults}")
    return 1


if __name__ == "__main__":
    sys.exit(main())

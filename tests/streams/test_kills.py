"""Exactly-once processing with state while driver, Python workers or broker are killed at random.

The test restarts the driver only after killing it: the application must survive the death of a
broker or a worker by itself. `OTTLA_KILL_ROUNDS` sets the number of kills, `OTTLA_KILL_SEED` the
random seed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.streams.tally import GRACE_MS, WINDOW_MS

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.testing.broker import BrokerProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]
ROUNDS = int(os.environ.get("OTTLA_KILL_ROUNDS", "30"))
SEED = int(os.environ.get("OTTLA_KILL_SEED", "0")) or random.randrange(1 << 30)
ROOT = Path(__file__).parents[2]
PROGRESS_TIMEOUT_S = 600.0
BASE_MS = 1_767_225_600_000
KEYS = 50
PER_ROUND = 600
KEEP = {"retention.ms": "-1"}
Entry = tuple[bytes, int, int]
"""Key, value of n, and timestamp in milliseconds."""


class Driver:
    """The application as a program in its own process session."""

    def __init__(self, broker: BrokerProcess, home: Path, *more: str) -> None:
        self._arguments = [broker.bootstrap, str(home / "state"), *more]
        self.log = home / "driver.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.streams.tally", *self._arguments],
                stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kill the Python program, the JVM and all workers at once."""
        assert self.process is not None
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def kill_worker(self, chance: random.Random) -> bool:
        workers = [pid for pid in self.pids() if is_worker(command(pid))]
        if not workers:
            return False
        try:
            os.kill(chance.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def pids(self) -> list[int]:
        assert self.process is not None
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdecimal():
                try:
                    if os.getsid(int(each.name)) == self.process.pid:
                        found.append(int(each.name))
                except ProcessLookupError:
                    continue
        return found

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]


def is_worker(words: bytes) -> bool:
    """Return whether a command line is one of Spark's Python processes.

    These run tasks, the daemon that forks them, or the planner of a source. The JVM is none of
    them, although its class path contains pyspark."""
    return b"python" in words.partition(b"\0")[0] and b"pyspark" in words


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


def entries_of(number: int) -> list[Entry]:
    """Return the entries of a round, which span a minute of event time."""
    return [
        (b"key-%d" % (each % KEYS), each + number, BASE_MS + number * WINDOW_MS + each * 10)
        for each in range(PER_ROUND)
    ]


def send(broker: BrokerProcess, topic: str, entries: list[Entry]) -> None:
    with Producer(broker.bootstrap, enable_idempotence=True) as producer:
        for key, n, at_ms in entries:
            producer.send(topic, b'{"n":%d}' % n, key=key, timestamp=at_ms)
        producer.flush()


def committed(broker: BrokerProcess, topic: str) -> list[tuple[bytes, int, int]]:
    """Return key, n and total of all committed records, in partition order."""
    found = []
    with Consumer(broker.bootstrap, isolation_level="read_committed") as consumer:
        tps = [TopicPartition(topic, each) for each in range(2)]
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(*tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for each in consumer.poll(timeout_s=1):
                value = json.loads(each.value)
                found.append((each.key, value["n"], value["total"]))
    return found


def end_of(broker: BrokerProcess, topic: str) -> int:
    with Consumer(broker.bootstrap) as consumer:
        return sum(
            consumer.end_offsets(*(TopicPartition(topic, each) for each in range(2))).values()
        )


def eventually(driver: Driver, what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while not is_so():
        assert driver.is_running, f"the application ended by itself\n{driver.said()}"
        assert time.monotonic() < deadline, f"{what}\n{driver.said()}"
        time.sleep(0.2)


def test_tables_are_exact_whatever_is_killed(broker: BrokerProcess, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    with Admin(broker.bootstrap) as admin:
        admin.create_topics(
            NewTopic("entries", 3, configs=KEEP),
            NewTopic("by-key", 2, configs=KEEP),
            NewTopic("by-minute", 2, configs=KEEP),
        )
    driver = Driver(broker, tmp_path)
    sent: list[Entry] = []
    done: Counter[str] = Counter()
    try:
        for number in range(ROUNDS):
            entries = entries_of(number)
            send(broker, "entries", entries)
            sent += entries
            if not driver.is_running:
                driver.start()
            before = end_of(broker, "by-key")
            eventually(driver, "no progress", lambda: end_of(broker, "by-key") > before)  # noqa: B023
            time.sleep(chance.uniform(0, 1.5))
            what = chance.choice(["driver", "worker", "worker", "broker", "broker"])
            if what == "driver":
                driver.kill()
            elif what == "broker":
                broker.restart(kill=True)
            elif not driver.kill_worker(chance):
                what = "no worker there"
            done[what] += 1
            print(f"round {number}: {what}", flush=True)
        if not driver.is_running:
            driver.start()
        expected = table(sent)
        eventually(
            driver, "not all is counted", lambda: last_of(committed(broker, "by-key")) == expected
        )
        # All records are processed: advance stream time, so that every window closes.
        end_ms = BASE_MS + ROUNDS * WINDOW_MS + 2 * GRACE_MS
        send(broker, "entries", [(b"end", 0, end_ms)])
        windows = by_minute(sent)
        eventually(
            driver, "not all windows are closed",
            lambda: sum(1 for _ in committed(broker, "by-minute")) >= len(windows),
        )  # fmt: skip
        assert driver.stop() == 0, driver.said()
    finally:
        if driver.is_running:
            driver.kill()
        print(f"killed: {dict(done)}; {len(sent)} records; said: {driver.said()[-3000:]}")
    assert Counter(committed(broker, "by-minute")) == windows, "each window once, and exact"
    check_changes(committed(broker, "by-key"), expected | {b"end": (1, 0)})


def table(sent: list[Entry]) -> dict[bytes, tuple[int, int]]:
    found: dict[bytes, tuple[int, int]] = {}
    for key, n, _ in sent:
        count, total = found.get(key, (0, 0))
        found[key] = (count + 1, total + n)
    return found


def by_minute(sent: list[Entry]) -> Counter[tuple[bytes, int, int]]:
    windows: defaultdict[bytes, list[int]] = defaultdict(list)
    for key, n, at_ms in sent:
        windows[key + (at_ms // WINDOW_MS * WINDOW_MS).to_bytes(8, "big")].append(n)
    return Counter((key, len(each), sum(each)) for key, each in windows.items())


def last_of(changes: list[tuple[bytes, int, int]]) -> dict[bytes, tuple[int, int]]:
    return {key: (n, total) for key, n, total in changes}


def check_changes(
    changes: list[tuple[bytes, int, int]], expected: dict[bytes, tuple[int, int]]
) -> None:
    """Check that each change is there once and in order (counts only grow)."""
    before: dict[bytes, int] = {}
    for key, n, _ in changes:
        assert n > before.get(key, 0), f"{key!r} was {before.get(key)} and became {n}"
        before[key] = n
    assert last_of(changes) == expected

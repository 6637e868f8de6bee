"""Exactly-once delivery while the driver, a Python worker or the broker is killed at random.

`OTTLA_KILL_ROUNDS` sets the number of kills, `OTTLA_KILL_SEED` the random seed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.conftest import SOURCE, Topic

from ottla.testing.broker import BrokerProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]
ROUNDS = int(os.environ.get("OTTLA_KILL_ROUNDS", "30"))
SEED = int(os.environ.get("OTTLA_KILL_SEED", "0")) or random.randrange(1 << 30)
ROOT = Path(__file__).parents[2]
PROGRESS_TIMEOUT_S = 300.0


class Driver:
    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self._arguments = [broker.bootstrap, "copied", "copies", str(home / "checkpoint")]
        self._log = home / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = os.pathsep.join((str(ROOT), SOURCE))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.pipeline", *self._arguments],
                stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the Python program, the JVM and all workers at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self, chance: random.Random) -> None:
        workers = [pid for pid in self._group() if b"pyspark" in _command(pid)]
        if workers:
            try:
                os.kill(chance.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _group(self) -> list[int]:
        assert self._process is not None
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdecimal():
                try:
                    if os.getsid(int(each.name)) == self._process.pid:
                        found.append(int(each.name))
                except ProcessLookupError:
                    continue
        return found

    def wait(self) -> None:
        assert self._process is not None
        assert self._process.wait(1800) == 0, self._log.read_text()[-5000:]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def killable_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


def end_of(broker: BrokerProcess, topic: str, partitions: int) -> int:
    from ottla import Consumer, TopicPartition

    with Consumer(broker.bootstrap) as consumer:
        tps = [TopicPartition(topic, each) for each in range(partitions)]
        return sum(consumer.end_offsets(*tps).values())


def test_every_record_is_copied_once_whatever_is_killed(
    killable_broker: BrokerProcess, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    broker = killable_broker
    source, target = Topic(broker, "copied", 3), Topic(broker, "copies", 2)
    expected: Counter[str] = Counter()
    driver = Driver(broker, tmp_path)
    done: Counter[str] = Counter()
    for number in range(ROUNDS):
        values = [f"{number}-{each}" for each in range(2_000)]
        for partition in range(3):
            share = values[partition::3]
            source.fill(share, partition=partition)
            expected.update(share)
        if not driver.is_running:
            driver.start()
        before = end_of(broker, "copies", 2)
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while end_of(broker, "copies", 2) == before and driver.is_running:
            assert time.monotonic() < deadline, "the driver makes no progress"
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 1.5))
        what = chance.choice(["driver", "worker", "broker"])
        done[what] += 1
        print(f"round {number}: {what}", flush=True)
        if what == "driver" and driver.is_running:
            driver.kill()
        elif what == "worker" and driver.is_running:
            driver.kill_worker(chance)
        elif what == "broker":
            broker.restart(kill=True)
    if driver.is_running:
        driver.kill()
    driver.start()
    driver.wait()
    found = Counter(target.values())
    print(f"killed: {dict(done)}; {len(expected)} records")
    assert found == expected

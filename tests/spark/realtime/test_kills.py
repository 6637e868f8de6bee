"""At-least-once delivery of a real-time query while its processes are killed at random.

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
from tests.spark.test_standalone import standalone

from ottla.testing.broker import BrokerProcess

ROUNDS = int(os.environ.get("OTTLA_KILL_ROUNDS", "30"))
SEED = int(os.environ.get("OTTLA_KILL_SEED", "0")) or random.randrange(1 << 30)
ROOT = Path(__file__).parents[3]
WAIT_S = 300.0
LOCAL = ("end", "driver", "broker", "function")
CLUSTER = ("executor", "end", "driver", "function", "broker")
COMMANDS = {
    "end": b"ottla.spark.realtime.s",  # source_end or sink_end
    "function": b"ottla.spark.realtime.function_end",
    "executor": b"CoarseGrainedExecutorBackend",
}


class Driver:
    """The program of `pipeline`, in a process group of its own."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._arguments = arguments
        self.log = home / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = os.pathsep.join((str(ROOT), SOURCE))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.realtime.pipeline", *self._arguments],
                stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip

    def kill(self) -> None:
        """Kill the program, and on a local master the JVM and all processes with it."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_one(self, words: bytes, chance: random.Random) -> None:
        """Kill one process of the query whose command contains these words."""
        deadline = time.monotonic() + WAIT_S
        while not (
            found := [pid for pid in _processes() if words in _command(pid) and self._has(pid)]
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(chance.choice(found), signal.SIGKILL)

    def _has(self, pid: int) -> bool:
        assert self._process is not None
        try:
            # The workers of a cluster run executors in their own directories.
            folder = Path(f"/proc/{pid}/cwd").readlink()
            return os.getpgid(pid) == self._process.pid or self.log.parent in folder.parents
        except OSError:
            return False


def _processes() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Load:
    """Numbered records, of which each must arrive at least once."""

    def __init__(self, source: Topic, target: Topic) -> None:
        self._source = source
        self._target = target
        self.sent = 0

    def send(self, count: int) -> None:
        for partition in range(2):
            numbers = range(self.sent + partition, self.sent + count, 2)
            self._source.fill([str(number) for number in numbers], partition=partition)
        self.sent += count

    def counted(self) -> Counter[str]:
        return Counter(self._target.values())

    def wait_for_all(self) -> Counter[str]:
        deadline = time.monotonic() + WAIT_S
        wanted = {f"seen {number}" for number in range(self.sent)}
        while True:
            found = self.counted()
            if wanted <= found.keys():
                return found
            missing = sorted(wanted - found.keys())
            assert time.monotonic() < deadline, f"missing {len(missing)}: {missing[:10]}"
            time.sleep(0.5)


def run_with_kills(master: str, home: Path, rounds: int, kinds: tuple[str, ...]) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    with BrokerProcess() as broker:
        source, target = Topic(broker, "numbers", 2), Topic(broker, "seen", 1)
        arguments = (master, broker.bootstrap, source.name, target.name, str(home / "checkpoint"))
        driver = Driver(home, *arguments)
        load = Load(source, target)
        driver.start()
        try:
            load.send(20)
            load.wait_for_all()
            for at in range(rounds):
                load.send(50)
                time.sleep(chance.uniform(0, 6))  # anywhere in a batch of 5 s
                kind = kinds[at % len(kinds)]
                print(f"round {at}: kill the {kind}", flush=True)
                if kind == "driver":
                    driver.kill()
                    driver.start()
                elif kind == "broker":
                    broker.restart(kill=True)
                else:
                    driver.kill_one(COMMANDS[kind], chance)
                load.send(50)
                found = load.wait_for_all()
            assert set(found) == {f"seen {number}" for number in range(load.sent)}
            print(f"{load.sent} records, {sum(found.values())} written")
        finally:
            driver.kill()


@pytest.mark.timeout(900)
def test_nothing_is_lost_when_a_python_process_is_killed(tmp_path: Path) -> None:
    run_with_kills("local[4,4]", tmp_path, 1, LOCAL)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_nothing_is_lost_when_processes_are_killed_at_random(tmp_path: Path) -> None:
    run_with_kills("local[4,4]", tmp_path, ROUNDS, LOCAL)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_nothing_is_lost_when_processes_of_a_standalone_cluster_are_killed(tmp_path: Path) -> None:
    with standalone(tmp_path) as master:
        run_with_kills(master, tmp_path, ROUNDS, CLUSTER)

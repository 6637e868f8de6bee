"""Transfers by librdkafka conserve money while tellers and the broker are killed at random.

A read_committed reader adds up all amounts throughout. Whenever it has read a partition of `bank`
up to the last stable offset, the sum is zero: it sees both legs of a transfer or neither. Each
teller has its own partition. If several tellers shared one, the open transaction of a slow teller
could hide the second leg of a committed transfer: read_committed guarantees that no open
transaction is read, not that every committed one is.

In the end every transfer that was reported as committed is there once, with its entry in `journal`.
No transfer that was reported as aborted is there, and one with an unknown outcome is there either
completely or not at all."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.chaos.transactions.bank_process import PARTITIONS
from tests.chaos.transactions.history import BROKEN, PAUSE_S
from tests.integration.transactions.producer import (
    fetch_committed,
    read_committed,
    values_at_offsets,
)
from tests.raw_client import RawClient, eventually

from ottla.testing.broker import BrokerProcess

PROGRAM = Path(__file__).with_name("bank_process.py")
OVERRIDES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
}


class Auditor(threading.Thread):
    """Thread that adds up the amounts and checks the sum at every last stable offset."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.reads = 0
        self.wrong: str | None = None
        self._port = port
        self._positions = [0] * PARTITIONS
        self._sums = [0] * PARTITIONS

    def run(self) -> None:
        while not self.stopping.is_set() and self.wrong is None:
            try:
                with RawClient(self._port) as client:
                    while not self.stopping.is_set() and self.wrong is None:
                        self._audit(client)
            except BROKEN:
                time.sleep(PAUSE_S)

    def _audit(self, client: RawClient) -> None:
        for partition in range(PARTITIONS):
            response = fetch_committed(
                client, "bank", self._positions[partition], partition, max_wait_ms=10
            )
            if response.error_code:
                continue
            found, self._positions[partition] = values_at_offsets(
                response, self._positions[partition]
            )
            for _, value in found:
                self._sums[partition] += json.loads(value)["amount"]
            is_at_the_end = self._positions[partition] >= response.last_stable_offset
            if is_at_the_end:
                self.reads += 1
                if self._sums[partition]:
                    self.wrong = f"{self._sums[partition]} in partition {partition}"


class Teller:
    """Teller process, with the outcomes that it has printed."""

    def __init__(self, bootstrap: str, number: int, count: int) -> None:
        self.outcomes: dict[str, str] = {}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), bootstrap, str(number), str(count)],
            stdout=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                output = json.loads(line)
            except ValueError:
                continue  # the process was killed while it wrote the line
            self.outcomes[output["transfer"]] = output["outcome"]

    @property
    def is_done(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()


def run(data_dir: Path, tellers: int, transfers: int, fault_every_s: float) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with BrokerProcess(data_dir, overrides=OVERRIDES) as broker:
        with RawClient(broker.port) as client:
            client.create_topic("bank", PARTITIONS)
            client.create_topic("journal", PARTITIONS)
        auditor = Auditor(broker.port)
        auditor.start()
        outcomes: dict[str, str] = {}
        running = [new_teller(broker, number, transfers) for number in range(tellers)]

        def committed() -> int:
            all_outcomes = [*outcomes.values(), *(o for t in running for o in t.outcomes.values())]
            return sum(outcome == "committed" for outcome in all_outcomes)

        while committed() < transfers and auditor.wrong is None:
            time.sleep(chance.uniform(0.5, 1.5) * fault_every_s)
            if chance.random() < 0.5:
                broker.kill()
                broker.start()
                continue
            number = chance.randrange(tellers)
            running[number].kill()
            outcomes.update(running[number].outcomes)
            running[number] = new_teller(broker, number, transfers)
        for teller in running:
            teller.kill()
            outcomes.update(teller.outcomes)
        assert auditor.wrong is None, auditor.wrong
        check(broker, outcomes)
        auditor.stopping.set()
        auditor.join()
        assert auditor.reads > 0
        assert auditor.wrong is None, auditor.wrong
        assert "Traceback" not in broker.log(), broker.log()


def new_teller(broker: BrokerProcess, number: int, transfers: int) -> Teller:
    return Teller(broker.bootstrap, number, transfers)


def check(broker: BrokerProcess, outcomes: dict[str, str]) -> None:
    with RawClient(broker.port) as client:
        for topic in ("bank", "journal"):
            for partition in range(PARTITIONS):
                eventually(lambda t=topic, p=partition: is_stable(client, t, p), timeout_s=30)  # type: ignore[misc]
        legs = Counter(
            json.loads(value)["transfer"]
            for partition in range(PARTITIONS)
            for value in read_committed(client, "bank", partition)
        )
        journal = Counter(
            value.decode()
            for partition in range(PARTITIONS)
            for value in read_committed(client, "journal", partition)
        )
    assert set(legs.values()) <= {2}, "a transfer has two legs"
    assert set(journal.values()) <= {1}
    assert set(legs) == set(journal), "a transaction is torn between two topics"
    for transfer, outcome in outcomes.items():
        if outcome == "committed":
            assert transfer in legs, f"{transfer} was committed, and is lost"
        elif outcome == "aborted":
            assert transfer not in legs, f"{transfer} was aborted, and is there"
    untold = [transfer for transfer in legs if transfer not in outcomes]
    assert not untold, f"nobody asked to commit {untold[:3]}"


def is_stable(client: RawClient, topic: str, partition: int) -> bool:
    response = fetch_committed(client, topic, 0, partition)
    return bool(response.error_code == 0 and response.last_stable_offset == response.high_watermark)


def test_the_sum_stays_the_same_when_tellers_and_the_broker_are_killed(tmp_path: Path) -> None:
    run(tmp_path, 2, 40, 1.0)


@pytest.mark.chaos
@pytest.mark.timeout(1_800)
def test_the_sum_stays_the_same_over_many_transfers_and_kills(tmp_path: Path) -> None:
    run(tmp_path, 4, 600, 3.0)

"""Exactly-once copies by Java's TransactionalMessageCopier while it and our broker are killed."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from compat.java import QUIET, TIMEOUT_S, TOOLS, Java
from ottla import Admin, Consumer, NewTopic
from ottla.testing.broker import BrokerProcess

ROUNDS = 30
PER_ROUND = 400
TRANSACTION_SIZE = 5
MOST_TRANSACTIONS = 40
"""Maximum number of transactions before a kill; fewer than a round has."""
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


class CopierSetup(NamedTuple):
    java: Java
    broker: BrokerProcess
    seed: int


class Copier:
    """Process of TransactionalMessageCopier.

    It ends when it has copied all records that were present at its start.
    """

    def __init__(self, setup: CopierSetup) -> None:
        self._process = subprocess.Popen(
            [
                *setup.java.arguments(TOOLS["transactional-message-copier"], *QUIET),
                *("--broker-list", setup.broker.bootstrap, "--input-topic", "input"),
                *("--input-partition", "0", "--output-topic", "output"),
                *("--transactional-id", "copier", "--consumer-group", "copiers"),
                *("--transaction-size", str(TRANSACTION_SIZE), "--use-group-metadata"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._progress = threading.Condition()
        self._lines = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            with self._progress:
                self._lines += 1
                self._progress.notify()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for_transactions(self, count: int) -> None:
        """Wait until the copier has reported `count` transactions, one line each, or has ended."""
        with self._progress:
            wanted = self._lines + count
            done = lambda: self._lines >= wanted or not self.is_running  # noqa: E731
            deadline = time.monotonic() + TIMEOUT_S
            while not done() and time.monotonic() < deadline:
                self._progress.wait(0.1)

    def wait(self) -> int:
        """Wait until the copier ends, as long as it commits transactions."""
        while self.is_running:
            before = self._lines
            self.wait_for_transactions(1)
            if self._lines == before and self.is_running:
                raise TimeoutError(f"no transaction in {TIMEOUT_S} s, after {before} of them")
        return self._process.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def java_copies_exactly_once_among_kills(setup: CopierSetup) -> None:
    """TransactionalMessageCopier copies exactly once and in order among thirty kills.

    Each round kills the copier, the broker, or both.
    """
    chance, broker, written = random.Random(setup.seed), setup.broker, list[bytes]()
    with Admin(broker.bootstrap) as admin:
        admin.create_topics(NewTopic("input", 1), NewTopic("output", 1))
    copier: Copier | None = None
    try:
        for number in range(ROUNDS):
            _write(broker, number, written)
            if copier is None or not copier.is_running:
                copier = Copier(setup)
            copier.wait_for_transactions(chance.randrange(1, MOST_TRANSACTIONS))
            time.sleep(chance.uniform(0, 0.02))
            victims = chance.choice(("copier", "broker", "both"))
            if victims != "broker":
                copier.kill()
            if victims != "copier":
                broker.restart(kill=True)
        if copier is not None and copier.is_running:
            copier.wait()
        assert Copier(setup).wait() == 0, "the last copier failed"
    finally:
        if copier is not None:
            copier.kill()
    found = _read(broker, len(written))
    assert found == written, (
        f"seed {setup.seed}: {len(found)} records, {len(set(found))} different, instead of "
        f"{len(written)}"
    )


def _write(broker: BrokerProcess, number: int, written: list[bytes]) -> None:
    values = [b"%d:%d" % (number, index) for index in range(PER_ROUND)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce("input", value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    written += values


def _read(broker: BrokerProcess, count: int) -> list[bytes]:
    found: list[bytes] = []
    with Consumer(broker.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([("output", 0)])
        consumer.seek_to_beginning()
        while records := consumer.poll(3 if len(found) >= count else 20):
            found += [record.value for record in records]
    return found


def copier_setup(java: Java, scratch: Path) -> CopierSetup:
    broker = BrokerProcess(scratch, overrides=OVERRIDES)
    return CopierSetup(java, broker, random.randrange(2**32))


CHECKS = [java_copies_exactly_once_among_kills]

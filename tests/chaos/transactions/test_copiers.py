"""Exactly-once copying: each record is in the output once, however often copier and broker die."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.transactions.producer import (
    TIMESTAMP,
    fetch_committed,
    read_committed,
)
from tests.raw_client import RawClient, eventually

from ottla.testing.broker import BrokerProcess

CLIENTS = ("confluent", "ottla")
PARTITIONS = 2
PER_ROUND = 60
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}


class Copier:
    def __init__(self, client: str, broker: BrokerProcess) -> None:
        program = Path(__file__).with_name(f"{client}_copier.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), broker.bootstrap, "copier"], stdout=subprocess.PIPE
        )

    def wait_until_it_copies(self) -> None:
        """Wait until the copier reports a transaction, or has exited."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def run(client_name: str, data_dir: Path, rounds: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with BrokerProcess(data_dir, overrides=OVERRIDES) as broker:
        with RawClient(broker.port) as client:
            client.create_topic("input", PARTITIONS, retention_ms="-1")
            client.create_topic("output", PARTITIONS)
        copier = Copier(client_name, broker)
        for number in range(rounds):
            with RawClient(broker.port) as client:
                write(client, number, written)
            copier.wait_until_it_copies()
            time.sleep(chance.uniform(0, 0.1))
            victims = chance.choice(("copier", "broker", "both"))
            if victims != "broker":
                copier.kill()
            if victims != "copier":
                broker.kill()
                broker.start()
            if victims != "broker":
                copier = Copier(client_name, broker)
        try:
            check(broker, written)
        finally:
            copier.kill()
        assert "Traceback" not in broker.log(), broker.log()


def write(client: RawClient, number: int, written: list[list[bytes]]) -> None:
    for partition in range(PARTITIONS):
        values = [b"%d:%d" % (number, index) for index in range(PER_ROUND)]
        records = [(None, value, (), TIMESTAMP) for value in values]
        assert client.produce("input", records, partition).error_code == 0
        written[partition] += values


def check(broker: BrokerProcess, written: list[list[bytes]]) -> None:
    with RawClient(broker.port) as client:
        for partition, values in enumerate(written):
            expected = [b"[" + value + b"]" for value in values]

            def copied(partition: int = partition) -> list[bytes]:
                return read_committed(client, "output", partition)

            found = eventually(copied, lambda found: len(found) >= len(values), 60)  # noqa: B023
            assert found == expected, first_difference(found, expected)
            response = fetch_committed(client, "output", 0, partition)
            assert response.last_stable_offset == response.high_watermark


def first_difference(found: list[bytes], expected: list[bytes]) -> str:
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"{one!r} instead of {other!r} at {index}"
    return f"{len(found)} records instead of {len(expected)}"


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_copied_is_there_once(client: str, tmp_path: Path) -> None:
    run(client, tmp_path, 2)


@pytest.mark.chaos
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_copied_over_many_kills_is_there_once(client: str, tmp_path: Path) -> None:
    run(client, tmp_path, 35)

"""Concurrent transactional writers, and a checker of the outcome of their transactions.

A writer records for each transaction what it wrote and how the transaction ended: committed,
aborted, or unknown (the connection broke before the response). Every value is unique. After a
broken connection a writer initializes its producer again, as a restarted application would, which
aborts the open transaction. The checker compares these records with what read_committed readers
received:

    aborted read    a value of a transaction that was reported as aborted
    lost write      a missing value of a transaction that was reported as committed
    torn            some but not all values of a transaction
    duplicate       a value twice in a partition
    out of order    values of one writer in a partition, not in the order written
    unstable read   an offset at which a reader received something else than the final log holds"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.integration.transactions.producer import (
    TransactionalProducer,
    fetch_committed,
    values_at_offsets,
)
from tests.raw_client import ConnectionClosed, RawClient

from ottla.base.errors import ErrorCode

E = ErrorCode
PAUSE_S = 0.01
BROKEN = (ConnectionClosed, OSError)
RETRIABLE = frozenset({
    E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR,
})  # fmt: skip


class Fenced(Exception):
    """Another producer uses the same transactional ID, or the transaction has timed out."""


@dataclass
class Attempt:
    """One transaction, as its writer knows it."""

    values: list[tuple[int, bytes]] = field(default_factory=list)
    """Pairs of partition and value, including those whose acknowledgement was lost."""
    is_whole: bool = False
    """Whether every write of the transaction was acknowledged."""
    outcome: bool | None = None
    """True if committed, False if aborted, None if the response was lost."""
    asked_commit: bool = False
    """Whether the writer tried to commit, so that the transaction may be committed."""


class Writer(threading.Thread):
    """Thread that writes transactions until it is stopped or `count` of them have an outcome.

    `version` is 1 or 2, the version of the transaction protocol."""

    def __init__(
        self, name: str, transactional_id: str, port: int, topic: str, partitions: int, *,
        version: int, count: int, seed: int, stopping: threading.Event,
        timeout_ms: int = 5_000,
    ) -> None:  # fmt: skip
        super().__init__(name=name, daemon=True)
        self.attempts: list[Attempt] = []
        self.error: BaseException | None = None
        self._port, self._topic, self._partitions = port, topic, partitions
        self._version, self._count = version, count
        self._random = random.Random(seed)
        self._stopping = stopping
        self._number = 0
        self._id = transactional_id
        self._timeout_ms = timeout_ms

    @property
    def ended(self) -> int:
        return sum(attempt.outcome is not None for attempt in self.attempts)

    def run(self) -> None:
        try:
            while not self._stopping.is_set() and self.ended < self._count:
                try:
                    with RawClient(self._port) as client:
                        self._transact(TransactionalProducer(client, self._id))
                except BROKEN:
                    time.sleep(PAUSE_S)
                except Fenced:
                    time.sleep(self._random.uniform(0, 20 * PAUSE_S))
        except BaseException as error:
            self.error = error
            raise

    def _transact(self, producer: TransactionalProducer) -> None:
        self._try(lambda: self._begin(producer))
        while not self._stopping.is_set() and self.ended < self._count:
            attempt = Attempt()
            self.attempts.append(attempt)
            self._write(producer, attempt)
            if self._random.random() < 0.02:
                return  # simulates an application that dies with its transaction open
            commit = self._random.random() < 0.75
            attempt.asked_commit = commit
            self._try(lambda commit=commit: producer.end(commit, 5 if self._version == 2 else 3))  # type: ignore[misc]
            attempt.outcome = commit

    def _begin(self, producer: TransactionalProducer) -> ErrorCode:
        code = producer.find_coordinator()
        return producer.init(timeout_ms=self._timeout_ms) if code is E.NONE else code

    def _write(self, producer: TransactionalProducer, attempt: Attempt) -> None:
        batches = [
            (self._random.randrange(self._partitions), self._random.randrange(1, 4))
            for _ in range(self._random.randrange(1, 4))
        ]
        is_first = self._version == 1
        if is_first:
            touched = sorted({partition for partition, _ in batches})
            self._try(lambda: producer.add(self._topic, *touched))
        for partition, count in batches:
            values = [self._value() for _ in range(count)]
            # Record the values first: the broker may have written them even if the response is
            # lost.
            attempt.values += [(partition, value) for value in values]
            self._try(
                lambda partition=partition, values=values: producer.produce(  # type: ignore[misc]
                    self._topic, *values, partition=partition, version=10 if is_first else 12
                )
            )
        attempt.is_whole = True

    def _value(self) -> bytes:
        self._number += 1
        return f"{self.name}:{self._number}".encode()

    def _try(self, ask: object) -> None:
        while not self._stopping.is_set():
            code = ask()  # type: ignore[operator]
            if code is E.NONE:
                return
            if code not in RETRIABLE:
                if code in (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED, E.INVALID_TXN_STATE,
                            E.INVALID_PRODUCER_ID_MAPPING, E.TRANSACTION_ABORTABLE):  # fmt: skip
                    raise Fenced(code.name)
                raise AssertionError(f"{self.name} received {code.name}")
            time.sleep(PAUSE_S)
        raise Fenced("stopping")


class Reader(threading.Thread):
    """Thread that reads all partitions under read_committed and keeps the values by offset."""

    def __init__(self, port: int, topic: str, partitions: int, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self.given: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self.error: BaseException | None = None
        self._port, self._topic, self._stopping = port, topic, stopping
        self._positions = [0] * partitions

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    with RawClient(self._port) as client:
                        while not self._stopping.is_set():
                            self.follow(client, max_wait_ms=20)
                except BROKEN:
                    time.sleep(PAUSE_S)
        except BaseException as error:
            self.error = error
            raise

    def follow(self, client: RawClient, **more: int) -> bool:
        """Fetch once from each partition, and return whether any of them advanced."""
        has_found = False
        for partition, position in enumerate(self._positions):
            response = fetch_committed(client, self._topic, position, partition, **more)
            if response.error_code:
                time.sleep(PAUSE_S)
                continue
            assert response.last_stable_offset <= response.high_watermark
            found, following = values_at_offsets(response, position)
            for offset, value in found:
                assert offset < response.last_stable_offset, "an undecided record was given"
                assert offset not in self.given[partition]
                self.given[partition][offset] = value
            has_found = has_found or following > position
            self._positions[partition] = max(position, following)
        return has_found


def check(attempts: list[Attempt], final: list[dict[int, bytes]], readers: list[Reader]) -> None:
    """Raise AssertionError if the history violates the guarantees listed at the top of the module.

    Args:
        attempts: The transactions of all writers.
        final: Committed values by partition and offset, read after all writers stopped.
        readers: Readers that followed the partitions meanwhile."""
    place: dict[bytes, tuple[int, int]] = {}
    for partition, records in enumerate(final):
        counts = Counter(records.values())
        doubled = [value for value, number in counts.items() if number > 1]
        assert not doubled, f"duplicate in partition {partition}: {doubled[:5]}"
        for offset, value in records.items():
            assert value not in place, f"{value!r} is in two partitions"
            place[value] = (partition, offset)
    known = {value for attempt in attempts for _, value in attempt.values}
    assert set(place) <= known, f"nobody wrote {sorted(set(place) - known)[:5]}"
    for attempt in attempts:
        _check_attempt(attempt, place)
    _check_order(attempts, place)
    for reader in readers:
        assert reader.error is None, reader.error
        for partition, given in enumerate(reader.given):
            for offset, value in given.items():
                assert final[partition].get(offset) == value, (
                    f"unstable read: {value!r} at {partition}-{offset}"
                )


def _check_attempt(attempt: Attempt, place: dict[bytes, tuple[int, int]]) -> None:
    present = [value for _, value in attempt.values if value in place]
    if attempt.outcome is True:
        missing = [value for _, value in attempt.values if value not in place]
        assert not missing, f"lost write: {missing[:5]}"
    elif attempt.outcome is False or not attempt.asked_commit:
        assert not present, f"aborted read: {present[:5]}"
    elif present:
        assert len(present) == len(attempt.values), f"torn transaction: only {present[:5]}"
    for partition, value in attempt.values:
        assert value not in place or place[value][0] == partition


def _check_order(attempts: list[Attempt], place: dict[bytes, tuple[int, int]]) -> None:
    last: dict[tuple[bytes, int], int] = {}
    for attempt in attempts:
        for partition, value in attempt.values:
            if value in place:
                key = (value.split(b":")[0], partition)
                offset = place[value][1]
                assert last.get(key, -1) < offset, f"out of order: {value!r}"
                last[key] = offset

"""Concurrent transactional writers and a checker of what became of their transactions.

A writer notes for each transaction what it wrote and what it was told: committed, aborted, or
nothing (the connection broke before the answer). Every value is written once in all. After a broken
connection a writer begins again, as a restarted application would: that ends the transaction it
left. The checker holds the notes against what readers under read_committed were given:

    aborted read    a value of a transaction that was told to be aborted
    lost write      a value of a transaction that was told to be committed, and is not there
    torn            some but not all values of a transaction
    duplicate       a value twice in a partition
    out of order    values of one writer in a partition, not in the order written
    unstable read   what a reader was given is not what is there in the end, offset for offset"""

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
    """Another producer has begun with our transactional id, or our transaction has timed out."""


@dataclass
class Attempt:
    """One transaction, as its writer knows it."""

    values: list[tuple[int, bytes]] = field(default_factory=list)
    """(partition, value), as far as they were acknowledged."""
    is_whole: bool = False
    """Whether everything was acknowledged that belongs to it."""
    outcome: bool | None = None
    """True: committed, False: aborted, None: nobody told."""
    asked_commit: bool = False
    """Whether it may have been committed."""


class Writer(threading.Thread):
    """Writes transactions until told to stop or `count` have an outcome. `version` 1 or 2."""

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
                return  # an application that dies with its transaction open
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
            # Noted first: without an answer it may be there all the same.
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
                raise AssertionError(f"{self.name} was told {code.name}")
            time.sleep(PAUSE_S)
        raise Fenced("stopping")


class Reader(threading.Thread):
    """Follows the partitions under read_committed, as a consumer does, and keeps what it is given
    by offset."""

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
        """One round. Whether there was anything."""
        has_found = False
        for partition, position in enumerate(self._positions):
            answer = fetch_committed(client, self._topic, position, partition, **more)
            if answer.error_code:
                time.sleep(PAUSE_S)
                continue
            assert answer.last_stable_offset <= answer.high_watermark
            found, following = values_at_offsets(answer, position)
            for offset, value in found:
                assert offset < answer.last_stable_offset, "an undecided record was given"
                assert offset not in self.given[partition]
                self.given[partition][offset] = value
            has_found = has_found or following > position
            self._positions[partition] = max(position, following)
        return has_found


def check(attempts: list[Attempt], final: list[dict[int, bytes]], readers: list[Reader]) -> None:
    """Raises AssertionError that says what is wrong. `final`: offset -> value, by partition."""
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

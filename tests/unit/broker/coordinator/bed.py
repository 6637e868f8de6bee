"""Test bed for the coordinator runtime: summing shard, in-memory log, manual clock and syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.coordinator_runtime import CoordinatorRuntime, RuntimePorts, RuntimeSettings
from ottla.broker.timers import Timers
from ottla.core.coordinator import Decision, ProducerIdAndEpoch, StartTimer, Token
from ottla.storage.log import AppendResult, LogSlice
from ottla.wire.records.batch import BatchHeader, iter_headers


class Answer:
    def __init__(self) -> None:
        self.value: Any = None

    def reply(self, body: dict[str, Any]) -> None:
        assert self.value is None
        self.value = body["total"]

    def fail(self, error: KafkaError) -> None:
        assert self.value is None
        self.value = error.code


class Added:
    """Event that adds to a key's total and responds with the total before the addition."""

    if_failed: Added | None = None
    delay_ms: int | None = None
    producer: ProducerIdAndEpoch | None = None

    def __init__(self, key: str | None, amount: int, *, commutes: bool = False) -> None:
        self.key, self.amount, self.commutes = key, amount, commutes
        self.token: Any = Answer()


class Totals:
    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.parked: list[Token] = []
        self.ended: list[tuple[int, bool]] = []
        self.applied: list[tuple[tuple[str, int], int]] = []
        """Applied records, each with the producer ID of its transaction."""

    def decide(self, event: Added, now_ms: int) -> Decision:
        decision = Decision(if_failed=event.if_failed, producer=event.producer)
        if event.delay_ms is not None:
            decision.timers.append(StartTimer((event.key or "",), event.delay_ms, Added("late", 1)))
        if event.amount:
            decision.records.append((event.key or "all", event.amount))
        decision.respond(event.token, {"total": self.totals.get(event.key or "all", 0)})
        return decision

    def apply(self, record: tuple[str, int], offset: int, producer_id: int) -> None:
        key, amount = record
        self.applied.append((record, producer_id))
        self.totals[key] = self.totals.get(key, 0) + amount

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.ended.append((producer_id, commit))

    def encode(self, record: tuple[str, int]) -> tuple[bytes, bytes | None]:
        return record[0].encode(), str(record[1]).encode()

    def decode(self, key: bytes, value: bytes | None) -> Any:
        if key == b"unknown":
            return None
        return key.decode(), int(value or b"")

    def loaded(self, now_ms: int) -> Decision:
        return Decision()

    def unload(self) -> list[Token]:
        return self.parked


class FakePartition:
    """In-memory partition log whose high watermark the test can hold back."""

    def __init__(self, waits_for_sync: bool = False) -> None:
        self.key = TopicPartition("__totals", 0)
        self.batches: list[bytes] = []
        self.waits_for_sync = waits_for_sync
        self.is_leader = True
        self.offline_reason: str | None = None
        self.high_watermark = 0
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.fails: ErrorCode | None = None
        config = SimpleNamespace(max_message_bytes=1 << 20)
        self.log = SimpleNamespace(
            log_start_offset=0,
            log_end_offset=0,
            wants_flush=False,
            config=config,
            read=self.read,
            partition=self.key,
        )

    def check_in_sync(self) -> None:
        """Accept every append, because the partition has no followers."""

    def append(self, batch: bytes, header: BatchHeader, now_ms: int) -> AppendResult:
        if self.fails is not None:
            raise KafkaError(self.fails)
        base = self.log.log_end_offset
        self.batches.append(base.to_bytes(8, "big") + batch[8:])
        last = base + header.last_offset_delta
        self.log.log_end_offset = last + 1
        if not self.waits_for_sync:
            self.high_watermark = last + 1
        return AppendResult(base, last, header.max_timestamp, is_duplicate=False)

    def wait_for_high_watermark(self, offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((offset, future))
        return future

    def read(self, offset: int, max_bytes: int, end: int, **_: Any) -> LogSlice:
        for batch in self.batches:
            header = next(iter_headers(batch))
            if header.last_offset >= offset:
                return LogSlice(batch, header.next_offset)
        return LogSlice(b"", offset)


class FakeFlusher:
    def __init__(self, partition: FakePartition) -> None:
        self.partition = partition
        self.requests = 0

    def request(self, partition: Any) -> None:
        self.requests += 1

    def sync(self, error: KafkaError | None = None) -> None:
        waiting, self.partition.waiting = self.partition.waiting, []
        for offset, future in waiting:
            if error is not None:
                future.set_exception(error)
            else:
                self.partition.high_watermark = max(offset, self.partition.high_watermark)
                future.set_result(None)


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return 1_700_000_000_000


class Bed:
    def __init__(self, partition: FakePartition, settings: RuntimeSettings | None = None) -> None:
        self.partition = partition
        self.flusher = FakeFlusher(partition)
        self.clock = Clock()
        self.timers = Timers(self.clock, lambda delay, action: SimpleNamespace(cancel=lambda: None))
        self.shard = Totals()
        self.gate: asyncio.Event | None = None
        """Gate that blocks reads of the log until it is set; None lets them through."""

        async def run_blocking(work: Callable[[], Any]) -> Any:
            if self.gate is not None:
                await self.gate.wait()
            return work()

        ports: Any = RuntimePorts(
            self.clock,
            self.timers,
            self.flusher,
            run_blocking,
            asyncio.ensure_future,  # type: ignore[arg-type]
        )
        self.runtime = CoordinatorRuntime(ports, lambda: self.shard, settings)

    def open(self) -> None:
        self.runtime.partition_opened(0, self.partition)  # type: ignore[arg-type]

    def add(self, key: str | None, amount: int, **options: Any) -> Any:
        event = Added(key, amount, commutes=options.pop("commutes", False))
        for name, value in options.items():
            setattr(event, name, value)
        self.runtime.submit(0, event)
        return event.token

    @property
    def batch_sizes(self) -> list[int]:
        return [next(iter_headers(batch)).record_count for batch in self.partition.batches]


def with_bed(
    scenario: Callable[[Bed], Awaitable[None]],
    partition: FakePartition | None = None,
    settings: RuntimeSettings | None = None,
) -> None:
    async def run() -> None:
        bed = Bed(partition or FakePartition(), settings)
        bed.open()
        await scenario(bed)

    asyncio.run(run())


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)

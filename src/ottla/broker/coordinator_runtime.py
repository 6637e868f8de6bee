"""The runtime of coordinators (core/coordinator.py): one `ShardRunner` per partition led here.

    opened ──► LOADING ──► ACTIVE ──► CLOSED
          ▲       └───────────┴── a log that cannot be read or written
          └── RELOAD_DELAY_S after a failed sync, if this broker still leads the partition

Processing of an event
1. If the event depends on records of the same key that wait to be appended, append them first.
2. Let the shard decide. Its timers start at once.
3. Its records wait for the end of this event loop iteration, so that everything that arrived
   together becomes one batch in the log. Then they are appended and applied.
4. Its responses are sent when the high watermark has passed everything written before them, even if
   the decision has no records of its own: it may depend on records that could still be lost. A
   request that waits longer than `commit_timeout_ms` fails; its records stay in the log.

A failed append changes nothing: the requests get the error and may be retried. If a write was
accepted but could not be synced, state that was already applied may be lost, so the shard closes.
If the disk was only full, the leader keeps its partition, and the shard loads what is in the log;
otherwise a restart of the broker loads it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import Clock, RunBlocking
from ottla.broker.coordinator_batches import PlannedAppend, plan_appends
from ottla.broker.coordinator_loader import load
from ottla.broker.flusher import Flusher
from ottla.broker.log_limit import LogLimiter
from ottla.broker.partition import Partition
from ottla.broker.ports import Flushing, LeadershipProofs, Tasks, Threads, TimeSource
from ottla.broker.timers import Timers
from ottla.core.coordinator import (
    Decision,
    Event,
    ProducerIdAndEpoch,
    SendResponse,
    Shard,
    StartTimer,
    Token,
)
from ottla.wire.records.batch import read_header
from ottla.wire.records.builder import end_txn_marker

logger = logging.getLogger(__name__)

RELOAD_DELAY_S = 1.0
"""Time after a failed sync after which the partition is loaded again."""
FAILURE_BURST = 5
FAILURE_INTERVAL_S = 10.0
"""Rate limit of log lines about records that could not be written: a burst, then one per
interval."""


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


_STATE_ERRORS = {
    ShardState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ShardState.CLOSED: ErrorCode.NOT_COORDINATOR,
}


class RuntimeBroker(Flushing, LeadershipProofs, Tasks, Threads, TimeSource, Protocol):
    """The parts of a broker that a coordinator's runtime uses."""


class RuntimePorts(NamedTuple):
    """The parts of a broker that the runtime uses, and the timers of the coordinator."""

    clock: Clock
    timers: Timers
    flusher: Flusher
    run_blocking: RunBlocking
    spawn: Callable[[Coroutine[object, None, object]], object]
    check_can_prove_leadership: Callable[[Partition], None] = lambda _: None
    """Check that raises KafkaError if a leader without a lease cannot prove its leadership."""
    leadership_proof: Callable[[Partition], asyncio.Future[None] | None] = lambda _: None
    """Function that returns what to await before reporting what only the leader can know."""

    @classmethod
    def of(cls, broker: RuntimeBroker, timers: Timers) -> RuntimePorts:
        return cls(
            broker.clock,
            timers,
            broker.flusher,
            broker.run_blocking,
            broker.spawn,
            broker.check_can_prove_leadership,
            broker.leadership_proof,
        )


class RuntimeSettings(NamedTuple):
    """Settings of one kind of coordinator."""

    compression: int = 0
    """Codec number for batches; 0 for none."""
    load_buffer_bytes: int = 5 * 1024 * 1024
    commit_timeout_ms: int | None = None
    """Maximum time that a response waits for the replicas of its records; None for no limit."""


class CoordinatorRuntime:
    """The shards of one kind of coordinator, by partition."""

    def __init__(
        self,
        ports: RuntimePorts,
        make_shard: Callable[[], Shard],
        settings: RuntimeSettings | None = None,
    ) -> None:
        self._ports = ports
        self._make_shard = make_shard
        self._settings = settings or RuntimeSettings()
        self._runners: dict[int, ShardRunner] = {}
        # While replicas are missing, the same decisions fail again and again.
        self._failure_log = LogLimiter(
            logger, ports.clock.monotonic, burst=FAILURE_BURST, interval_s=FAILURE_INTERVAL_S
        )

    @property
    def runners(self) -> list[ShardRunner]:
        return list(self._runners.values())

    def runner(self, index: int) -> ShardRunner | None:
        return self._runners.get(index)

    def partition_opened(self, index: int, partition: Partition) -> None:
        self.partition_closed(index)
        runner = ShardRunner(
            partition, self._make_shard(), self._ports, self._settings, self._failure_log
        )
        runner.on_failed_sync = partial(self._reload, index, partition, runner)
        self._runners[index] = runner
        runner.start()

    def _reload(self, index: int, partition: Partition, failed: ShardRunner) -> None:
        """Load a partition again, unless it was closed or opened meanwhile. A broker that has lost
        its leadership, or must be restarted to use the disk again, does not."""
        is_current = self._runners.get(index) is failed
        if is_current and partition.is_leader and partition.offline_reason is None:
            self.partition_opened(index, partition)

    def partition_closed(self, index: int) -> None:
        runner = self._runners.pop(index, None)
        if runner is not None:
            runner.close()

    def close(self) -> None:
        """Append what waits to be appended, and fail the other pending requests with
        NOT_COORDINATOR, so that clients look for another coordinator."""
        for index in list(self._runners):
            self.partition_closed(index)

    def submit(self, index: int, event: Event) -> None:
        """Submit an event to the shard of a partition. Its token gets the response or the error."""
        runner = self._runners.get(index)
        if runner is not None:
            runner.submit(event)
        elif event.token is not None:
            event.token.fail(KafkaError(ErrorCode.NOT_COORDINATOR))

    def end_transaction(
        self,
        index: int,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        token: Token[None],
        *,
        commit: bool,
    ) -> None:
        """Write a transaction marker; see `ShardRunner.end_transaction`."""
        runner = self._runners.get(index)
        if runner is not None:
            runner.end_transaction(producer, coordinator_epoch, token, commit=commit)
        else:
            token.fail(KafkaError(ErrorCode.NOT_COORDINATOR))


class ShardRunner:
    """The shard of one partition, its pending records and its pending responses."""

    def __init__(
        self,
        partition: Partition,
        shard: Shard,
        ports: RuntimePorts,
        settings: RuntimeSettings,
        failure_log: LogLimiter,
    ) -> None:
        self.shard = shard
        self.state = ShardState.LOADING
        self._partition = partition
        self._ports = ports
        self._settings = settings
        self._failure_log = failure_log
        self._unwritten: list[Decision] = []
        self._touched: dict[str | None, bool] = {}
        """Key of each unwritten decision -> whether all decisions of the key commute."""
        self._flush_handle: asyncio.Handle | None = None
        self._written = 0
        """Offset after the last record that was written."""
        self._uncommitted: deque[tuple[int, float, list[SendResponse]]] = deque()
        """(offset that the high watermark must reach, time since when they wait, responses), in
        ascending order."""
        self._is_waiting = False
        self.on_failed_sync: Callable[[], None] = lambda: None
        """Called some time after the shard has closed because its records could not be synced."""

    # --------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        log = self._partition.log
        if log.log_start_offset == log.log_end_offset:
            self._loaded()
        else:
            self._ports.spawn(self._load())

    async def _load(self) -> None:
        try:
            count = await load(
                self._partition,
                self.shard,
                self._settings.load_buffer_bytes,
                self._ports.run_blocking,
                lambda: self.state is ShardState.LOADING,
            )
        except Exception as error:
            logger.error(
                "%s: the coordinator could not load the partition: %s", self._partition.key, error
            )
            self.close()
            return
        if self.state is ShardState.LOADING:
            logger.info("%s: loaded %d records", self._partition.key, count)
            self._loaded()

    def _loaded(self) -> None:
        self._written = self._partition.log.log_end_offset
        self.state = ShardState.ACTIVE
        self._start_timers(self.shard.loaded(self._ports.clock.time_ms()))

    def close(self) -> None:
        if self.state is ShardState.CLOSED:
            return
        self._flush()
        self.state = ShardState.CLOSED
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        for token in self.shard.unload():
            token.fail(error)
        if not self._is_waiting:
            self._fail(self._pop_uncommitted(), error)

    # ---------------------------------------------------------------------------------- deciding

    def submit(self, event: Event) -> None:
        if self.state is not ShardState.ACTIVE:
            if event.token is not None:
                event.token.fail(KafkaError(_STATE_ERRORS[self.state]))
            return
        if self._touched and self._depends_on_unwritten(event):
            self._flush()
        self._execute(event, self.shard.decide(event, self._ports.clock.time_ms()))

    def _depends_on_unwritten(self, event: Event) -> bool:
        key = event.key
        if key is None:
            return True
        if key not in self._touched:
            return None in self._touched
        return not (event.commutes and self._touched[key])

    def _execute(self, event: Event, decision: Decision) -> None:
        if decision.timers:
            self._start_timers(decision)
        if not decision.records:
            if decision.responses:
                self._send_when_proved(decision.responses)
            return
        key = event.key
        self._unwritten.append(decision)
        self._touched[key] = event.commutes and self._touched.get(key, True)
        if self._flush_handle is None:
            self._flush_handle = asyncio.get_running_loop().call_soon(self._flush)

    def _start_timers(self, decision: Decision) -> None:
        timers, partition = self._ports.timers, self._partition.key
        for effect in decision.timers:
            if isinstance(effect, StartTimer):
                action = partial(self.submit, effect.event)
                timers.start((partition, effect.key), effect.delay_ms / 1000, action)
            else:
                timers.cancel((partition, effect.key))

    # ------------------------------------------------------------------------------ transactions

    def end_transaction(
        self,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        token: Token[None],
        *,
        commit: bool,
    ) -> None:
        """Write the marker that ends a transaction in this partition, and apply it. The token gets
        an empty body once the marker is committed, or the error."""
        if self.state is not ShardState.ACTIVE:
            token.fail(KafkaError(_STATE_ERRORS[self.state]))
            return
        self._flush()
        now_ms = self._ports.clock.time_ms()
        marker = end_txn_marker(*producer, commit, coordinator_epoch, now_ms)
        try:
            self._write(marker, now_ms)
        except KafkaError as error:
            token.fail(error)
            return
        self.shard.end_transaction(producer.id, commit=commit)
        self._send_when_committed([SendResponse(token, None)])

    # ---------------------------------------------------------------------------------- writing

    def _flush(self) -> None:
        """Append and apply all decisions that wait for it."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        unwritten, self._unwritten = self._unwritten, []
        self._touched.clear()
        if not unwritten:
            return
        config = self._partition.log.config
        now_ms = self._ports.clock.time_ms()
        appends = plan_appends(
            unwritten,
            self.shard.encode,
            now_ms,
            config.max_message_bytes,
            self._settings.compression,
        )
        for append in appends:
            self._append(append, now_ms)

    def _append(self, append: PlannedAppend, now_ms: int) -> None:
        try:
            if append.error is not None:
                raise append.error
            offset = self._write(append.batch, now_ms)
        except KafkaError as error:
            self._failure_log.log(
                logging.WARNING,
                f"Could not write coordinator records to {self._partition.key}: {error.message}. "
                f"Requests that depend on them fail with {error.code.name}.",
            )
            for decision in append.completes:
                self._fail_decision(decision, error)
            return
        try:
            self._apply(append, offset)
        except Exception:
            logger.exception("%s: the coordinator could not apply records", self._partition.key)
            for decision in append.completes:
                self._fail(decision.responses, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            self.close()
            return
        for decision in append.completes:
            if decision.responses:
                self._send_when_committed(decision.responses)

    def _write(self, batch: bytes, now_ms: int) -> int:
        """Append a batch and return the offset of its first record. Raises KafkaError."""
        partition = self._partition
        if not partition.is_leader:
            # Decided in the loop iteration in which leadership was lost.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.check_in_sync()
        self._ports.check_can_prove_leadership(partition)
        result = partition.append(batch, read_header(batch), now_ms)
        self._written = result.last_offset + 1
        if partition.waits_for_sync or partition.log.wants_flush:
            self._ports.flusher.request(partition)
        return result.base_offset

    def _apply(self, append: PlannedAppend, offset: int) -> None:
        for record in append.records:
            self.shard.apply(record, offset, append.producer.id)
            offset += 1

    def _fail_decision(self, decision: Decision, error: KafkaError) -> None:
        self._fail(decision.responses, error)
        if decision.if_failed is not None and self.state is ShardState.ACTIVE:
            self.submit(decision.if_failed)

    # --------------------------------------------------------------------------------- answering

    def _send_when_proved(self, responses: list[SendResponse]) -> None:
        """Send the responses of a decision without records once leadership is proved: no follower
        has acknowledged anything for it."""
        proof = self._ports.leadership_proof(self._partition)
        if proof is None:
            self._send_when_committed(responses)
            return

        def proven(future: asyncio.Future[None]) -> None:
            if future.cancelled() or future.exception() is not None:
                self._fail(responses, KafkaError(ErrorCode.NOT_COORDINATOR))
            else:
                self._send_when_committed(responses)

        proof.add_done_callback(proven)

    def _send_when_committed(self, responses: list[SendResponse]) -> None:
        if self._partition.high_watermark >= self._written:
            _send(responses)
            return
        self._uncommitted.append((self._written, self._ports.clock.monotonic(), responses))
        if len(self._uncommitted) == 1 and self._settings.commit_timeout_ms is not None:
            self._start_commit_timeout(self._settings.commit_timeout_ms / 1000)
        self._wait_for_commit()

    def _start_commit_timeout(self, delay_s: float) -> None:
        key = self._partition.key, "commit timeout"
        self._ports.timers.start(key, delay_s, self._fail_timed_out)

    def _fail_timed_out(self) -> None:
        """Fail the responses that have waited too long for replicas, with Kafka's error."""
        timeout_s = (self._settings.commit_timeout_ms or 0) / 1000
        now = self._ports.clock.monotonic()
        while self._uncommitted and now >= self._uncommitted[0][1] + timeout_s:
            error = KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The replicas of {self._partition.key} did not copy the records of this request "
                f"within {timeout_s:g} seconds",
            )
            self._fail(self._uncommitted.popleft()[2], error)
        if self._uncommitted:
            self._start_commit_timeout(self._uncommitted[0][1] + timeout_s - now)

    def _wait_for_commit(self) -> None:
        if not self._is_waiting and self._uncommitted:
            self._is_waiting = True
            committed = self._partition.wait_for_high_watermark(self._uncommitted[-1][0])
            committed.add_done_callback(self._committed)

    def _committed(self, future: asyncio.Future[None]) -> None:
        self._is_waiting = False
        error = None if future.cancelled() else future.exception()
        if isinstance(error, KafkaError):
            logger.error("%s: stopping the coordinator: %s", self._partition.key, error.message)
            self._fail(self._pop_uncommitted(), error)
            self.close()
            key = self._partition.key, "reload"
            self._ports.timers.start(key, RELOAD_DELAY_S, self.on_failed_sync)
            return
        watermark = self._partition.high_watermark
        while self._uncommitted and self._uncommitted[0][0] <= watermark:
            _send(self._uncommitted.popleft()[2])
        self._wait_for_commit()

    def _pop_uncommitted(self) -> list[SendResponse]:
        responses = [response for *_, responses in self._uncommitted for response in responses]
        self._uncommitted.clear()
        return responses

    def _fail(self, responses: Iterable[SendResponse], error: KafkaError) -> None:
        for token, _ in responses:
            token.fail(error)


def _send(responses: list[SendResponse]) -> None:
    for token, body in responses:
        token.reply(body)

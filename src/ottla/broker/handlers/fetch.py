"""Fetch (key 1), versions 4–18.

- Returns whole, verified batches from any offset, within the `max_bytes` of the request and of each
  partition; the first batch is returned even if it is larger.
- Waits until `min_bytes` are available or `max_wait_ms` has passed (a delayed fetch). The append
  that adds the bytes wakes the fetch; nothing polls.
- Sessions (KIP-227), leader epoch checks (KIP-320), divergence (KIP-595, v12+), topic IDs (KIP-516,
  v13+), the leader's address for a fenced client (KIP-951, v16+), read_committed with aborted
  transactions.
- Before v10 a topic whose `compression.type` is zstd cannot be read (KIP-110). Clients before v6 do
  not know KAFKA_STORAGE_ERROR and get NOT_LEADER_OR_FOLLOWER, which they retry, too.
- A follower's fetch (with replica ID and broker epoch) reads to the log end offset and reports the
  follower's progress; it waits for appends, not for the high watermark.
- A consumer in the rack of a follower is directed there (KIP-392, v11+), and may read there.
- In a session, partitions without changes cost next to nothing.
- Bytes that are not in the page cache are read in a thread; the event loop never waits for the
  disk. Large ranges that are cached and were verified before are sent to the socket directly from
  the file (file_sender.py).

Deviation: a batch that is damaged on disk is never sent; the partition gets CORRUPT_MESSAGE."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.partition import DelayedFetch, Partition
from ottla.broker.ports import (
    Configuration,
    HostedPartitions,
    Metadata,
    NodeId,
    PartitionLookup,
    Tasks,
    Threads,
    TimeSource,
)
from ottla.broker.replication import FetchingReplica, Replication
from ottla.core.fetch_session import FetchPartition, FetchSession, FetchSessionCache
from ottla.core.replication.divergence import EpochEnd, diverges
from ottla.storage.segment import WouldBlock

API_KEY = 1
READ_COMMITTED = 1
_FIRST_BY_ID = 13
_FIRST_WITH_STORAGE_ERROR = 6
_FIRST_WITH_ZSTD = 10
_FIRST_WITH_LEADER = 16
_FIRST_WITH_RACK = 11


class Ports(
    Configuration,
    HostedPartitions,
    Metadata,
    NodeId,
    PartitionLookup,
    Tasks,
    Threads,
    TimeSource,
    Protocol,
):
    """The parts of a broker that Fetch uses."""

    @property
    def fetch_sessions(self) -> FetchSessionCache: ...

    @property
    def partitions_version(self) -> object:
        """Another object whenever a partition or its leader has changed."""

    @property
    def replication(self) -> Replication | None:
        """None on a standalone broker."""

    def endpoint_for(self, listener: str) -> tuple[str, int]:
        """Return the advertised host and port of a listener of this broker."""


def handle(broker: Ports, context: RequestContext, request: Any) -> Response:
    by_id = context.api_version >= _FIRST_BY_ID
    try:
        session, wanted, incremental = broker.fetch_sessions.resolve(
            request.session_id,
            request.session_epoch,
            _wanted(broker, request, by_id),
            _forgotten(broker, request, by_id),
            by_id,
            broker.clock.time_ms(),
        )
    except KafkaError as error:
        return {"error_code": error.code}
    return Fetch(broker, context, request, session, wanted, incremental).start()


def _wanted(broker: Ports, request: Any, by_id: bool) -> Iterator[FetchPartition]:
    for topic in request.topics:
        name, topic_id = _identify(broker, topic, by_id)
        for partition in topic.partitions:
            yield FetchPartition(
                name,
                topic_id,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
            )


def _forgotten(broker: Ports, request: Any, by_id: bool) -> Iterator[tuple[str, bytes, int]]:
    for topic in request.forgotten_topics_data:
        name, topic_id = _identify(broker, topic, by_id)
        for partition in topic.partitions:
            yield name, topic_id, partition


def _identify(broker: Ports, topic: Any, by_id: bool) -> tuple[str, bytes]:
    """Return (name, ID) of a topic. One requested by ID has no name here: `_key` looks it up for
    every read, since it may change."""
    if not by_id:
        return topic.topic, ZERO_UUID
    return "", topic.topic_id


Outcome: TypeAlias = tuple[list[tuple[FetchPartition, Body]], bool]
"""The partition responses, and whether they are final or the fetch should wait."""


class Fetch:
    """A fetch request, from its arrival to its response."""

    __slots__ = (
        "_response",
        "_broker",
        "_by_id",
        "_bytes",
        "_committed_only",
        "_context",
        "_incremental",
        "_is_scheduled",
        "_is_urgent",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_rack_id",
        "_replica",
        "_session",
        "_timer",
        "_delayed_in",
        "_wanted",
    )

    def __init__(
        self,
        broker: Ports,
        context: RequestContext,
        request: Any,
        session: FetchSession | None,
        wanted: list[FetchPartition],
        incremental: bool,
    ) -> None:
        self._broker = broker
        self._context = context
        self._session = session
        self._wanted = wanted
        self._incremental = incremental
        self._by_id = context.api_version >= _FIRST_BY_ID
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._max_wait_ms = request.max_wait_ms
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._rack_id = request.rack_id
        self._replica = _replica(request)
        self._bytes = 0
        self._is_scheduled = False
        self._is_urgent = False
        self._response: asyncio.Future[Body | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._delayed_in: list[dict[DelayedFetch, None]] = []

    def start(self) -> Response:
        if self._session is not None:
            self._session.invalidate_if_changed(self._broker.partitions_version)
        changed = (
            self._changed()
            if self._replica is None
            else self._record_follower_progress(self._replica)
        )
        try:
            results, is_final = self._read(changed, wait=False)
        except WouldBlock:
            return self._start_in_thread()
        if is_final:
            return self._body(results)
        return self._delay()

    async def _start_in_thread(self) -> Body | None:
        results, is_final = await self._read_in_thread()
        if is_final:
            return self._body(results)
        return await self._delay()

    # --------------------------------------------------------------------------------- waiting

    def _delay(self) -> asyncio.Future[Body | None]:
        loop = asyncio.get_running_loop()
        self._response = loop.create_future()
        self._response.add_done_callback(self._stop_waiting)
        self._timer = loop.call_later(self._max_wait_ms / 1000, self._complete)
        knows = self._cache_is_valid
        found = (
            (knows and wanted.cached_partition) or self._find(wanted) for wanted in self._wanted
        )
        self._delayed_in = [self._delayed_fetches_of(partition) for partition in found if partition]
        for delayed in self._delayed_in:
            delayed[self] = None
        return self._response

    def _delayed_fetches_of(self, partition: Partition) -> dict[DelayedFetch, None]:
        return (
            partition.delayed_fetches
            if self._replica is None
            else partition.delayed_replica_fetches
        )

    def more_bytes(self, count: int, *, is_stable: bool) -> None:
        if self._committed_only and not is_stable:
            return  # the transaction that they may belong to is still open
        self._bytes += count
        if self._bytes >= self._min_bytes:
            self.wake()

    def stable_offset_moved(self) -> None:
        if self._committed_only and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._complete_if_ready)

    def _complete_if_ready(self) -> None:
        """Complete the fetch if there is enough data now; otherwise continue to wait."""
        assert self._response is not None
        if self._response.done():
            return
        self._is_scheduled = False
        try:
            results, is_final = self._read(self._changed(), wait=False)
        except WouldBlock:
            self._broker.spawn(self._complete_in_thread())
            return
        if is_final:
            self._response.set_result(self._body(results))

    def wake(self) -> None:
        """Complete the fetch in the next loop iteration, after the append that woke it; further
        appends of this iteration are then read, too."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._complete)

    def _complete(self) -> None:
        assert self._response is not None
        if self._response.done():
            return
        try:
            results, _ = self._read(self._changed(), wait=False)
        except WouldBlock:
            self._broker.spawn(self._complete_in_thread())
            return
        self._response.set_result(self._body(results))

    async def _complete_in_thread(self) -> None:
        assert self._response is not None
        results, _ = await self._read_in_thread()
        if not self._response.done():
            self._response.set_result(self._body(results))

    def _stop_waiting(self, response: asyncio.Future[Body | None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for delayed in self._delayed_in:
            delayed.pop(self, None)

    # --------------------------------------------------------------------------------- reading

    def _key(self, wanted: FetchPartition) -> tuple[str, int]:
        """Return (topic name, partition), with the current name of a topic requested by ID."""
        if not self._by_id:
            return wanted.topic, wanted.partition
        topic = self._broker.image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic.name, wanted.partition

    def _find(self, wanted: FetchPartition) -> Partition | None:
        try:
            return self._broker.partitions.get(self._key(wanted))
        except KafkaError:
            return None

    @property
    def _cache_is_valid(self) -> bool:
        """Whether the session's cached partitions are still valid (`Broker.partitions_version`)."""
        return (
            self._session is not None
            and self._session.partitions_version is self._broker.partitions_version
        )

    def _changed(self) -> list[FetchPartition]:
        """Return the partitions that may have something new to report."""
        if not self._incremental or not self._cache_is_valid or self._rack_id:
            return self._wanted
        is_caught_up = _is_caught_up if self._replica is None else _is_follower_caught_up
        return [
            each for each in self._wanted if each.cached_partition is None or not is_caught_up(each)
        ]

    def _record_follower_progress(self, replica: FetchingReplica) -> list[FetchPartition]:
        """Record the follower's progress in each partition whose log agrees with ours. Returns the
        partitions that may have something new to report."""
        changed = []
        knows, now = self._incremental and self._cache_is_valid, self._broker.clock.monotonic()
        for wanted in self._wanted:
            found = wanted.cached_partition if knows else None
            if found is None or not _is_follower_caught_up(wanted):
                self._record_partition_progress(replica, wanted)
                changed.append(wanted)
            elif not found.leadership.fetched_again(*replica, wanted.fetch_offset, now):
                self._record_partition_progress(replica, wanted)
        return changed

    async def _read_in_thread(self) -> Outcome:
        changed = self._changed()
        return await self._broker.run_blocking(lambda: self._read(changed, wait=True))

    def _read(self, partitions: list[FetchPartition], *, wait: bool) -> Outcome:
        results = []
        total = readable = 0
        is_final = self._max_wait_ms <= 0 or not self._wanted
        for wanted in partitions:
            room = min(self._max_bytes - total, wanted.max_bytes)
            try:
                body, has_more = self._read_partition(wanted, room, total == 0, wait)
            except KafkaError as error:
                is_final = True
                body, has_more = self._failure(wanted, error), False
            size = len(body["records"])
            total += size
            # Only whole batches are sent. A batch that did not fit counts towards min_bytes as if
            # it had been cut off at the limit.
            readable += max(size, room) if has_more else size
            is_final = is_final or "diverging_epoch" in body or "preferred_read_replica" in body
            results.append((wanted, body))
        self._bytes = readable
        return results, is_final or self._is_urgent or readable >= self._min_bytes

    def _failure(self, wanted: FetchPartition, error: KafkaError) -> Body:
        code, version = error.code, self._context.api_version
        if code == ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_WITH_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        body: Body = {
            "partition_index": wanted.partition,
            "error_code": code,
            "high_watermark": -1,
            "records": b"",
        }
        partition = self._find(wanted)
        is_fenced = code == ErrorCode.FENCED_LEADER_EPOCH and version >= _FIRST_WITH_LEADER
        if is_fenced and partition is not None:
            body["current_leader"] = {
                "leader_id": self._broker.node_id,
                "leader_epoch": partition.leader_epoch,
            }
        return body

    def _record_partition_progress(self, replica: FetchingReplica, wanted: FetchPartition) -> None:
        replication, partition = self._broker.replication, self._find(wanted)
        if partition is None or partition.leadership is None or replication is None:
            return
        if wanted.current_leader_epoch not in (-1, partition.leader_epoch):
            return
        if _diverging_end(partition, wanted) is None:
            replication.fetched(partition, replica, wanted.fetch_offset)

    def _readable_partition(self, wanted: FetchPartition) -> Partition:
        """Return the leader's replica; or a follower's, for a consumer that was directed to it."""
        key = self._key(wanted)
        partition = self._broker.partitions.get(key)
        if (
            self._replica is None
            and partition is not None
            and not partition.is_leader
            and self._context.api_version >= _FIRST_WITH_RACK
            and self._rack_id
        ):
            return partition
        return self._broker.find_partition(key)

    def _read_partition(
        self, wanted: FetchPartition, room: int, is_first: bool, wait: bool
    ) -> tuple[Body, bool]:
        """Return (partition response, whether the partition has more than there was room for)."""
        partition = self._readable_partition(wanted)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        log = partition.log
        if self._context.api_version < _FIRST_WITH_ZSTD and log.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        stable = partition.last_stable_offset
        body: Body = {
            "partition_index": wanted.partition,
            "high_watermark": partition.high_watermark,
            "last_stable_offset": stable,
            "log_start_offset": log.log_start_offset,
            "records": b"",
        }
        diverging = _diverging_end(partition, wanted)
        if diverging is not None:
            if diverging.epoch < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            body["diverging_epoch"] = diverging._asdict()
            return body, False
        if self._replica is not None:
            self._is_urgent = self._is_urgent or partition.awaits_proof
            replication = self._broker.replication
            if replication and replication.throttle.is_quota_exhausted(partition, self._replica.id):
                return body, False
            limit = log.log_end_offset
        else:
            limit = stable if self._committed_only else partition.high_watermark
            preferred = self._preferred_read_replica(partition)
            if preferred is not None:
                body["preferred_read_replica"] = preferred
                return body, False
            if not partition.is_leader and wanted.fetch_offset > limit:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        found = log.read(
            wanted.fetch_offset,
            room,
            limit,
            at_least_one=is_first,
            wait=wait,
            # A follower reads uncommitted records, which a truncation may remove from the file.
            in_file=self._replica is None,
        )
        body["records"] = found.records
        if not wait and not self._rack_id:
            wanted.cached_partition = partition
        if self._committed_only:
            aborted = log.aborted_transactions(wanted.fetch_offset, found.next_offset, wait=wait)
            body["aborted_transactions"] = [
                {"producer_id": txn.producer_id, "first_offset": txn.first_offset}
                for txn in aborted
            ]
        return body, found.next_offset < limit

    def _preferred_read_replica(self, partition: Partition) -> int | None:
        replication = self._broker.replication
        if replication is None or not self._rack_id or partition.leadership is None:
            return None
        preferred: int | None = replication.preferred_read_replica(partition, self._rack_id)
        return preferred

    # -------------------------------------------------------------------------------- response

    def _body(self, results: list[tuple[FetchPartition, Body]]) -> Body:
        session = self._session
        replica, replication = self._replica, self._broker.replication
        topics: dict[tuple[str, bytes], list[Body]] = {}
        nodes: list[Body] = []
        for wanted, body in results:
            if replica is not None and replication is not None and len(body["records"]):
                partition = self._find(wanted)
                if partition is not None:
                    replication.throttle.record_sent(partition, replica.id, len(body["records"]))
            if not nodes and "current_leader" in body:
                host, port = self._broker.endpoint_for(self._context.listener)
                nodes = [{"node_id": self._broker.node_id, "host": host, "port": port}]
            if session is not None:
                if self._incremental and not _has_changes(wanted, body):
                    continue
                self._update_session(session, wanted, body)
            topics.setdefault((wanted.topic, wanted.topic_id), []).append(body)
        return {
            "session_id": 0 if session is None else session.id,
            "responses": [
                {"topic_id": topic_id, "partitions": partitions}
                if self._by_id
                else {"topic": name, "partitions": partitions}
                for (name, topic_id), partitions in topics.items()
            ],
            "node_endpoints": nodes,
        }

    @staticmethod
    def _update_session(session: FetchSession, wanted: FetchPartition, body: Body) -> None:
        if "diverging_epoch" in body:  # after truncating, the follower needs the rest again
            session.record_response(wanted, -1, -1, has_data=False)
            return
        start_offset = body.get("log_start_offset", -1)
        session.record_response(
            wanted, body["high_watermark"], start_offset, has_data=bool(len(body["records"]))
        )


def _replica(request: Any) -> FetchingReplica | None:
    state = request.replica_state
    if state.replica_id >= 0:
        return FetchingReplica(state.replica_id, state.replica_epoch)
    return FetchingReplica(request.replica_id, -1) if request.replica_id >= 0 else None


def _diverging_end(partition: Partition, wanted: FetchPartition) -> EpochEnd | None:
    if wanted.last_fetched_epoch < 0:
        return None
    ours = EpochEnd(*partition.end_of_epoch(wanted.last_fetched_epoch))
    return diverges(wanted.fetch_offset, wanted.last_fetched_epoch, ours)


def _is_caught_up(wanted: FetchPartition) -> bool:
    """Return whether a consumer has read everything it may, and knows the current offsets."""
    found: Partition = wanted.cached_partition
    return (
        wanted.fetch_offset == found.high_watermark == wanted.sent_high_watermark
        and wanted.sent_log_start_offset == found.log.log_start_offset
    )


def _is_follower_caught_up(wanted: FetchPartition) -> bool:
    """Return whether a follower and the ISR have everything, the follower knows the current
    offsets, and no proof of leadership waits for its next fetch."""
    found: Partition = wanted.cached_partition
    log = found.log
    return (
        wanted.fetch_offset == log.log_end_offset
        and wanted.fetch_offset == found.high_watermark == wanted.sent_high_watermark
        and wanted.sent_log_start_offset == log.log_start_offset
        and found.leadership is not None
        and not found.awaits_proof
    )


def _has_changes(wanted: FetchPartition, body: Body) -> bool:
    return (
        len(body["records"]) > 0
        or "error_code" in body
        or "diverging_epoch" in body
        or "preferred_read_replica" in body
        or body["high_watermark"] != wanted.sent_high_watermark
        or body["log_start_offset"] != wanted.sent_log_start_offset
    )

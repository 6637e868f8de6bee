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
  follower's progress; it waits for appends, not for the high watermark. From a connection that is
  not a broker's, it is refused with TOPIC_AUTHORIZATION_FAILED on each partition.
- A consumer in the rack of a follower is directed there (KIP-392, v11+), and may read there.
- A consumer over its quota gets no records and a throttle time (KIP-219). A fetch never reads more
  than the quota of all windows; see `broker.quotas`.
- In a session, partitions without changes cost next to nothing.
- The client needs READ on every topic of the request and of its session, at every fetch. A delayed
  fetch whose client loses it is answered at once, with TOPIC_AUTHORIZATION_FAILED.
- All decisions are made on the event loop; `fetch_ranges` then only reads. Bytes that are not in
  the page cache are read in a thread, so the event loop never waits for the disk. Large ranges that
  are cached and were verified before are sent to the socket directly from the file
  (file_sender.py).

Deviation: a batch that is damaged on disk is never sent; the partition gets CORRUPT_MESSAGE."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID
from ottla.broker.context import RequestContext, Response
from ottla.broker.fetch_ranges import Found, LogRange, read_ranges
from ottla.broker.partition import DelayedFetch, Partition
from ottla.broker.peers import report_stranger
from ottla.broker.ports import (
    Configuration,
    HostedPartitions,
    Metadata,
    NodeId,
    PartitionLookup,
    PeerRecognition,
    Tasks,
    Threads,
    TimeSource,
)
from ottla.broker.replication import FetchingReplica, Replication
from ottla.core.fetch_session import INITIAL_EPOCH, FetchPartition, FetchSession, FetchSessionCache
from ottla.core.replication.divergence import EpochEnd, diverges
from ottla.core.security.permissions import READ_TOPIC
from ottla.storage.segment import WouldBlock
from ottla.wire.api import Api

if TYPE_CHECKING:
    from ottla.wire.messages.fetch import (
        FetchRequest,
        FetchResponseDict,
        FetchTopic,
        ForgottenTopic,
        NodeEndpointDict,
        PartitionDataDict,
    )

READ_COMMITTED = 1
_FIRST_BY_ID = 13
_FIRST_WITH_STORAGE_ERROR = 6
_FIRST_WITH_ZSTD = 10
_FIRST_WITH_LEADER = 16
_FIRST_WITH_RACK = 11
_FINAL_FIELDS = frozenset({"error_code", "diverging_epoch", "preferred_read_replica"})
"""Fields of a partition response for which a fetch does not wait."""


class Ports(
    Configuration,
    HostedPartitions,
    Metadata,
    NodeId,
    PartitionLookup,
    PeerRecognition,
    Tasks,
    Threads,
    TimeSource,
    Protocol,
):
    """The parts of a broker that Fetch uses."""

    @property
    def fetch_sessions(self) -> FetchSessionCache[Partition]: ...

    @property
    def partitions_version(self) -> object:
        """Another object whenever a partition or its leader has changed."""

    @property
    def replication(self) -> Replication | None:
        """None on a standalone broker."""

    def endpoint_for(self, listener: str) -> tuple[str, int]:
        """Return the advertised host and port of a listener of this broker."""


def handle(
    broker: Ports, context: RequestContext, request: FetchRequest
) -> Response[FetchResponseDict]:
    by_id = context.api_version >= _FIRST_BY_ID
    replica = _replica(request)
    if replica is not None and not context.is_peer:
        report_stranger(broker, context, f"to fetch as replica {replica.id}")
        return _refused(request, by_id)
    charge = context.charge if replica is None else None
    is_throttled = charge is not None and charge.refuses_fetch(broker.clock.monotonic())
    if is_throttled and request.session_epoch <= INITIAL_EPOCH:
        return {"session_id": 0, "responses": []}  # opens no session, as in Kafka
    try:
        session, wanted, incremental = broker.fetch_sessions.resolve(
            request.session_id,
            request.session_epoch,
            _wanted(request, by_id),
            _forgotten(request, by_id),
            by_id,
            broker.clock.time_ms(),
            context.principal,
        )
    except KafkaError as error:
        return {"error_code": error.code}
    if is_throttled:
        return {"session_id": 0 if session is None else session.id, "responses": []}
    return Fetch(broker, context, request, replica, session, wanted, incremental).start()


def _refused(request: FetchRequest, by_id: bool) -> FetchResponseDict:
    """Return the response to a client that poses as a follower."""
    if not request.topics:  # the partitions of its session
        return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    return {
        "responses": [
            {
                **({"topic_id": topic.topic_id} if by_id else {"topic": topic.topic}),
                "partitions": [
                    {
                        "partition_index": partition.partition,
                        "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        "high_watermark": -1,
                        "records": b"",
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _wanted(request: FetchRequest, by_id: bool) -> Iterator[FetchedPartition]:
    for topic in request.topics:
        name, topic_id = _identify(topic, by_id)
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


def _forgotten(request: FetchRequest, by_id: bool) -> Iterator[tuple[str, bytes, int]]:
    for topic in request.forgotten_topics_data:
        name, topic_id = _identify(topic, by_id)
        for partition in topic.partitions:
            yield name, topic_id, partition


def _identify(topic: FetchTopic | ForgottenTopic, by_id: bool) -> tuple[str, bytes]:
    """Return (name, ID) of a topic. One requested by ID has no name here: `_key` looks it up for
    every read, since it may change."""
    if not by_id:
        return topic.topic, ZERO_UUID
    return "", topic.topic_id


FetchedPartition: TypeAlias = FetchPartition[Partition]

Planned: TypeAlias = "tuple[FetchedPartition, PartitionDataDict, Partition | None, LogRange | None]"
"""A partition as requested, its part of the response without records, this broker's partition, and
what to read from its log: None if the response has no records."""

Result: TypeAlias = "tuple[FetchedPartition, PartitionDataDict, int]"
"""A partition, its part of the response, and the size of the records in it."""

Outcome: TypeAlias = tuple[list[Result], bool]
"""The results, and whether they are final or the fetch should wait."""


class Fetch:
    """A fetch request, from its arrival to its response."""

    __slots__ = (
        "_access",
        "_response",
        "_broker",
        "_by_id",
        "_can_send_files",
        "_charge",
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
        request: FetchRequest,
        replica: FetchingReplica | None,
        session: FetchSession[Partition] | None,
        wanted: list[FetchedPartition],
        incremental: bool,
    ) -> None:
        self._broker = broker
        self._context = context
        self._access = context.access if replica is None else None
        self._session = session
        self._wanted = wanted
        self._incremental = incremental
        self._by_id = context.api_version >= _FIRST_BY_ID
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._charge = context.charge if replica is None else None
        if self._charge is not None:
            allowed = self._charge.max_fetch_bytes(broker.clock.monotonic())
            self._max_bytes = self._max_bytes if allowed is None else min(self._max_bytes, allowed)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._max_wait_ms = request.max_wait_ms
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._rack_id = request.rack_id
        self._replica = replica
        # A follower reads uncommitted records, which a truncation may remove from the file.
        self._can_send_files = self._replica is None and not context.is_tls
        self._bytes = 0
        self._is_scheduled = False
        self._is_urgent = False
        self._response: asyncio.Future[FetchResponseDict | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._delayed_in: list[dict[DelayedFetch, None]] = []

    def start(self) -> Response[FetchResponseDict]:
        if self._session is not None:
            self._session.invalidate_if_changed(self._broker.partitions_version)
        changed = (
            self._changed()
            if self._replica is None
            else self._record_follower_progress(self._replica)
        )
        planned = self._plan(changed)
        try:
            found = self._read(planned)
        except WouldBlock:
            return self._start_in_thread(planned)
        results, is_final = self._outcome(planned, found, can_cache=True)
        if is_final:
            return self._body(results)
        return self._delay()

    async def _start_in_thread(self, planned: list[Planned]) -> FetchResponseDict | None:
        found = await self._read_in_thread(planned)
        results, is_final = self._outcome(planned, found, can_cache=False)
        if is_final:
            return self._body(results)
        response = self._delay()
        self.access_changed()  # it may have changed during the read
        return await response

    # --------------------------------------------------------------------------------- waiting

    def _delay(self) -> asyncio.Future[FetchResponseDict | None]:
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

    def access_changed(self) -> None:
        if self._access is not None and not all(map(self._may_read, self._wanted)):
            self.wake()

    def _may_read(self, wanted: FetchedPartition) -> bool:
        try:
            self._check_access(self._key(wanted)[0])
        except KafkaError as error:
            return error.code != READ_TOPIC.error
        return True

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
        planned = self._plan(self._changed())
        try:
            found = self._read(planned)
        except WouldBlock:
            self._broker.spawn(self._complete_in_thread(planned))
            return
        results, is_final = self._outcome(planned, found, can_cache=True)
        if is_final:
            self._response.set_result(self._body(results))

    def wake(self) -> None:
        """Complete the fetch in the next loop iteration, after the append that woke it; further
        appends of this iteration are then read, too."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._complete)

    def _complete(self) -> None:
        charge = self._charge
        if charge is None:
            self._read_and_respond()
            return
        charge.begin(self._broker.clock.monotonic())
        self._read_and_respond()
        charge.end(self._broker.clock.monotonic())

    def _read_and_respond(self) -> None:
        assert self._response is not None
        if self._response.done():
            return
        planned = self._plan(self._changed())
        try:
            found = self._read(planned)
        except WouldBlock:
            self._broker.spawn(self._complete_in_thread(planned))
            return
        results, _ = self._outcome(planned, found, can_cache=True)
        self._response.set_result(self._body(results))

    async def _complete_in_thread(self, planned: list[Planned]) -> None:
        assert self._response is not None
        found = await self._read_in_thread(planned)
        if not self._response.done():
            results, _ = self._outcome(planned, found, can_cache=False)
            self._response.set_result(self._body(results))

    def _stop_waiting(self, response: asyncio.Future[FetchResponseDict | None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for delayed in self._delayed_in:
            delayed.pop(self, None)

    # --------------------------------------------------------------------------------- reading

    def _key(self, wanted: FetchedPartition) -> tuple[str, int]:
        """Return (topic name, partition), with the current name of a topic requested by ID."""
        if not self._by_id:
            return wanted.topic, wanted.partition
        topic = self._broker.image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic.name, wanted.partition

    def _check_access(self, topic: str) -> None:
        access = self._access
        if access is not None and not access.may(Api.FETCH, READ_TOPIC, topic):
            raise KafkaError(READ_TOPIC.error)

    def _find(self, wanted: FetchedPartition) -> Partition | None:
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

    def _changed(self) -> list[FetchedPartition]:
        """Return the partitions that may have something new to report."""
        if not self._incremental or not self._cache_is_valid or self._rack_id:
            return self._wanted
        is_caught_up = _is_caught_up if self._replica is None else _is_follower_caught_up
        return [
            each
            for each in self._wanted
            if (found := each.cached_partition) is None or not is_caught_up(each, found)
        ]

    def _record_follower_progress(self, replica: FetchingReplica) -> list[FetchedPartition]:
        """Record the follower's progress in each partition whose log agrees with ours. Returns the
        partitions that may have something new to report."""
        changed = []
        knows, now = self._incremental and self._cache_is_valid, self._broker.clock.monotonic()
        for wanted in self._wanted:
            found = wanted.cached_partition if knows else None
            if found is None or not _is_follower_caught_up(wanted, found):
                self._record_partition_progress(replica, wanted)
                changed.append(wanted)
            elif found.leadership is None or not found.leadership.fetched_again(
                *replica, wanted.fetch_offset, now
            ):
                self._record_partition_progress(replica, wanted)
        return changed

    def _plan(self, partitions: list[FetchedPartition]) -> list[Planned]:
        """Decide what to read from each partition. Reading it changes nothing any more."""
        planned: list[Planned] = []
        for wanted in partitions:
            try:
                planned.append(self._plan_partition(wanted))
            except KafkaError as error:
                planned.append((wanted, self._failure(wanted, error), None, None))
        return planned

    def _read(self, planned: list[Planned]) -> list[Found]:
        """Read on the event loop. Raises WouldBlock if that would have to wait for the disk."""
        return read_ranges(
            [each[3] for each in planned],
            self._max_bytes,
            with_aborted=self._committed_only,
            in_file=self._can_send_files,
            wait=False,
        )

    async def _read_in_thread(self, planned: list[Planned]) -> list[Found]:
        read = partial(
            read_ranges,
            [each[3] for each in planned],
            self._max_bytes,
            with_aborted=self._committed_only,
            in_file=self._can_send_files,
            wait=True,
        )
        return await self._broker.run_blocking(read)

    def _outcome(self, planned: list[Planned], found: list[Found], *, can_cache: bool) -> Outcome:
        """Combine the plan with what was read.

        Args:
            planned: The plan.
            found: The result for each partition of the plan.
            can_cache: Whether the plan is of this iteration of the event loop, so that the session
                may cache its partitions.
        """
        results: list[Result] = []
        total = readable = 0
        is_final = self._max_wait_ms <= 0 or not self._wanted
        can_cache = can_cache and not self._rack_id
        for (wanted, body, partition, log_range), result in zip(planned, found, strict=True):
            size = 0
            if isinstance(result, KafkaError):
                body, is_final = self._failure(wanted, result), True
            elif result is None or log_range is None:
                is_final = is_final or not _FINAL_FIELDS.isdisjoint(body)
            else:
                batches, aborted = result
                body["records"] = batches.records
                if self._committed_only:
                    body["aborted_transactions"] = [
                        {"producer_id": txn.producer_id, "first_offset": txn.first_offset}
                        for txn in aborted
                    ]
                if can_cache:
                    wanted.cached_partition = partition
                size = len(batches.records)
                _, _, max_bytes, end_offset = log_range
                # Only whole batches are sent. A batch that did not fit counts towards min_bytes as
                # if it had been cut off at the limit.
                has_more = batches.next_offset < end_offset
                readable += max(size, min(self._max_bytes - total, max_bytes)) if has_more else size
                total += size
            results.append((wanted, body, size))
        self._bytes = readable
        return results, is_final or self._is_urgent or readable >= self._min_bytes

    def _failure(self, wanted: FetchedPartition, error: KafkaError) -> PartitionDataDict:
        code, version = error.code, self._context.api_version
        if code == ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_WITH_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        body: PartitionDataDict = {
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

    def _record_partition_progress(
        self, replica: FetchingReplica, wanted: FetchedPartition
    ) -> None:
        replication, partition = self._broker.replication, self._find(wanted)
        if partition is None or partition.leadership is None or replication is None:
            return
        if wanted.current_leader_epoch not in (-1, partition.leader_epoch):
            return
        if _diverging_end(partition, wanted) is None:
            replication.fetched(partition, replica, wanted.fetch_offset)

    def _readable_partition(self, wanted: FetchedPartition) -> Partition:
        """Return the leader's replica; or a follower's, for a consumer that was directed to it."""
        key = self._key(wanted)
        self._check_access(key[0])
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

    def _plan_partition(self, wanted: FetchedPartition) -> Planned:
        """Return the response without records, and what to read. Raises KafkaError."""
        partition = self._readable_partition(wanted)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        log = partition.log
        if self._context.api_version < _FIRST_WITH_ZSTD and log.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        stable = partition.last_stable_offset
        body: PartitionDataDict = {
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
            body["diverging_epoch"] = {
                "epoch": diverging.epoch,
                "end_offset": diverging.end_offset,
            }
            return wanted, body, partition, None
        if self._replica is not None:
            self._is_urgent = self._is_urgent or partition.awaits_proof
            replication = self._broker.replication
            if replication and replication.throttle.is_quota_exhausted(partition, self._replica.id):
                return wanted, body, partition, None
            limit = log.log_end_offset
        else:
            limit = stable if self._committed_only else partition.high_watermark
            preferred = self._preferred_read_replica(partition)
            if preferred is not None:
                body["preferred_read_replica"] = preferred
                return wanted, body, partition, None
            if not partition.is_leader and wanted.fetch_offset > limit:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return wanted, body, partition, (log, wanted.fetch_offset, wanted.max_bytes, limit)

    def _preferred_read_replica(self, partition: Partition) -> int | None:
        replication = self._broker.replication
        if replication is None or not self._rack_id or partition.leadership is None:
            return None
        preferred: int | None = replication.preferred_read_replica(partition, self._rack_id)
        return preferred

    # -------------------------------------------------------------------------------- response

    def _body(self, results: list[Result]) -> FetchResponseDict:
        session, charge = self._session, self._charge
        if charge is not None:
            now = self._broker.clock.monotonic()
            size = sum(each[2] for each in results)
            if size and charge.refuses_fetch(now):  # another connection was faster
                return self._throttled_body()
            charge.record_fetched(size, now)
        replica, replication = self._replica, self._broker.replication
        topics: dict[tuple[str, bytes], list[PartitionDataDict]] = {}
        nodes: list[NodeEndpointDict] = []
        for wanted, body, size in results:
            if replica is not None and replication is not None and size:
                partition = self._find(wanted)
                if partition is not None:
                    replication.throttle.record_sent(partition, replica.id, size)
            if not nodes and "current_leader" in body:
                host, port = self._broker.endpoint_for(self._context.listener)
                nodes = [{"node_id": self._broker.node_id, "host": host, "port": port}]
            if session is not None:
                if self._incremental and not _has_changes(wanted, body, size):
                    continue
                self._update_session(session, wanted, body, has_data=size > 0)
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

    def _throttled_body(self) -> FetchResponseDict:
        """Return the response to a client over its quota: no records, and no change of its session.
        A new session is dropped, because the client does not accept it with such a response."""
        session = self._session
        if session is None or self._incremental:
            return {"session_id": 0 if session is None else session.id, "responses": []}
        self._broker.fetch_sessions.discard(session)
        return {"session_id": 0, "responses": []}

    @staticmethod
    def _update_session(
        session: FetchSession[Partition],
        wanted: FetchedPartition,
        body: PartitionDataDict,
        *,
        has_data: bool,
    ) -> None:
        if "diverging_epoch" in body:  # after truncating, the follower needs the rest again
            session.record_response(wanted, -1, -1, has_data=False)
            return
        start_offset = body.get("log_start_offset", -1)
        session.record_response(wanted, body["high_watermark"], start_offset, has_data=has_data)


def _replica(request: FetchRequest) -> FetchingReplica | None:
    state = request.replica_state
    if state.replica_id >= 0:
        return FetchingReplica(state.replica_id, state.replica_epoch)
    return FetchingReplica(request.replica_id, -1) if request.replica_id >= 0 else None


def _diverging_end(partition: Partition, wanted: FetchedPartition) -> EpochEnd | None:
    if wanted.last_fetched_epoch < 0:
        return None
    ours = EpochEnd(*partition.end_of_epoch(wanted.last_fetched_epoch))
    return diverges(wanted.fetch_offset, wanted.last_fetched_epoch, ours)


def _is_caught_up(wanted: FetchedPartition, found: Partition) -> bool:
    """Return whether a consumer has read everything it may, and knows the current offsets."""
    return (
        wanted.fetch_offset == found.high_watermark == wanted.sent_high_watermark
        and wanted.sent_log_start_offset == found.log.log_start_offset
    )


def _is_follower_caught_up(wanted: FetchedPartition, found: Partition) -> bool:
    """Return whether a follower and the ISR have everything, the follower knows the current
    offsets, and no proof of leadership waits for its next fetch."""
    log = found.log
    return (
        wanted.fetch_offset == log.log_end_offset
        and wanted.fetch_offset == found.high_watermark == wanted.sent_high_watermark
        and wanted.sent_log_start_offset == log.log_start_offset
        and found.leadership is not None
        and not found.awaits_proof
    )


def _has_changes(wanted: FetchedPartition, body: PartitionDataDict, size: int) -> bool:
    return (
        size > 0
        or "error_code" in body
        or "diverging_epoch" in body
        or "preferred_read_replica" in body
        or body["high_watermark"] != wanted.sent_high_watermark
        or body["log_start_offset"] != wanted.sent_log_start_offset
    )

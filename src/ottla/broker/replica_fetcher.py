"""The follower side of replication: one connection to a leader, one fetch at a time.

The fetcher sends Kafka's Fetch with the replica's ID and broker epoch (incarnation), for all
partitions that follow this leader. Each partition fetches from its log end offset and names the
epoch of its last record. The leader returns records, or the point where the logs diverge
(core.replication.divergence); then the follower truncates its log and fetches again. Requests
contain only what has changed since the last one (core.replication.follower_session).

A partition that fails is not fetched for `replica.fetch.backoff.ms`; the others continue. An
offline partition is not fetched: the leader must not count on records that may be lost. Neither is
one whose disk refuses writes, until it recovers: it has left the ISR, and would only rejoin to
hold up the next write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.logs import Logs
from ottla.broker.partition import Partition
from ottla.broker.peers import peer_client_id
from ottla.broker.ports import Configuration, Flushing, PeerEndpoints, TimeSource
from ottla.broker.replication_throttle import ReplicationThrottle
from ottla.broker.truncation import Truncations
from ottla.core.replication.divergence import EpochEnd, truncation_offset
from ottla.core.replication.follower_session import FetchParams, FollowerSession, PartitionId
from ottla.net.connection import Connection
from ottla.net.errors import AuthenticationFailed, ClientError
from ottla.wire import rpc
from ottla.wire.records.batch import iter_headers, validate
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.fetch import FetchPartitionDict, FetchResponse, PartitionData
    from ottla.wire.messages.list_offsets import ListOffsetsPartitionDict

logger = logging.getLogger(__name__)

MIN_FETCH_VERSION = 15
"""The first version with the replica's epoch."""
EARLIEST, LATEST = -2, -1
CONNECT_TIMEOUT_S = 5.0
QUIET_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors caused by metadata that one side does not have yet."""
LOST_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


_NO_FETCH_PARAMS = FetchParams(-1, -1, -1, -1, -1)


class _FollowedPartition:
    __slots__ = ("id", "not_before", "partition", "fetch_params", "topic_id")

    def __init__(self, partition: Partition, topic_id: bytes) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.id: PartitionId = (topic_id, partition.key.partition)
        self.not_before = 0.0
        self.fetch_params = _NO_FETCH_PARAMS
        """The state that the last fetch requested for the partition."""


class FetcherPorts(Configuration, Flushing, PeerEndpoints, TimeSource, Protocol):
    """The parts of a broker that a replica fetcher uses."""

    @property
    def logs(self) -> Logs: ...


class ReplicaFetcher:
    """The fetch loop for all partitions that this broker follows from one leader."""

    def __init__(
        self,
        broker: FetcherPorts,
        leader: int,
        incarnation: Callable[[], int],
        truncations: Truncations,
        throttle: ReplicationThrottle,
    ) -> None:
        self._broker = broker
        self._leader = leader
        self._incarnation = incarnation
        self._truncations = truncations
        self._throttle = throttle
        self._followed: dict[TopicPartition, _FollowedPartition] = {}
        self._changed = asyncio.Event()
        self._session = FollowerSession()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, partition: Partition, topic_id: bytes) -> None:
        known = self._followed.get(partition.key)
        if known is None or known.partition is not partition or known.topic_id != topic_id:
            self._followed[partition.key] = _FollowedPartition(partition, topic_id)
        else:
            known.not_before = 0.0
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"fetch-from-{self._leader}")

    def unfollow(self, key: TopicPartition) -> None:
        self._followed.pop(key, None)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._disconnect()

    # -------------------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while True:
            try:
                await self._once()
            except AuthenticationFailed as error:
                logger.warning("Replica fetch from broker %d failed: %s", self._leader, error)
                self._disconnect()
                await self._back_off()
            except ClientError as error:
                logger.info("Replica fetch from broker %d failed: %s", self._leader, error)
                self._disconnect()
                await self._back_off()
            except Exception:
                logger.exception("Replica fetch from broker %d failed", self._leader)
                self._disconnect()
                await self._back_off()

    async def _back_off(self) -> None:
        await asyncio.sleep(self._broker.config.replica_fetch_backoff_ms / 1000)

    async def _once(self) -> None:
        now = self._broker.clock.monotonic()
        due = [
            each
            for each in self._followed.values()
            if each.not_before <= now and each.partition.offline_reason is None
        ]
        rejecting = self._broker.logs.disk_watch.rejecting
        if rejecting:
            due = [each for each in due if each.partition.key not in rejecting]
        due = self._not_throttled(due)
        if not due or self._incarnation() < 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(self._broker.config.replica_fetch_backoff_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass
            return
        connection = await self._connected()
        config = self._broker.config
        timeout_s = (config.replica_fetch_wait_max_ms + config.replica_socket_timeout_ms) / 1000
        fetch_params = self._fetch_params(due)
        response = await connection.request(
            self._request(fetch_params), timeout_s, min_version=MIN_FETCH_VERSION
        )
        if response.error_code in LOST_SESSION and self._session.is_open:
            self._session.reset()
            return
        if response.error_code:
            raise ClientError(f"the leader rejected the fetch: {response.error_code}")
        self._session.on_response(response.session_id)
        if not response.responses:
            return
        by_id = {each.id: each for each in due}
        for topic in response.responses:
            for partition_data in topic.partitions:
                followed = by_id.get((topic.topic_id, partition_data.partition_index))
                if followed is not None:
                    await self._process(
                        followed, partition_data, fetch_params[followed.id].leader_epoch
                    )

    def _not_throttled(self, due: list[_FollowedPartition]) -> list[_FollowedPartition]:
        if not self._throttle.is_fetch_quota_exhausted():
            return due
        return [each for each in due if not self._throttle.is_throttled(each.partition)]

    def _fetch_params(self, due: list[_FollowedPartition]) -> dict[PartitionId, FetchParams]:
        """Return what to request for each partition. Unchanged requests are the same objects as
        before, so that the session can skip them."""
        max_bytes = self._broker.config.replica_fetch_max_bytes
        params = {}
        for each in due:
            partition = each.partition
            log = partition.log
            current = (
                partition.leader_epoch,
                log.log_end_offset,
                log.epochs.latest_epoch,
                log.log_start_offset,
                max_bytes,
            )
            if current != each.fetch_params:
                each.fetch_params = FetchParams(*current)
            params[each.id] = each.fetch_params
        return params

    def _request(self, wanted: Mapping[PartitionId, FetchParams]) -> Request[FetchResponse]:
        config = self._broker.config
        session_id, session_epoch, changed, forgotten = self._session.request(wanted)
        topics: dict[bytes, list[FetchPartitionDict]] = {}
        for (topic_id, partition), params in changed.items():
            topics.setdefault(topic_id, []).append(
                {
                    "partition": partition,
                    "current_leader_epoch": params.leader_epoch,
                    "fetch_offset": params.offset,
                    "last_fetched_epoch": params.last_epoch,
                    "log_start_offset": params.start_offset,
                    "partition_max_bytes": params.max_bytes,
                }
            )
        gone: dict[bytes, list[int]] = {}
        for topic_id, partition in forgotten:
            gone.setdefault(topic_id, []).append(partition)
        return rpc.fetch(
            replica_state={
                "replica_id": self._broker.node_id,
                "replica_epoch": self._incarnation(),
            },
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in topics.items()
            ],
            forgotten_topics_data=[
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in gone.items()
            ],
        )

    # ------------------------------------------------------------------------------ responses

    async def _process(self, followed: _FollowedPartition, data: PartitionData, epoch: int) -> None:
        """Process the leader's response for one partition, unless the role has changed since the
        request."""
        partition = followed.partition
        if not self._still_follows(followed, epoch):
            self._session.reset()  # a full fetch makes the leader send this response again
            return
        try:
            if data.error_code:
                await self._process_error(followed, data.error_code, epoch)
            elif data.diverging_epoch.epoch >= 0:
                end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                log = partition.log
                offset = truncation_offset(
                    end, log.epochs, log.log_end_offset, partition.high_watermark
                )
                await self._truncate(followed, epoch, offset)
            else:
                restart_offset = _restart_offset(partition, data)
                if restart_offset is not None:
                    await self._truncations.truncate_fully(
                        partition, restart_offset, lambda: self._still_follows(followed, epoch)
                    )
                    if partition.log.log_end_offset != restart_offset:
                        self._session.reset()
                        return
                self._append(partition, data)
        except KafkaError as error:
            logger.warning("%s: could not follow the leader: %s", partition.key, error.message)
            self._session.reset()
            self._back_off_partition(followed)

    def _still_follows(self, followed: _FollowedPartition, epoch: int) -> bool:
        partition = followed.partition
        return (
            self._followed.get(partition.key) is followed
            and not partition.is_leader
            and partition.leader_epoch == epoch
        )

    def _append(self, partition: Partition, data: PartitionData) -> None:
        now_ms = self._broker.clock.time_ms()
        records = data.records
        if records is not None and len(records):
            if self._throttle.is_throttled(partition):
                self._throttle.record_fetched(len(records))
            for header in iter_headers(records):
                validate(records, header.position, header)
                if header.base_offset >= partition.log.log_end_offset:
                    batch = records[header.position : header.end]
                    partition.append_replicated(batch, header, now_ms)
            if partition.waits_for_sync or partition.log.wants_flush:
                self._broker.flusher.request(partition)
        partition.follow_high_watermark(data.high_watermark)
        if data.log_start_offset > partition.log.log_start_offset:
            start = min(data.log_start_offset, partition.high_watermark)
            if start > partition.log.log_start_offset:
                partition.log.advance_start_offset(start)

    async def _process_error(self, followed: _FollowedPartition, code: int, epoch: int) -> None:
        partition = followed.partition
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._handle_out_of_range(followed, epoch)
            return
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise AuthenticationFailed(
                "it does not recognize this broker as a member of the cluster; its super.users "
                "must contain the principal of this broker"
            )
        if code not in QUIET_ERRORS:
            logger.warning(
                "%s: broker %d returned %s to its follower", partition.key, self._leader, code
            )
        self._back_off_partition(followed)

    async def _handle_out_of_range(self, followed: _FollowedPartition, epoch: int) -> None:
        """Handle an end offset outside the leader's log: truncate if it is after the leader's end,
        start over with an empty log if it is before the leader's start."""
        partition = followed.partition
        end = await self._list_offset(partition, LATEST)
        start = await self._list_offset(partition, EARLIEST)
        if not self._still_follows(followed, epoch):
            return
        log_end = partition.log.log_end_offset
        if end < log_end:
            await self._truncate(followed, epoch, end)
        elif start > log_end:
            await self._truncate_fully(followed, epoch, start)
        else:
            self._back_off_partition(followed)

    async def _list_offset(self, partition: Partition, timestamp: int) -> int:
        connection = await self._connected()
        requested: ListOffsetsPartitionDict = {
            "partition_index": partition.key.partition,
            "current_leader_epoch": partition.leader_epoch,
            "timestamp": timestamp,
        }
        request = rpc.list_offsets(
            replica_id=self._broker.node_id,
            topics=[{"name": partition.key.topic, "partitions": [requested]}],
        )
        timeout_s = self._broker.config.replica_socket_timeout_ms / 1000
        response = await connection.request(request, timeout_s)
        result = response.topics[0].partitions[0]
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code))
        return result.offset

    async def _truncate(self, followed: _FollowedPartition, epoch: int, offset: int) -> None:
        partition, log = followed.partition, followed.partition.log
        if offset >= log.log_end_offset:
            # An epoch in which this broker led but wrote nothing: the leader does not know it.
            log.epochs.truncate_from_end(offset)
            return
        await self._truncations.truncate_to(
            partition, offset, lambda: self._still_follows(followed, epoch)
        )

    async def _truncate_fully(self, followed: _FollowedPartition, epoch: int, offset: int) -> None:
        await self._truncations.truncate_fully(
            followed.partition, offset, lambda: self._still_follows(followed, epoch)
        )

    def _back_off_partition(self, followed: _FollowedPartition) -> None:
        backoff_s = self._broker.config.replica_fetch_backoff_ms / 1000
        followed.not_before = self._broker.clock.monotonic() + backoff_s

    # ------------------------------------------------------------------------- the connection

    async def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        host, port = self._broker.peer_endpoint(self._leader)
        self._connection = await Connection.open(
            host,
            port,
            client_id=peer_client_id(self._broker.node_id),
            timeout_s=CONNECT_TIMEOUT_S,
            tls=self._broker.peer_tls(),
            authenticate=self._broker.peer_authenticator(),
        )
        return self._connection

    def _disconnect(self) -> None:
        self._session.reset()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _restart_offset(partition: Partition, data: PartitionData) -> int | None:
    """Return the offset at which an empty log must start to hold the leader's first batch, or None.

    DeleteRecords can move the log start offset of the leader into a batch. A follower that starts
    there is sent the whole batch.
    """
    log, records = partition.log, data.records
    if records is None or not len(records) or log.log_start_offset != log.log_end_offset:
        return None
    first = next(iter_headers(records), None)
    if first is None or not first.base_offset < log.log_end_offset <= first.last_offset:
        return None
    return first.base_offset

"""Incremental fetch sessions (KIP-227): a client lists its partitions once, then only changes.

A fetch request has a session id and an epoch:

    id   epoch   meaning
    0    0       full fetch; open a session
    0    -1      full fetch without a session
    n    0       full fetch; close session n and open a new one
    n    -1      full fetch; close session n
    n    k > 0   incremental fetch: session n, which must be at epoch k

A session identifies topics either by name or by id for its whole life: a client that switches
(because it now uses another version of Fetch) must open a new session. A session without partitions
is closed.

An incremental response contains a partition only if it has records, an error, a preferred read
replica, a diverging epoch, or a high watermark or log start offset that the client has not received
yet. Partitions that returned data move to the end of the session's order, so that the byte limit
starves none of them.

A session may have thousands of partitions, and only a few have news. The broker therefore caches
the partition it found for each entry (`cached_partition`), as long as the client's request and the
set of hosted partitions stay the same. A few comparisons then show whether there is anything to
return.

The cache is bounded. A new session evicts one that has not been used for MIN_EVICTION_MS; if there
is none, the client continues with full fetches.

A session belongs to the principal that opened it. IDs are easy to guess, so to every other
principal the session does not exist: it can neither read the session's partitions, nor move its
offsets, nor close it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.principal import ANONYMOUS, Principal

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_MS = 120_000

PartitionT = TypeVar("PartitionT")
"""The broker's partition, which sessions only cache."""


@dataclass(slots=True)
class FetchPartition(Generic[PartitionT]):
    """A partition as requested by the client, and the offsets last returned for it."""

    topic: str
    topic_id: bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    cached_partition: PartitionT | None = None
    """The broker's partition, cached if the last fetch was valid and the logs do not diverge."""

    def update(self, other: FetchPartition[PartitionT]) -> None:
        self.cached_partition = None
        if other.current_leader_epoch != self.current_leader_epoch:
            # The client may have ignored offsets it received under another leader epoch.
            self.sent_high_watermark = self.sent_log_start_offset = -1
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


@dataclass(slots=True)
class FetchSession(Generic[PartitionT]):
    """An open fetch session: its partitions, and the epoch that the next request must have."""

    id: int
    epoch: int
    by_id: bool
    """Whether the session identifies topics by id."""
    last_used_ms: int
    owner: Principal = ANONYMOUS
    partitions: dict[tuple[str, bytes, int], FetchPartition[PartitionT]] = field(
        default_factory=dict
    )
    partitions_version: object = None
    """The set of partitions that the broker hosted when `cached_partition` was filled in."""

    def invalidate_if_changed(self, partitions_version: object) -> None:
        """Clear the cached partitions if the set of hosted partitions has changed."""
        if partitions_version is not self.partitions_version:
            self.partitions_version = partitions_version
            for partition in self.partitions.values():
                partition.cached_partition = None

    def add(self, partition: FetchPartition[PartitionT]) -> None:
        key = (partition.topic, partition.topic_id, partition.partition)
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = partition
        else:
            known.update(partition)

    def record_response(
        self,
        partition: FetchPartition[PartitionT],
        high_watermark: int,
        start_offset: int,
        *,
        has_data: bool,
    ) -> None:
        """Record that the response contains the partition.

        Args:
            partition: The session's partition.
            high_watermark: The high watermark that was returned.
            start_offset: The log start offset that was returned.
            has_data: Whether records were returned; the partition then moves to the end.
        """
        partition.sent_high_watermark = high_watermark
        partition.sent_log_start_offset = start_offset
        if has_data and len(self.partitions) > 1:
            key = (partition.topic, partition.topic_id, partition.partition)
            if self.partitions.pop(key, None) is not None:
                self.partitions[key] = partition


class FetchSessionCache(Generic[PartitionT]):
    """All fetch sessions of a broker.

    Args:
        max_sessions: The maximum number of sessions.
        first_id: The first session id to use. It should be random, so that clients with a session
            from before a restart are not confused with new ones.
    """

    def __init__(self, max_sessions: int, first_id: int) -> None:
        self._max_sessions = max_sessions
        self._next_id = first_id
        self._sessions: OrderedDict[int, FetchSession[PartitionT]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self,
        session_id: int,
        epoch: int,
        partitions: Iterable[FetchPartition[PartitionT]],
        forgotten: Iterable[tuple[str, bytes, int]],
        by_id: bool,
        now_ms: int,
        owner: Principal = ANONYMOUS,
    ) -> tuple[FetchSession[PartitionT] | None, list[FetchPartition[PartitionT]], bool]:
        """Find, open or close the session of a fetch request.

        Args:
            session_id: The session id in the request.
            epoch: The session epoch in the request.
            partitions: The partitions in the request.
            forgotten: The keys of the partitions to remove from the session.
            by_id: Whether the request identifies topics by id.
            now_ms: The current time.
            owner: The principal of the client.

        Returns:
            The session or None, the partitions to fetch, and whether the response is incremental.

        Raises:
            KafkaError: The session does not exist, is at another epoch, or identifies topics the
                other way.
        """
        session = self._session_of(owner, session_id)
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                del self._sessions[session_id]
            wanted = list(partitions)
            if epoch == FINAL_EPOCH:
                return None, wanted, False
            session = self._open(by_id, now_ms, owner)
            if session is not None:
                for partition in wanted:
                    session.add(partition)
            return session, wanted, False
        if session is None:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"Fetch session {session_id} does not exist"
            )
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"Fetch session {session_id} is at epoch {session.epoch}, but the request has "
                f"epoch {epoch}",
            )
        if by_id != session.by_id:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"Fetch session {session_id} identifies topics by "
                f"{'id' if session.by_id else 'name'}",
            )
        for partition in partitions:
            session.add(partition)
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            del self._sessions[session_id]
            return None, [], False
        self._advance(session, now_ms)
        return session, list(session.partitions.values()), True

    def discard(self, session: FetchSession[PartitionT]) -> None:
        """Drop a session that the client does not know."""
        self._sessions.pop(session.id, None)

    def _session_of(self, owner: Principal, session_id: int) -> FetchSession[PartitionT] | None:
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def _advance(self, session: FetchSession[PartitionT], now_ms: int) -> None:
        session.epoch = 1 if session.epoch >= MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)

    def _open(self, by_id: bool, now_ms: int, owner: Principal) -> FetchSession[PartitionT] | None:
        if len(self._sessions) >= self._max_sessions:
            if not self._sessions:
                return None
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms < MIN_EVICTION_MS:
                return None
            del self._sessions[oldest.id]
        while self._next_id in self._sessions or self._next_id <= 0:
            self._next_id = self._next_id % MAX_EPOCH + 1
        session: FetchSession[PartitionT] = FetchSession(
            self._next_id, INITIAL_EPOCH + 1, by_id, now_ms, owner
        )
        self._sessions[session.id] = session
        self._next_id = self._next_id % MAX_EPOCH + 1
        return session

"""A partition leader's view of its replicas, within one leader epoch.

    committed ISR   the ISR in the metadata store: (broker, incarnation) pairs
    pending ISR     a change that this leader has sent to the store, with an unknown outcome so far
    maximal ISR     the union of both

Rules
1. The high watermark is the lowest log end offset in the *maximal* ISR: a broker that may be in the
   ISR from the controller's point of view must have every record that consumers have seen. acks=all
   is granted only while the *committed* ISR is large enough.
2. A follower's fetch counts only in its current incarnation, and in this leader epoch.
3. A follower joins the ISR only once it has everything below the high watermark *and* has reached
   the start offset of this leader epoch: the high watermark of a new leader may lag behind records
   that its predecessor has committed (KAFKA-7128).

A follower is caught up while it fetches from the log end offset, or from the log end offset as of
its previous fetch (KIP-16): continuous writes do not remove healthy followers from the ISR.

All functions are pure: offsets and times are inputs, decisions are outputs. Times are seconds of
the leader's monotonic clock. Only one ISR change is in progress at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.base.cluster import PartitionState

NEVER = float("-inf")
UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class FollowerProgress:
    incarnation: int
    log_end_offset: int = UNKNOWN_OFFSET
    caught_up_at: float = NEVER
    """Time at which the follower last had every record of the leader's log."""
    fetched_at: float = NEVER
    followed_at: float = NEVER
    """Time of the previous fetch. The follower has had its response since, so it still followed
    this leader after that time."""
    leader_end_at_fetch: int = 0
    """The leader's log end offset at the follower's last fetch."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """An ISR change that has been sent to the store.

    It is not adjusted to changes of the image that arrive before its outcome.
    """

    isr: Mapping[int, int]
    joining: Mapping[int, int]
    partition_epoch: int
    """The partition epoch of the state that the change applies to; no other may be changed."""


class Leadership:
    """A leader's state in one leader epoch: the ISR, its followers and the high watermark."""

    __slots__ = (
        "_committed",
        "_followers",
        "_pending",
        "_replicas",
        "broker_id",
        "epoch_start_offset",
        "high_watermark",
        "incarnation",
        "leader_epoch",
        "partition_epoch",
    )

    def __init__(
        self,
        broker_id: int,
        incarnation: int,
        state: PartitionState,
        *,
        epoch_start_offset: int,
        high_watermark: int,
        now: float,
    ) -> None:
        """Start a leader epoch.

        Members of the ISR count as caught up now, because the new leader has not seen their fetches
        yet.

        Args:
            broker_id: This broker's id.
            incarnation: This broker's incarnation.
            state: The partition state that made this broker the leader.
            epoch_start_offset: The log end offset at that time.
            high_watermark: The high watermark to start with.
            now: The current time.
        """
        self.broker_id = broker_id
        self.incarnation = incarnation
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = high_watermark
        self._replicas = state.replicas
        self._committed = _members(state)
        self._pending: Proposal | None = None
        self._followers: dict[int, FollowerProgress] = {}
        for follower, follower_incarnation in self._committed.items():
            if follower != broker_id:
                self._followers[follower] = FollowerProgress(
                    follower_incarnation, caught_up_at=now, leader_end_at_fetch=epoch_start_offset
                )

    # ---------------------------------------------------------------------------------------- state

    @property
    def isr(self) -> Mapping[int, int]:
        """The committed ISR: broker id -> incarnation."""
        return self._committed

    @property
    def is_changing(self) -> bool:
        return self._pending is not None

    @property
    def is_sole_isr_member(self) -> bool:
        """Whether other replicas exist, but none is in the committed or pending ISR.

        No follower's fetches then show whether another broker has become leader by an unclean
        election.
        """
        if len(self._replicas) == 1 or len(self._committed) > 1:
            return False
        return self._pending is None or len(self._pending.isr) == 1

    def progress(self, follower: int) -> FollowerProgress | None:
        return self._followers.get(follower)

    # ------------------------------------------------------------------------------- metadata store

    def apply_state(self, state: PartitionState, now: float) -> None:
        """Apply the partition state in the image.

        A newer state of this leader epoch settles the pending change, whatever its outcome.
        """
        if state.leader_epoch != self.leader_epoch or state.partition_epoch < self.partition_epoch:
            return
        if state.partition_epoch > self.partition_epoch:
            self._pending = None
        self.partition_epoch = state.partition_epoch
        self._replicas = state.replicas
        self._committed = _members(state)
        for follower in [each for each in self._followers if each not in state.replicas]:
            del self._followers[follower]
        for follower, incarnation in self._committed.items():
            if follower != self.broker_id and follower not in self._followers:
                self._followers[follower] = FollowerProgress(incarnation, caught_up_at=now)

    def propose(self, isr: Mapping[int, int]) -> Proposal:
        """Start an ISR change. Until it is settled, both the old and the new ISR count.

        Args:
            isr: The new ISR: broker id -> incarnation.
        """
        assert self._pending is None, "one change at a time"
        joining = dict(isr.items() - self._committed.items())
        self._pending = Proposal(dict(isr), joining, self.partition_epoch)
        return self._pending

    def rejected(self, proposal: Proposal) -> None:
        """Drop a change that the store has definitely not made.

        A change with an unknown outcome stays pending until `apply_state` settles it. Does
        nothing if another change is pending by now.
        """
        if self._pending is proposal:
            self._pending = None

    # ------------------------------------------------------------------------------------ followers

    def fetched(
        self, follower: int, incarnation: int, offset: int, leader_end: int, now: float
    ) -> bool:
        """Record a follower's fetch, which shows that it has all records below the fetch offset.

        Args:
            follower: The follower's broker id.
            incarnation: The follower's incarnation.
            offset: The fetch offset.
            leader_end: The leader's log end offset.
            now: The current time.

        Returns:
            Whether the fetch counts: the broker is a replica, and not in an outdated incarnation.
        """
        if follower not in self._replicas or follower == self.broker_id:
            return False
        known = self._followers.get(follower)
        if known is None or known.incarnation < incarnation:
            # A new incarnation starts from scratch: the old one's records may be lost.
            known = self._followers[follower] = FollowerProgress(incarnation)
        elif known.incarnation > incarnation:
            return False
        if offset >= leader_end:
            known.caught_up_at = now
        elif offset >= known.leader_end_at_fetch and known.fetched_at > NEVER:
            known.caught_up_at = max(known.caught_up_at, known.fetched_at)
        known.log_end_offset = offset
        known.followed_at, known.fetched_at = known.fetched_at, now
        known.leader_end_at_fetch = leader_end
        return True

    def fetched_again(self, follower: int, incarnation: int, leader_end: int, now: float) -> bool:
        """Record a repeated fetch from the log end offset by an ISR member, faster than `fetched`.

        Such a fetch only shows that the follower is still alive.

        Returns:
            Whether the fast path applied. If not, nothing was recorded.
        """
        known = self._followers.get(follower)
        if (
            known is None
            or leader_end != known.log_end_offset
            or incarnation != known.incarnation
            or incarnation != self._committed.get(follower)
        ):
            return False
        known.followed_at, known.fetched_at = known.fetched_at, now
        known.caught_up_at, known.leader_end_at_fetch = now, leader_end
        return True

    def followed_since(self) -> float:
        """Return a time at which all members of the maximal ISR still followed this leader.

        A member followed the leader at the time of a fetch if it fetched again after the response.
        A single fetch proves nothing, because it may have been in transit for long. Pending members
        count, because a broker that may be in the ISR may have become leader.

        Returns:
            The time, or NEVER if a member has not fetched twice or there is no other member.
        """
        if self.is_sole_isr_member:
            return NEVER
        followed_since = float("inf")
        pending = {} if self._pending is None else self._pending.isr
        for member, incarnation in (*self._committed.items(), *pending.items()):
            if member != self.broker_id:
                known = self._followers.get(member)
                if known is None or known.incarnation != incarnation:
                    return NEVER
                followed_since = min(followed_since, known.followed_at)
        return followed_since

    def advance(self, leader_end: int) -> bool:
        """Advance the high watermark.

        Args:
            leader_end: The leader's log end offset, or the end of its flushed records if acks wait
                for the disk.

        Returns:
            Whether the high watermark has changed.
        """
        least = leader_end
        committed = self._committed
        pending = None if self._pending is None else self._pending.isr
        for follower, known in self._followers.items():
            if follower not in committed and (pending is None or follower not in pending):
                continue
            required = committed.get(follower)
            if required is not None and known.incarnation != required:
                # The member in the ISR has crashed, and its new incarnation may lack records.
                return False
            least = min(least, known.log_end_offset)
        if least <= self.high_watermark:
            return False
        self.high_watermark = least
        return True

    def has_min_isr(self, min_insync: int) -> bool:
        """Return whether acks=all can be granted; if not, the error is NOT_ENOUGH_REPLICAS."""
        return len(self._committed) >= min_insync

    # ------------------------------------------------------------------------------------ decisions

    def shrunk_isr(self, now: float, max_lag_s: float) -> dict[int, int] | None:
        """Return the ISR without members that lag for more than `max_lag_s`; None for no change."""
        if self._pending is not None:
            return None
        kept = {
            member: incarnation
            for member, incarnation in self._committed.items()
            if member == self.broker_id or self._is_in_sync(member, incarnation, now, max_lag_s)
        }
        return kept if len(kept) < len(self._committed) else None

    def _is_in_sync(self, member: int, incarnation: int, now: float, max_lag_s: float) -> bool:
        known = self._followers.get(member)
        if known is None or known.incarnation != incarnation:
            return False
        return now - known.caught_up_at <= max_lag_s

    def expanded_isr(self, follower: int) -> dict[int, int] | None:
        """Return the ISR with the follower if it qualifies (rule 3); None for no change."""
        known = self._followers.get(follower)
        if self._pending is not None or known is None or follower not in self._replicas:
            return None
        if self._committed.get(follower) == known.incarnation:
            return None
        if known.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        return {**self._committed, follower: known.incarnation}


def _members(state: PartitionState) -> dict[int, int]:
    return dict(zip(state.isr, state.isr_incarnations, strict=True))

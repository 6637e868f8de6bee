"""What the leader of a partition knows of its replicas, in one leader epoch.

    committed ISR   what the metadata store holds: (broker, incarnation) pairs
    pending ISR     what this leader has asked the store to make of it, and not yet seen the outcome
    maximal ISR     both together

Rules (see docs/decisions on the cluster; the numbers are theirs)
2. The high watermark is the least log end offset over the *maximal* ISR: a member that may be in
   the ISR for the controller must have what consumers were shown; acks=all is granted only while
   the *committed* ISR is large enough.
3. A follower's fetch counts only under its present incarnation, in this leader epoch.
4. A follower joins only when it has everything below the high watermark *and* reaches the start of
   this epoch: what it holds behind that may not be ours.

A follower is caught up while it reads the end of the log, or read the end that the log had when it
fetched before (KIP-16): a steady writer does not throw good followers out.

Pure: offsets and times come in, decisions go out. Times are seconds of the leader's monotonic
clock. A shrink or an expansion is one change of the store at a time."""

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
    """When it last had everything there was at some moment."""
    fetched_at: float = NEVER
    followed_at: float = NEVER
    """When the fetch before came: as it has had its answer since, it followed us after that."""
    leader_end_at_fetch: int = 0
    """Where the leader's log ended when it last fetched."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A change of the ISR on its way to the store. It is what it was when it was decided, whatever
    the image shows before it gets there."""

    isr: Mapping[int, int]
    joining: Mapping[int, int]
    partition_epoch: int
    """Of the state that it changes: of any other it would be wrong."""


class Leadership:
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
        """`state` is the one that made us leader; `epoch_start_offset` is where our log ended then.
        Members of the ISR begin as caught up now: the new leader has not heard of them yet."""
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

    # ------------------------------------------------------------------------------ what it is

    @property
    def isr(self) -> Mapping[int, int]:
        """The committed one: broker -> incarnation."""
        return self._committed

    @property
    def is_changing(self) -> bool:
        return self._pending is not None

    @property
    def is_alone(self) -> bool:
        """Other replicas could lead, but nobody else is, or may become, a member of the ISR. Then
        nobody's fetches tell whether another leads by now (an unclean election)."""
        if len(self._replicas) == 1 or len(self._committed) > 1:
            return False
        return self._pending is None or len(self._pending.isr) == 1

    def progress(self, follower: int) -> FollowerProgress | None:
        return self._followers.get(follower)

    # ------------------------------------------------------------------------------ the store's

    def take(self, state: PartitionState, now: float) -> None:
        """The image has this state now. A newer one of the same epoch settles what was pending,
        whichever way it went."""
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
        """`isr` is on its way to the store. From now on both count."""
        assert self._pending is None, "one change at a time"
        joining = dict(isr.items() - self._committed.items())
        self._pending = Proposal(dict(isr), joining, self.partition_epoch)
        return self._pending

    def refused(self, proposal: Proposal) -> None:
        """The store has certainly not made the change. (An outcome that is not known stays pending
        until `take` shows it.) By now another may be on its way, and that one still counts."""
        if self._pending is proposal:
            self._pending = None

    # --------------------------------------------------------------------------- the followers'

    def fetched(
        self, follower: int, incarnation: int, offset: int, leader_end: int, now: float
    ) -> bool:
        """A follower asks for what is behind `offset`: it has everything before. Returns whether
        it is one of ours; an older incarnation than the one we know is a ghost."""
        if follower not in self._replicas or follower == self.broker_id:
            return False
        known = self._followers.get(follower)
        if known is None or known.incarnation < incarnation:
            # A new incarnation has to prove itself: what the old one held may be lost.
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
        """As `fetched` from the end of the log, if it is a member of the ISR and did that before:
        nothing follows from it but that it is still there. Else False, and nothing is done."""
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

    def heard_since(self) -> float:
        """At this moment all members of the maximal ISR still followed us: they fetched, and after
        they had the answer they fetched again. (One fetch proves nothing: it may have been long on
        its way.) NEVER if one has not, or if there is nobody to tell. Whoever may have become a
        member may have become the leader."""
        if self.is_alone:
            return NEVER
        heard = float("inf")
        pending = {} if self._pending is None else self._pending.isr
        for member, incarnation in (*self._committed.items(), *pending.items()):
            if member != self.broker_id:
                known = self._followers.get(member)
                if known is None or known.incarnation != incarnation:
                    return NEVER
                heard = min(heard, known.followed_at)
        return heard

    def advance(self, leader_end: int) -> bool:
        """Bring the high watermark up to date; `leader_end` is how far the leader's own log counts
        (where it is synced to, if acks wait for that). Returns whether it moved."""
        least = leader_end
        committed = self._committed
        pending = None if self._pending is None else self._pending.isr
        for follower, known in self._followers.items():
            if follower not in committed and (pending is None or follower not in pending):
                continue
            required = committed.get(follower)
            if required is not None and known.incarnation != required:
                # The member that the store knows is gone; the one that came back is behind.
                return False
            least = min(least, known.log_end_offset)
        if least <= self.high_watermark:
            return False
        self.high_watermark = least
        return True

    def grants(self, min_insync: int) -> bool:
        """Whether acks=all may be granted (NOT_ENOUGH_REPLICAS if not)."""
        return len(self._committed) >= min_insync

    # ------------------------------------------------------------------------------- decisions

    def shrunk(self, now: float, max_lag_s: float) -> dict[int, int] | None:
        """The ISR without those that have not been caught up for so long; None: no change."""
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

    def expanded(self, follower: int) -> dict[int, int] | None:
        """The ISR with a follower that has earned it (rule 4); None: it has not, or is in it."""
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

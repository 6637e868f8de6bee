"""Where a follower's log and its leader's part ways (KIP-101, KIP-279, KIP-320, KIP-595).

A follower's fetch names the epoch of the last record it has. The leader looks up where that epoch
ended in its own log:

    the leader's epoch is the same, and ends at or behind the fetch offset: they agree so far
    else: they part at or before (that epoch, its end); the follower truncates and asks again

The follower truncates to the least of: the end the leader gave, and where its own log ends the
epoch the leader gave. Each round names an older epoch, so it ends."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


class EpochHistory(Protocol):
    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch at or below `epoch`, where the one after it begins); -1 twice if
        none is known."""


NO_EPOCH = -1


def diverges(fetch_offset: int, last_fetched_epoch: int, leader_end: EpochEnd) -> EpochEnd | None:
    """What the leader answers to a follower: where they part at the latest, or None if they agree.
    `leader_end` is the leader's `end_offset_for(last_fetched_epoch)`."""
    if last_fetched_epoch == NO_EPOCH:
        return None
    if leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset:
        return leader_end
    return None


def truncation_offset(
    diverging: EpochEnd, history: EpochHistory, log_end_offset: int, high_watermark: int
) -> int:
    """How far the follower's log is to be cut. Where nothing is known of the epochs, at its high
    watermark: below that all agree."""
    if diverging.epoch == NO_EPOCH:
        return min(high_watermark, log_end_offset)
    epoch, end_offset = history.end_offset_for(diverging.epoch, log_end_offset)
    if epoch == NO_EPOCH:
        return min(high_watermark, log_end_offset)
    return min(diverging.end_offset, end_offset, log_end_offset)

"""Detection of log divergence between followers and leaders (KIP-101, KIP-279, KIP-320, KIP-595).

A follower's fetch contains the leader epoch of its last record. The leader looks up the end offset
of that epoch in its own log:

    the leader has this epoch, and it ends at or after the fetch offset: the logs agree so far
    otherwise: they diverge at or before (epoch, end offset); the follower truncates and retries

The follower truncates to the lower of two offsets: the end offset that the leader returned, and the
end offset, in its own log, of the epoch that the leader returned. Each round uses an older epoch,
so the process terminates.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class EpochEnd(NamedTuple):
    """A leader epoch and its end offset, which is the start offset of the next epoch."""

    epoch: int
    end_offset: int


class EpochHistory(Protocol):
    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch that is not above `epoch`, and its end offset.

        Returns (-1, -1) if no such epoch is known.
        """


NO_EPOCH = -1


def diverges(fetch_offset: int, last_fetched_epoch: int, leader_end: EpochEnd) -> EpochEnd | None:
    """Return the diverging epoch that the leader sends to a follower, or None if the logs agree.

    Args:
        fetch_offset: The follower's fetch offset.
        last_fetched_epoch: The leader epoch of the follower's last record.
        leader_end: The leader's `end_offset_for(last_fetched_epoch)`.
    """
    if last_fetched_epoch == NO_EPOCH:
        return None
    if leader_end.epoch < last_fetched_epoch or leader_end.end_offset < fetch_offset:
        return leader_end
    return None


def truncation_offset(
    diverging: EpochEnd, history: EpochHistory, log_end_offset: int, high_watermark: int
) -> int:
    """Return the offset to which the follower must truncate its log.

    If an epoch is unknown, this is the high watermark, below which all logs agree.

    Args:
        diverging: The diverging epoch that the leader returned.
        history: The follower's leader epochs.
        log_end_offset: The follower's log end offset.
        high_watermark: The follower's high watermark.
    """
    if diverging.epoch == NO_EPOCH:
        return min(high_watermark, log_end_offset)
    epoch, end_offset = history.end_offset_for(diverging.epoch, log_end_offset)
    if epoch == NO_EPOCH:
        return min(high_watermark, log_end_offset)
    return min(diverging.end_offset, end_offset, log_end_offset)

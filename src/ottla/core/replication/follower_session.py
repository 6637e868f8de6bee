"""Follower side of an incremental fetch session (KIP-227); core.fetch_session is the leader side.

A fetch lists only the partitions whose parameters have changed; the leader continues to use the
last parameters of all others. Partitions that are no longer fetched are listed as forgotten. The
result is the same as that of a full fetch, at a cost proportional to the changes.

A change counts as known to the leader only once it has answered. If a response is lost, the leader
may or may not have processed the request, so the next fetch is a full one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from ottla.core.fetch_session import INITIAL_EPOCH, MAX_EPOCH, NO_SESSION

PartitionId: TypeAlias = tuple[bytes, int]
"""A partition, as (topic id, index)."""


class FetchParams(NamedTuple):
    """The fetch parameters of one partition."""

    leader_epoch: int
    offset: int
    last_epoch: int
    """Leader epoch of the last record before `offset`."""
    start_offset: int
    max_bytes: int


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    changed: Mapping[PartitionId, FetchParams]
    forgotten: list[PartitionId]


class FollowerSession:
    """A follower's fetch session with one leader."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: Mapping[PartitionId, FetchParams] = {}
        self._in_flight: Mapping[PartitionId, FetchParams] = {}

    @property
    def is_open(self) -> bool:
        return self._id != NO_SESSION

    def request(self, wanted: Mapping[PartitionId, FetchParams]) -> SessionRequest:
        """Return the request to send in order to fetch the wanted partitions.

        Args:
            wanted: All partitions to fetch, with their parameters.
        """
        self._in_flight = dict(wanted)
        if not self.is_open:
            return SessionRequest(NO_SESSION, INITIAL_EPOCH, wanted, [])
        known = self._known
        changed = {
            each: params
            for each, params in wanted.items()
            if (before := known.get(each)) is not params and before != params
        }
        is_all = known.keys() <= wanted.keys()
        forgotten = [] if is_all else [each for each in known if each not in wanted]
        return SessionRequest(self._id, self._epoch, changed, forgotten)

    def on_response(self, session_id: int) -> None:
        """Handle a response.

        Args:
            session_id: The session id in the response; 0 if the leader keeps no session.
        """
        if session_id == NO_SESSION:
            self.reset()
            return
        is_same = session_id == self._id
        self._epoch = 1 if not is_same or self._epoch >= MAX_EPOCH else self._epoch + 1
        self._id = session_id
        self._known = self._in_flight

    def reset(self) -> None:
        """Reset the session after a lost response, or if the leader does not know the session."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self._known = {}

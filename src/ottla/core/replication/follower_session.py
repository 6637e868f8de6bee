"""A follower's side of an incremental fetch session (KIP-227; the leader's is core.fetch_session).

What is asked of each partition is said once, and again when it changes; whatever is not named in a
request is asked as before, and what is no longer wanted is forgotten. So a fetch says the same as
one that names everything, and costs as much as there is news.

Nothing is taken for known before the leader has answered: a request whose answer does not come may
or may not have been heard, and after it everything is named anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from ottla.core.fetch_session import INITIAL_EPOCH, MAX_EPOCH, NO_SESSION

PartitionId: TypeAlias = tuple[bytes, int]
"""(topic id, partition)"""


class Question(NamedTuple):
    """What a follower asks of one partition."""

    leader_epoch: int
    offset: int
    last_epoch: int
    """Of the record before that offset."""
    start_offset: int
    max_bytes: int


class Request(NamedTuple):
    session_id: int
    epoch: int
    asked: Mapping[PartitionId, Question]
    forgotten: list[PartitionId]


class FollowerSession:
    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: Mapping[PartitionId, Question] = {}
        self._asking: Mapping[PartitionId, Question] = {}

    @property
    def is_open(self) -> bool:
        return self._id != NO_SESSION

    def request(self, wanted: Mapping[PartitionId, Question]) -> Request:
        """What to send so that the leader is asked all this."""
        self._asking = dict(wanted)
        if not self.is_open:
            return Request(NO_SESSION, INITIAL_EPOCH, wanted, [])
        known = self._known
        asked = {
            each: question
            for each, question in wanted.items()
            if (before := known.get(each)) is not question and before != question
        }
        is_all = known.keys() <= wanted.keys()
        forgotten = [] if is_all else [each for each in known if each not in wanted]
        return Request(self._id, self._epoch, asked, forgotten)

    def answered(self, session_id: int) -> None:
        """The leader has heard the last request, and keeps this session; 0: none."""
        if session_id == NO_SESSION:
            self.lost()
            return
        is_same = session_id == self._id
        self._epoch = 1 if not is_same or self._epoch >= MAX_EPOCH else self._epoch + 1
        self._id = session_id
        self._known = self._asking

    def lost(self) -> None:
        """Whether the leader heard the last request is not known, or it knows no such session."""
        self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self._known = {}

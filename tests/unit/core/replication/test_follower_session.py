"""Tests that a follower's fetch session and the leader's always hold the same partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import KafkaError
from ottla.core.fetch_session import FetchPartition, FetchSessionCache
from ottla.core.replication.follower_session import (
    FetchParams,
    FollowerSession,
    PartitionId,
    SessionRequest,
)

T, U = b"t" * 16, b"u" * 16


def asks(offset: int, leader_epoch: int = 0) -> FetchParams:
    return FetchParams(leader_epoch, offset, 0, 0, 1_000)


def opened(wanted: dict[PartitionId, FetchParams], id: int = 7) -> FollowerSession:
    session = FollowerSession()
    session.request(wanted)
    session.on_response(id)
    return session


def test_everything_is_named_once_and_then_what_changed() -> None:
    session = FollowerSession()
    first = {(T, 0): asks(5), (T, 1): asks(6), (U, 0): asks(7)}
    assert session.request(first) == SessionRequest(0, 0, first, [])
    session.on_response(7)
    assert session.request(first) == SessionRequest(7, 1, {}, [])
    session.on_response(7)
    moved = first | {(T, 1): asks(8)}
    assert session.request(moved) == SessionRequest(7, 2, {(T, 1): asks(8)}, [])
    session.on_response(7)
    del moved[(U, 0)]
    assert session.request(moved) == SessionRequest(7, 3, {}, [(U, 0)])


def test_a_request_without_an_answer_is_not_taken_for_heard() -> None:
    wanted = {(T, 0): asks(5)}
    session = opened(wanted)
    session.request({(T, 0): asks(6)})
    assert session.is_open
    session.reset()
    assert not session.is_open
    assert session.request(wanted) == SessionRequest(0, 0, wanted, [])


def test_a_leader_without_room_for_a_session_gets_full_requests() -> None:
    wanted = {(T, 0): asks(5)}
    session = opened(wanted, id=0)
    assert not session.is_open
    assert session.request(wanted) == SessionRequest(0, 0, wanted, [])


def test_epochs_begin_again_behind_the_last_one() -> None:
    wanted = {(T, 0): asks(5)}
    session = opened(wanted)
    session._epoch = 2**31 - 1
    session.on_response(7)
    assert session.request(wanted).epoch == 1


def test_a_new_leader_epoch_makes_the_leader_send_everything_again() -> None:
    partition = FetchPartition("", T, 0, 5, 1_000, current_leader_epoch=1)
    partition.sent_high_watermark, partition.sent_log_start_offset = 4, 2
    partition.update(FetchPartition("", T, 0, 6, 1_000, current_leader_epoch=1))
    assert (partition.sent_high_watermark, partition.sent_log_start_offset) == (4, 2)
    partition.update(FetchPartition("", T, 0, 6, 1_000, current_leader_epoch=2))
    assert (partition.sent_high_watermark, partition.sent_log_start_offset) == (-1, -1)


PARTITION_IDS = st.tuples(st.sampled_from([T, U]), st.integers(0, 2))
WANTED = st.dictionaries(
    PARTITION_IDS, st.builds(asks, st.integers(0, 2), st.integers(0, 1)), min_size=1
)
ANSWER, ANSWER_LOST, REQUEST_LOST, LEADER_RESTARTED = range(4)


@given(
    st.lists(
        st.tuples(
            WANTED, st.sampled_from([ANSWER, ANSWER, ANSWER_LOST, REQUEST_LOST, LEADER_RESTARTED])
        ),
        max_size=30,
    )
)
def test_the_leader_always_hears_exactly_what_is_wanted(
    steps: list[tuple[dict[PartitionId, FetchParams], int]],
) -> None:
    session, leader, first_id = FollowerSession(), FetchSessionCache(10, 1), 1
    for wanted, fate in steps:
        if fate == LEADER_RESTARTED:
            first_id += 1_000
            leader = FetchSessionCache(10, first_id)
        request = session.request(wanted)
        if fate == REQUEST_LOST:
            session.reset()
            continue
        try:
            kept, heard, _ = leader.resolve(
                request.session_id,
                request.epoch,
                [_partition(id, question) for id, question in request.changed.items()],
                [("", *id) for id in request.forgotten],
                True,
                0,
            )
        except KafkaError:
            assert fate == LEADER_RESTARTED
            session.reset()
            continue
        assert {
            (each.topic_id, each.partition): asks(each.fetch_offset, each.current_leader_epoch)
            for each in heard
        } == wanted
        if fate == ANSWER_LOST:
            session.reset()
        else:
            session.on_response(0 if kept is None else kept.id)


def _partition(id: PartitionId, question: FetchParams) -> FetchPartition:
    return FetchPartition(
        "", *id, question.offset, question.max_bytes, question.leader_epoch, question.last_epoch
    )

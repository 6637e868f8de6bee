"""Tests of a segment's record of its verified byte ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.verified import MAX_SPANS, VerifiedBytes

SIZE = 100


def test_what_was_appended_since_the_opening_is_good() -> None:
    verified = VerifiedBytes(40)
    assert verified.covers(40, 90)
    assert not verified.covers(39, 90)


def test_what_was_read_is_good_and_grows_together() -> None:
    verified = VerifiedBytes(SIZE)
    verified.add(10, 20, SIZE)
    verified.add(30, 40, SIZE)
    assert verified.covers(12, 20)
    assert not verified.covers(10, 40)
    verified.add(20, 30, SIZE)
    assert verified.covers(10, 40)


def test_what_was_read_up_to_the_tail_is_part_of_it() -> None:
    verified = VerifiedBytes(50)
    verified.add(20, 50, SIZE)
    assert verified.covers(20, SIZE)


def test_nothing_is_good_once_bytes_have_come_from_the_disk() -> None:
    verified = VerifiedBytes(50)
    verified.add(0, 20, SIZE)
    verified.was_read_from_disk = True
    assert not verified.covers(0, 20)
    assert not verified.covers(60, 70)
    verified.add(30, 40, SIZE)
    assert verified.covers(30, 40)
    assert not verified.covers(0, 20)
    assert not verified.covers(60, 70)
    assert verified.covers(SIZE, SIZE + 10)  # bytes appended since the segment was opened


def test_what_is_appended_behind_a_cut_is_new() -> None:
    verified = VerifiedBytes(50)
    verified.add(0, 20, SIZE)
    verified.add(25, 45, SIZE)
    verified.truncate(30)
    assert verified.covers(0, 20)
    assert not verified.covers(25, 28)
    assert verified.covers(30, 60)


def test_only_a_few_places_are_remembered() -> None:
    verified = VerifiedBytes(1_000)
    for start in range(0, 10 * (MAX_SPANS + 3), 10):
        verified.add(start, start + 5, 1_000)
    covered = [start for start in range(0, 100, 10) if verified.covers(start, start + 5)]
    assert covered == [30, 40, 50, 60]


places = st.integers(0, SIZE)
steps = st.one_of(
    st.tuples(st.just("add"), places, places),
    st.tuples(st.just("disk"), places, places),
    st.tuples(st.just("cut"), places, places),
)


@given(st.integers(0, SIZE), st.lists(steps, max_size=20))
def test_no_byte_is_taken_for_good_that_is_not(
    opened: int, taken: list[tuple[str, int, int]]
) -> None:
    """Compare with a plain set of verified bytes; appended bytes count as verified."""
    size = SIZE
    verified = VerifiedBytes(opened)
    good = set(range(opened, size))
    for what, one, other in taken:
        start, end = sorted((min(one, size), min(other, size)))
        if what == "add":
            if start == end:
                continue
            verified.add(start, end, size)
            good |= set(range(start, end))
            assert verified.covers(start, end)
        elif what == "disk":
            verified.was_read_from_disk = True
            good = set()
        else:
            verified.truncate(start)
            if verified.was_read_from_disk:
                good = set()
            good = {each for each in good if each < start} | set(range(start, SIZE))
            size = SIZE  # the segment is filled up again at once
        for begin in range(size):
            for stop in (begin + 1, min(begin + 7, size), size):
                if verified.covers(begin, stop):
                    assert good.issuperset(range(begin, stop))

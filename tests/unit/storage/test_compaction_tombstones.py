"""Tests of how long tombstones are kept (KIP-534)."""

from __future__ import annotations

from pathlib import Path

from tests.unit.storage.compacted_logs import Rounds, compacted
from tests.unit.storage.small_logs import START_MS, batches, data_records, open_test_log, put

HOUR_MS = 3_600_000


def rounds_on(tmp_path: Path, **config: object) -> Rounds:
    return Rounds(open_test_log(str(tmp_path), compacted(**config)))


def touch(rounds: Rounds) -> None:
    """Append a record, so that the log is dirty and another round takes place."""
    put(rounds.log, [(b"other", b"x")])


def test_a_tombstone_outlives_its_first_round_by_delete_retention_ms(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path, delete_retention_ms=HOUR_MS)
    put(rounds.log, [(b"a", b"1"), (b"b", b"1")])
    put(rounds.log, [(b"a", None)])
    first_round_ms = START_MS + 5 * HOUR_MS
    rounds.clean(first_round_ms)
    assert [(r.key, r.value) for r in data_records(rounds.log)] == [(b"b", b"1"), (b"a", None)]
    touch(rounds)
    rounds.clean(first_round_ms + HOUR_MS - 1)
    assert (b"a", None) in [(r.key, r.value) for r in data_records(rounds.log)]
    touch(rounds)
    rounds.clean(first_round_ms + HOUR_MS)
    assert [r.key for r in data_records(rounds.log)] == [b"b", b"other"]


def test_the_horizon_is_stamped_once_and_timestamps_stay(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path, delete_retention_ms=HOUR_MS)
    put(rounds.log, [(b"a", None), (b"b", b"1")], timestamp=START_MS)
    rounds.clean(START_MS + 7)
    touch(rounds)
    rounds.clean(START_MS + 500)
    header, _ = batches(rounds.log)[0]
    assert header.delete_horizon == START_MS + 7 + HOUR_MS
    assert header.max_timestamp == START_MS
    assert [r.timestamp for r in data_records(rounds.log)][:2] == [START_MS, START_MS]


def test_a_batch_without_tombstones_gets_no_horizon(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path)
    put(rounds.log, [(b"a", b"1"), (b"a", b"2")])
    rounds.clean()
    assert [header.delete_horizon for header, _ in batches(rounds.log)] == [None]


def test_a_superseded_tombstone_goes_at_once(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path)
    put(rounds.log, [(b"a", None), (b"a", b"1")])
    rounds.clean()
    assert [(r.key, r.value) for r in data_records(rounds.log)] == [(b"a", b"1")]


def test_a_retention_of_zero_removes_a_tombstone_in_the_next_round(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path, delete_retention_ms=0)
    put(rounds.log, [(b"a", b"1"), (b"a", None)])
    rounds.clean()
    assert [r.value for r in data_records(rounds.log)] == [None]
    touch(rounds)
    rounds.clean()
    assert [r.key for r in data_records(rounds.log)] == [b"other"]


def test_the_longest_retention_there_is_can_be_stamped(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path, delete_retention_ms=2**63 - 1)
    put(rounds.log, [(b"a", None), (b"b", b"1")], timestamp=START_MS)
    put(rounds.log, [(b"c", None)], timestamp=-1)
    rounds.clean()
    touch(rounds)
    rounds.clean(START_MS + 1_000 * HOUR_MS)
    kept = [(r.key, r.timestamp) for r in data_records(rounds.log)]
    assert kept == [(b"a", START_MS), (b"b", START_MS), (b"c", -1), (b"other", START_MS)]


def test_a_reader_that_is_in_time_never_sees_a_deleted_value_come_back(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path, delete_retention_ms=HOUR_MS, segment_bytes=150)
    for number in range(6):
        put(rounds.log, [(b"a", b"%d" % number * 30)])
    put(rounds.log, [(b"a", None)])
    for hour in range(4):
        touch(rounds)
        rounds.clean(START_MS + hour * HOUR_MS)
        values = [r.value for r in data_records(rounds.log) if r.key == b"a"]
        assert values in ([None], [])
    assert values == []

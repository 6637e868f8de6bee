"""Tests of what compaction keeps for producers and transactions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.compacted_logs import Rounds, compacted
from tests.unit.storage.small_logs import (
    START_MS,
    batches,
    data_records,
    end_transaction,
    open_test_log,
    put,
)

from ottla.base.errors import ErrorCode, KafkaError
from ottla.storage.log import Log

HOUR_MS = 3_600_000


def rounds_on(tmp_path: Path, **config: object) -> Rounds:
    return Rounds(open_test_log(str(tmp_path), compacted(**config)))


def reopen_after_crash(log: Log) -> Log:
    """Reopen the log as after a crash that left only segments, so that state comes from batches."""
    log.flush(START_MS)
    for path in Path(log.directory).glob("*.snapshot"):
        path.unlink()
    return open_test_log(log.directory, log.config, is_clean=False)


def headers(log: Log) -> list[tuple[int, int]]:
    """Return the base offset and record count of each batch."""
    return [(header.base_offset, header.record_count) for header, _ in batches(log)]


def aborted(log: Log) -> list[tuple[int, int, int]]:
    return [
        (txn.producer_id, txn.first_offset, txn.last_offset)
        for txn in log.aborted_transactions(0, log.log_end_offset)
    ]


def test_the_last_batch_of_a_known_producer_stays_as_a_header(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path)
    log = rounds.log
    put(log, [(b"a", b"1")], producer=(7, 0, 0))
    put(log, [(b"a", b"2"), (b"b", b"2")], producer=(7, 0, 1))
    put(log, [(b"a", b"3"), (b"b", b"3")])
    rounds.clean()
    assert headers(log) == [(1, 0), (3, 2)]
    again = reopen_after_crash(log)
    repeated = put(again, [(b"a", b"2"), (b"b", b"2")], producer=(7, 0, 1))
    assert repeated == 1
    with pytest.raises(KafkaError) as caught:
        put(again, [(b"a", b"9")], producer=(7, 0, 9))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(again, [(b"a", b"4")], producer=(7, 0, 3)) == again.log_end_offset - 1


def test_batches_of_a_forgotten_producer_go(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path)
    put(rounds.log, [(b"a", b"1")], producer=(7, 0, 0))
    put(rounds.log, [(b"a", b"2")])
    rounds.log.producers.expire(START_MS + HOUR_MS, HOUR_MS)
    rounds.clean()
    assert headers(rounds.log) == [(1, 1)]


def test_records_of_an_aborted_transaction_go_and_the_older_value_stays(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path)
    log = rounds.log
    put(log, [(b"a", b"committed")])
    put(log, [(b"a", b"aborted"), (b"b", b"aborted")], producer=(7, 0, 0), transactional=True)
    put(log, [(b"b", b"aborted too")], producer=(7, 0, 2), transactional=True)
    end_transaction(log, 7, 0, commit=False)
    put(log, [(b"c", b"plain")])
    rounds.clean()
    assert [(r.key, r.value) for r in data_records(log)] == [
        (b"a", b"committed"),
        (b"c", b"plain"),
    ]
    assert headers(log) == [(0, 1), (3, 0), (4, 1), (5, 1)]
    assert aborted(log) == [(7, 1, 4)]


def test_an_abort_marker_goes_after_its_horizon_once_its_batches_are_gone(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path, delete_retention_ms=HOUR_MS)
    log = rounds.log
    put(log, [(b"a", b"aborted")], producer=(7, 0, 0), transactional=True)
    end_transaction(log, 7, 0, commit=False)
    log.producers.expire(START_MS + HOUR_MS, HOUR_MS)
    seen = []
    for hour in range(4):
        put(log, [(b"other", b"%d" % hour)])
        rounds.clean(START_MS + hour * HOUR_MS)
        marker = [header for header, _ in batches(log) if header.is_control]
        seen.append((len(marker), marker[0].delete_horizon if marker else None, aborted(log)))
    assert seen == [
        (1, None, [(7, 0, 1)]),
        (1, START_MS + 2 * HOUR_MS, []),
        (0, None, []),
        (0, None, []),
    ]


def test_a_commit_marker_stays_as_long_as_a_record_of_its_transaction(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path, delete_retention_ms=HOUR_MS)
    log = rounds.log
    put(log, [(b"a", b"1"), (b"b", b"1")], producer=(7, 0, 0), transactional=True)
    end_transaction(log, 7, 0, commit=True)
    log.producers.expire(START_MS + HOUR_MS, HOUR_MS)
    now_ms = START_MS
    for _ in range(3):
        now_ms += 10 * HOUR_MS
        put(log, [(b"a", b"new")])
        rounds.clean(now_ms)
        assert headers(log)[:2] == [(0, 1), (2, 1)]
    put(log, [(b"b", b"new")])
    rounds.clean(now_ms)
    put(log, [(b"b", b"newer")])
    rounds.clean(now_ms)
    (marker,) = [header for header, _ in batches(log) if header.is_control]
    assert marker.delete_horizon == now_ms + HOUR_MS
    put(log, [(b"b", b"newest")])
    rounds.clean(now_ms + HOUR_MS)
    assert not [header for header, _ in batches(log) if header.is_control]


def test_the_last_marker_of_a_producer_without_batches_keeps_its_epoch(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path, delete_retention_ms=0)
    log = rounds.log
    put(log, [(b"a", b"1")], producer=(7, 3, 0), transactional=True)
    end_transaction(log, 7, 4, commit=True)
    for number in range(4):
        put(log, [(b"a", b"new %d" % number)])
        rounds.clean()
    assert headers(log)[0] == (1, 0)
    again = reopen_after_crash(log)
    with pytest.raises(KafkaError) as caught:
        put(again, [(b"a", b"zombie")], producer=(7, 3, 1))
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_open_transaction_and_all_behind_it_is_left_alone(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path)
    log = rounds.log
    put(log, [(b"a", b"1"), (b"a", b"2")])
    log.roll(START_MS)
    put(log, [(b"b", b"open")], producer=(7, 0, 0), transactional=True)
    put(log, [(b"b", b"plain 1"), (b"b", b"plain 2")])
    rounds.clean()
    assert rounds.checkpoint == 2
    assert [r.value for r in data_records(log)] == [b"2", b"open", b"plain 1", b"plain 2"]


def test_nothing_behind_the_high_watermark_is_touched(tmp_path: Path) -> None:
    rounds = rounds_on(tmp_path)
    for number in range(4):
        put(rounds.log, [(b"a", b"%d" % number)])
        rounds.log.roll(START_MS)
    rounds.clean(high_watermark=2)
    assert [r.value for r in data_records(rounds.log)] == [b"1", b"2", b"3"]


def test_a_transaction_whose_abort_lies_behind_the_range_is_known_as_aborted(
    tmp_path: Path,
) -> None:
    rounds = rounds_on(tmp_path)
    log = rounds.log
    put(log, [(b"a", b"committed")])
    put(log, [(b"a", b"aborted")], producer=(7, 0, 0), transactional=True)
    put(log, [(b"b", b"plain")])
    log.roll(START_MS)
    end_transaction(log, 7, 0, commit=False)
    rounds.clean(roll=False)
    assert [(r.key, r.value) for r in data_records(log)] == [
        (b"a", b"committed"),
        (b"b", b"plain"),
    ]
    assert aborted(log) == [(7, 1, 3)]


def test_aborted_transactions_lie_in_the_index_of_the_segment_with_their_marker(
    tmp_path: Path,
) -> None:
    rounds = rounds_on(tmp_path, segment_bytes=300)
    log = rounds.log
    for number in range(6):
        put(log, [(b"k", b"x" * 100)], producer=(number, 0, 0), transactional=True)
        end_transaction(log, number, 0, commit=number % 2 == 0)
    before = aborted(log)
    rounds.clean()
    assert aborted(log) == before
    for segment, later in zip(log.segments, log.segments[1:], strict=False):
        for txn in segment.txn_index.entries():
            assert segment.base_offset <= txn.last_offset < later.base_offset

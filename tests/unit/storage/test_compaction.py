"""Tests of the records that a round of compaction keeps."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.unit.storage.compacted_logs import LIMITS, Rounds, compacted
from tests.unit.storage.small_logs import (
    START_MS,
    batches,
    data_records,
    latest_values,
    open_test_log,
    put,
    reopen,
)

from ottla.storage.compaction import compact, remove_cleaned
from ottla.storage.file import OsFileSystem
from ottla.storage.log import Log
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.compression import NAMES
from ottla.wire.records.errors import CorruptBatch


def new_log(tmp_path: Path, **config: object) -> Log:
    return open_test_log(str(tmp_path), compacted(**config))


def test_a_hundred_thousand_records_come_down_to_the_latest_of_each_key(tmp_path: Path) -> None:
    random_keys = random.Random(7)
    log = new_log(tmp_path, segment_bytes=1 << 20)
    expected: dict[bytes, tuple[int, bytes]] = {}
    for start in range(0, 100_000, 500):
        records = [
            (b"key-%d" % random_keys.randrange(5_000), b"value-%d" % offset)
            for offset in range(start, start + 500)
        ]
        put(log, records)
        expected |= {
            key: (offset, value) for offset, (key, value) in enumerate(records, start=start)
        }
    rounds = Rounds(log, limits=LIMITS._replace(memory_bytes=1 << 22, io_buffer_bytes=1 << 16))
    size = log.size
    result = rounds.clean()
    assert result is not None
    assert result.next_dirty_offset == 100_000
    kept = data_records(log)
    assert {record.key: (record.offset, record.value) for record in kept} == expected
    assert len(kept) == len(expected) == result.stats.kept_records
    assert log.size < size / 10


def test_a_second_round_keeps_what_the_first_kept_and_no_other_key_changed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    rounds = Rounds(log)
    put(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    rounds.clean()
    put(log, [(b"c", b"1"), (b"b", b"2")])
    rounds.clean()
    assert [(r.offset, r.key, r.value) for r in data_records(log)] == [
        (2, b"a", b"2"),
        (3, b"c", b"1"),
        (4, b"b", b"2"),
    ]


def test_every_offset_can_be_read_from_also_those_that_are_gone(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=2_000, index_interval_bytes=100)
    for number in range(60):
        put(log, [(b"k%d" % (number * 5 % 11), b"%d" % number)] * 3)
    Rounds(log).clean()
    put(log, [(b"last", b"one")])
    kept = [record.offset for record in data_records(log)]
    assert len(kept) < 20
    for offset in range(log.log_end_offset):
        data, next_offset = log.read(offset, 1, log.log_end_offset, at_least_one=True, wait=True)
        (header,) = list(iter_headers(data))[:1]
        assert header.last_offset >= offset
        assert next_offset == header.next_offset
        expected = next(kept_offset for kept_offset in kept if kept_offset >= offset)
        assert header.base_offset <= expected


def test_offsets_epochs_and_timestamps_stay_as_they_were(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, [(b"a", b"1"), (b"b", b"1")], timestamp=START_MS)
    put(log, [(b"c", b"1"), (b"a", b"2"), (b"d", None)], timestamp=START_MS + 50)
    before = {(r.offset, r.timestamp, r.key, r.value) for r in data_records(log)}
    Rounds(log).clean()
    headers = [header for header, _ in batches(log)]
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h in headers] == [
        (0, 1, 0),
        (2, 4, 0),
    ]
    after = {(r.offset, r.timestamp, r.key, r.value) for r in data_records(log)}
    assert before - after == {(0, START_MS, b"a", b"1")}


@pytest.mark.parametrize("codec", NAMES)
def test_batches_keep_their_codec(tmp_path: Path, codec: str) -> None:
    log = new_log(tmp_path)
    put(
        log, [(b"k%d" % (n % 10), b"value " * 20 + b"%d" % n) for n in range(40)], compression=codec
    )
    put(log, [(b"k1", None), (b"k2", b"new")], compression=codec)
    table = latest_values(data_records(log))
    Rounds(log).clean()
    assert latest_values(data_records(log)) == table
    assert len(data_records(log)) == 10
    assert {NAMES[header.compression] for header, _ in batches(log)} == {codec}


def test_batches_of_all_codecs_can_lie_in_one_log(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=4_000)
    for number in range(100):
        records = [(b"k%d" % ((number + n) % 13), b"%d-%d" % (number, n) * 9) for n in range(8)]
        put(log, records, compression=NAMES[number % len(NAMES)])
    table = latest_values(data_records(log))
    Rounds(log).clean()
    assert latest_values(data_records(log)) == table
    assert len(data_records(log)) == 13


def test_records_without_a_key_go(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, [(None, b"lost"), (b"a", b"kept"), (None, None)])
    result = Rounds(log).clean()
    assert result is not None
    assert result.stats.keyless_records == 2
    assert [(r.key, r.value) for r in data_records(log)] == [(b"a", b"kept")]


def test_an_empty_key_and_an_empty_value_are_a_key_and_a_value(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, [(b"", b"1"), (b"", b""), (b"a", b"")])
    Rounds(log).clean()
    assert [(r.key, r.value) for r in data_records(log)] == [(b"", b""), (b"a", b"")]


def test_the_end_of_the_range_stays_known_when_its_records_go(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    rounds = Rounds(log)
    put(log, [(b"a", b"1")])
    put(log, [(None, b"no key")])
    rounds.clean()
    last, _ = batches(log)[-1]
    assert (last.base_offset, last.next_offset, last.record_count) == (1, 2, 0)


def test_a_segment_of_which_nothing_is_left_can_be_cleaned_and_read_over(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=200)
    rounds = Rounds(log)
    for number in range(10):
        put(log, [(b"a", b"%d" % number * 100)])
    for _ in range(2):
        put(log, [(b"a", b"last")])
        rounds.clean()
        assert [r.value for r in data_records(log)] == [b"last"]
    assert [r.value for r in data_records(reopen(log))] == [b"last"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_whose_first_segment_was_emptied_begins_where_it_began(
    tmp_path: Path, is_clean: bool
) -> None:
    log = new_log(tmp_path, segment_bytes=200)
    rounds = Rounds(log)
    for number in range(5):
        put(log, [(b"a", b"%d" % number * 100)])
    rounds.clean()
    assert log.segments[0].size == 0
    log.close(START_MS)
    again = open_test_log(
        str(tmp_path), log.config, is_clean=is_clean, recovery_point=log.recovery_point
    )
    assert again.log_start_offset == 0
    assert [r.offset for r in data_records(again)] == [4]


def test_a_round_covers_only_as_many_keys_as_its_memory_holds(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=3_000)
    for number in range(400):
        put(log, [(b"k%d" % (number % 200), b"%d" % number)])
    table = latest_values(data_records(log))
    rounds = Rounds(log, limits=LIMITS._replace(memory_bytes=24 * 50, load_factor=1.0))
    ends = []
    while rounds.checkpoint != log.active.base_offset:
        result = rounds.clean(roll=not ends)
        assert result is not None
        assert latest_values(data_records(log)) == table
        ends.append(result.next_dirty_offset)
    assert ends[0] == 50
    assert ends == sorted(ends)
    assert len(data_records(log)) == 200


def test_small_segments_are_merged_and_their_snapshots_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=1_000)
    for number in range(100):
        put(log, [(b"k%d" % (number % 3), b"%d" % number * 10)])
    rounds = Rounds(log)
    rounds.clean()
    many = len(log.segments)
    put(log, [(b"k0", b"new")])
    rounds.clean()
    assert many > 5
    assert [segment.base_offset for segment in log.segments] == [0, log.active.base_offset]
    log.flush(START_MS)
    snapshots = {name for name in os.listdir(tmp_path) if name.endswith(".snapshot")}
    assert snapshots == {f"{log.active.base_offset:020d}.snapshot"}


def test_a_compacted_log_opens_again_with_its_indexes(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=20_000, index_interval_bytes=200)
    for number in range(300):
        put(log, [(b"k%d" % (number % 77), b"%d" % number * 20)], timestamp=START_MS + number)
    Rounds(log).clean()
    kept = data_records(log)
    reports: list[str] = []
    again = reopen(log, reports)
    assert reports == []
    assert data_records(again) == kept
    assert sum(len(segment.offset_index) for segment in again.segments[:-1]) > 5
    for record in kept:
        found = again.offset_for_timestamp(record.timestamp)
        assert found is not None
        assert (found.offset, found.timestamp) == (record.offset, record.timestamp)


def test_a_damaged_batch_is_never_given_a_new_checksum(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, [(b"a", b"1"), (b"b", b"1")])
    put(log, [(b"a", b"2")])
    rounds = Rounds(log)
    job = rounds.job()
    assert job is not None
    with open(log.segments[0].file.path, "r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    with pytest.raises(CorruptBatch, match=r"\.log is damaged at byte 0"):
        compact(log.fs, job)
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".cleaned")]


def test_leftovers_of_another_try_do_no_harm(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, [(b"a", b"1"), (b"a", b"2")])
    rounds = Rounds(log)
    for extension in ("log", "index", "timeindex", "txnindex"):
        (tmp_path / f"{0:020d}.{extension}.cleaned").write_bytes(b"leftover" * 34)
    rounds.clean()
    assert [r.value for r in data_records(log)] == [b"2"]
    assert log.segments[0].indexes_are_sane()
    assert log.segments[0].txn_index.entries() == []


def test_leftovers_can_be_removed(tmp_path: Path) -> None:
    (tmp_path / "00.log.cleaned").touch()
    (tmp_path / "00.log").touch()
    remove_cleaned(OsFileSystem(), str(tmp_path))
    assert os.listdir(tmp_path) == ["00.log"]
    remove_cleaned(OsFileSystem(), f"{tmp_path}/not-there")


def test_a_batch_larger_than_the_io_buffer_is_read_whole(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    big = os.urandom(50_000)
    put(log, [(b"a", b"1"), (b"b", big)])
    put(log, [(b"a", b"2")])
    Rounds(log).clean()
    assert latest_values(data_records(log)) == {b"a": b"2", b"b": big}

"""Tests of opening logs after a crash, a full disk or a flipped bit."""

from __future__ import annotations

import random
import struct

import pytest
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW,
    SMALL,
    append,
    append_batch,
    batch_of,
    end_txn,
    follow,
    headers_of,
    new_disk,
    open_at,
    read,
    records_of,
    stored,
    values,
)

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.storage.log import Log
from ottla.storage.segment import segment_path
from ottla.testing.simulation.disk import Fault, SimulatedDisk

LARGE = TopicConfig(index_interval_bytes=100)


def path(base_offset: int, extension: str) -> str:
    return segment_path(DIRECTORY, base_offset, extension)


def filled(disk: SimulatedDisk, batches: int = 20, config: TopicConfig = SMALL) -> Log:
    log = open_at(disk, config=config)
    for number in range(batches):
        append(log, b"v%d" % (2 * number), b"v%d" % (2 * number + 1))
    return log


def numbered(first: int, end: int) -> list[bytes]:
    return [b"v%d" % number for number in range(first, end)]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def files(disk: SimulatedDisk, ending: str) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if name.endswith(ending)]


# ---------------------------------------------------------------------------------------- opening


def test_a_new_log_is_empty_at_its_start_offset() -> None:
    log = open_at(new_disk(), start=17)
    assert (log.log_start_offset, log.log_end_offset) == (17, 17)
    assert append(log, b"a").base_offset == 17


def test_a_killed_broker_loses_nothing() -> None:
    disk = new_disk()
    expected = stored(filled(disk))
    said: list[str] = []
    log = open_at(disk.kill(), said=said)
    assert stored(log) == expected
    assert log.log_end_offset == 40
    assert said == []


def test_segments_before_the_recovery_point_are_not_read() -> None:
    disk = new_disk()
    log = filled(disk)
    log.flush(NOW)
    expected = stored(log)
    disk = disk.kill()
    for base_offset in bases(log)[:-1]:
        disk.inject(Fault("read", path=path(base_offset, "log"), times=10**9))
    log = open_at(disk, recovery_point=40)
    assert log.log_end_offset == 40
    disk.heal()
    assert stored(log) == expected


def test_a_torn_tail_is_cut_and_reported() -> None:
    disk = new_disk()
    log = filled(disk, 3)
    size = log.active.size
    disk.open(path(0, "log")).truncate(size - 10)
    said: list[str] = []
    log = open_at(disk.kill(), said=said)
    assert values(log) == numbered(0, 4)
    assert len(said) == 1
    assert "truncated" in said[0]
    assert "offset 4" in said[0]
    append(log, b"next")
    assert values(open_at(disk.kill())) == [*numbered(0, 4), b"next"]


def test_segments_behind_a_torn_one_are_removed() -> None:
    disk = new_disk()
    log = filled(disk)
    second = bases(log)[1]
    disk.flip_bit(path(second, "log"), 70, 0)
    said: list[str] = []
    log = open_at(disk.kill(), said=said)
    assert log.log_end_offset == second
    assert bases(log) == [0, second]
    assert any("removed" in sentence for sentence in said)
    assert values(log) == numbered(0, second)


def test_records_lost_between_two_segments_end_the_log() -> None:
    """A power cut may truncate a file exactly between two batches, which leaves no torn batch."""
    disk = new_disk()
    log = filled(disk)
    second, third = bases(log)[1:3]
    disk.open(path(second, "log")).truncate(
        headers_of(disk.read_bytes(path(second, "log")))[0].size
    )
    said: list[str] = []
    disk = disk.kill()
    log = open_at(disk, said=said)
    assert log.log_end_offset == second + 2
    assert not disk.exists(path(third, "log"))
    assert any("were lost" in sentence for sentence in said)


def test_a_segment_whose_file_was_lost_ends_the_log() -> None:
    disk = new_disk()
    second = bases(filled(disk))[1]
    disk.remove(path(second, "log"))
    log = open_at(disk.kill())
    assert log.log_end_offset == second


def test_a_gap_between_segments_that_were_synced_is_compactions() -> None:
    disk = new_disk()
    log = filled(disk)
    log.flush(NOW)
    second = bases(log)[1]
    file = path(second, "log")
    disk.open(file).truncate(headers_of(disk.read_bytes(file))[0].size)
    log = open_at(disk.kill(), recovery_point=second)
    assert log.log_end_offset == 40
    assert headers_of(read(log, second + 2))[0].base_offset > second + 2


def test_an_empty_file_of_a_failed_roll_does_no_harm() -> None:
    disk = new_disk()
    log = filled(disk)
    middle = bases(log)[1] + 4
    expected = stored(log)
    for leftover in (middle, 36):
        disk.open(path(leftover, "log"), create=True)
    for clean in (True, False):
        log = open_at(disk.kill(), clean=clean, recovery_point=40)
        assert stored(log) == expected
        assert middle not in bases(log)
        assert log.log_end_offset == 40


def test_an_old_segment_that_reappears_makes_way() -> None:
    disk = new_disk()
    log = filled(disk)
    old = disk.read_bytes(path(bases(log)[2], "log"))
    log.truncate_to(bases(log)[1] + 2, NOW)
    start = log.log_end_offset
    for number in range(12):
        append(log, b"new%d" % number)
    expected, end = values(log), log.log_end_offset
    stale = start + 3
    disk.open(path(stale, "log"), create=True).write(0, [struct.pack(">q", stale) + old[8:]])
    log = open_at(disk.kill())
    assert values(log) == expected
    assert log.log_end_offset == end


def test_files_without_a_log_and_half_finished_ones_are_removed() -> None:
    disk = new_disk()
    filled(disk, 3).close(NOW)
    for name in ("77.index", "00000000000000000077.timeindex", f"{0:020d}.log.deleted", "x.tmp"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    disk = disk.kill()
    log = open_at(disk, clean=True, recovery_point=6)
    assert values(log) == numbered(0, 6)
    assert all(
        name.startswith(("0" * 20, "0" * 19 + "6.snap", "leader")) for name in disk.list(DIRECTORY)
    )


# ------------------------------------------------------------------------------- clean shutdowns


def test_a_clean_log_whose_indexes_are_gone_gets_them_again() -> None:
    disk = new_disk()
    config = TopicConfig(segment_bytes=12_000, index_interval_bytes=1_000)
    log = filled(disk, 400, config)
    expected = stored(log)
    log.close(NOW)
    indexes = {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in files(disk, "index")}
    for name in indexes:
        disk.remove(f"{DIRECTORY}/{name}")
    said: list[str] = []
    disk = disk.kill()
    log = open_at(disk, clean=True, recovery_point=800, config=config, said=said)
    assert stored(log) == expected
    assert any("rebuilt" in sentence for sentence in said)
    log.close(NOW)
    assert indexes == {n: disk.read_bytes(f"{DIRECTORY}/{n}") for n in files(disk, "index")}


def test_a_clean_log_that_does_not_end_where_it_did_is_checked() -> None:
    disk = new_disk()
    filled(disk, 3).close(NOW)
    size = disk.size(path(0, "log")) // 3
    disk.flip_bit(path(0, "log"), 2 * size + 5, 0)
    said: list[str] = []
    log = open_at(disk.kill(), clean=True, recovery_point=6, said=said)
    assert log.log_end_offset == 6
    assert append(log, b"next").base_offset == 6
    assert any("damaged" in sentence for sentence in said)
    assert records_of(read(log, 0)) == [(n, b"v%d" % n) for n in range(4)]
    with pytest.raises(KafkaError) as caught:
        read(log, 4)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert records_of(read(log, 6)) == [(6, b"next")]


def test_epochs_that_are_gone_or_spoilt_are_read_from_the_log() -> None:
    for clean in (True, False):
        for contents in (None, b"nonsense"):
            disk = new_disk()
            log = open_at(disk)
            for epoch in (1, 1, 4, 9):
                append(log, b"x" * 100, epoch=epoch)
            log.close(NOW)
            expected = stored(log)
            disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
            if contents is not None:
                disk.open(f"{DIRECTORY}/leader-epoch-checkpoint", create=True).write(0, [contents])
            log = open_at(disk.kill(), clean=clean, recovery_point=4)
            assert log.epochs.entries == [(1, 0), (4, 2), (9, 3)]
            assert stored(log) == expected


# ---------------------------------------------------------------- damage before the recovery point


@pytest.mark.parametrize("recovery_point", [40, 36])
def test_damage_before_the_recovery_point_is_refused_and_costs_nothing_else(
    recovery_point: int,
) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        disk = new_disk(seed)
        log = filled(disk, 20, rng.choice([SMALL, LARGE]))
        log.flush(NOW, with_indexes=rng.random() < 0.5)
        good = {
            h.base_offset: bytes(read(log, h.base_offset)[: h.size])
            for h in headers_of(stored(log))
        }
        segment = rng.choice(log.segments)
        limit = sum(
            len(good[base]) for base in good if segment.base_offset <= base < recovery_point
        )
        limit = min(limit, segment.size)
        if not limit:
            continue
        position = rng.randrange(limit)
        disk.flip_bit(segment.file.path, position, rng.randrange(8))
        sizes = {name: disk.size(f"{DIRECTORY}/{name}") for name in files(disk, ".log")}
        disk = disk.kill()
        log = open_at(disk, recovery_point=recovery_point, config=log.config)
        assert log.log_end_offset >= recovery_point, f"seed {seed}"
        for name, size in sizes.items():
            assert disk.size(f"{DIRECTORY}/{name}") == size, f"seed {seed}: {name} was cut"
        served = 0
        for base_offset in good:
            try:
                records = read(log, base_offset, 1)
            except KafkaError:
                continue
            assert records == good[base_offset], f"seed {seed}"
            served += 1
        assert served < len(good), f"seed {seed}: nothing was noticed"
        assert append(log, b"next").base_offset == log.log_end_offset - 1


def test_a_log_with_an_unreadable_end_continues_in_a_new_segment() -> None:
    disk = new_disk()
    filled(disk, 10, LARGE).flush(NOW)
    size = disk.size(path(0, "log"))
    disk.flip_bit(path(0, "log"), headers_of(disk.read_bytes(path(0, "log")))[4].position + 16, 1)
    for _ in range(2):
        disk = disk.kill()
        log = open_at(disk, recovery_point=20, config=LARGE)
        assert (log.log_end_offset, bases(log)) == (20, [0, 20])
        assert disk.size(path(0, "log")) == size
    append(log, b"next")
    log.flush(NOW)
    log = open_at(disk.kill(), recovery_point=21, config=LARGE)
    assert records_of(read(log, 20)) == [(20, b"next")]
    assert records_of(read(log, 0))[-1][0] == 7


def test_damage_in_an_old_segment_without_indexes_does_not_keep_the_log_shut() -> None:
    disk = new_disk()
    log = filled(disk)
    log.flush(NOW, with_indexes=True)
    disk.flip_bit(path(0, "log"), 100, 7)
    disk.flip_bit(path(0, "log"), 16, 7)
    for name in files(disk, "index"):
        disk.remove(f"{DIRECTORY}/{name}")
    for name in files(disk, ".snapshot"):
        disk.remove(f"{DIRECTORY}/{name}")
    second = bases(log)[1]
    log = open_at(disk.kill(), recovery_point=40)
    assert values_from(log, second) == numbered(second, 40)


def values_from(log: Log, offset: int) -> list[bytes | None]:
    return [value for _, value in records_of(stored(log, offset))]


# ------------------------------------------------------------------------------- producers, aborts


def produce(log: Log, sequence: int, value: bytes = b"x" * 100, **options: object) -> int:
    batch = batch_of(value, producer_id=7, producer_epoch=0, base_sequence=sequence, **options)
    return append_batch(log, batch).base_offset


@pytest.mark.parametrize("flushed", range(0, 12, 3))
def test_producers_are_remembered_through_a_crash(flushed: int) -> None:
    disk = new_disk()
    log = open_at(disk)
    for sequence in range(10):
        if sequence == flushed:
            log.flush(NOW, with_indexes=True)
        produce(log, sequence)
    point = log.recovery_point
    log = open_at(disk.kill(), recovery_point=point)
    entry = log.producers.producers[7]
    assert (entry.last_sequence, entry.epoch) == (9, 0)
    retry = batch_of(b"x" * 100, producer_id=7, producer_epoch=0, base_sequence=9)
    assert append_batch(log, retry) == (9, 9, True)
    assert produce(log, 10) == 10


def test_a_spoilt_snapshot_is_made_up_for_by_the_log() -> None:
    disk = new_disk()
    log = open_at(disk)
    for sequence in range(10):
        produce(log, sequence)
    log.close(NOW)
    for name in files(disk, ".snapshot"):
        disk.flip_bit(f"{DIRECTORY}/{name}", 12, 1)
    log = open_at(disk.kill(), clean=True, recovery_point=10)
    assert [batch.last_sequence for batch in log.producers.producers[7].batches] == [5, 6, 7, 8, 9]


def test_transactions_open_at_a_crash_are_open_again() -> None:
    for flush in (True, False):
        disk = new_disk()
        log = open_at(disk)
        produce(log, 0, transactional=True)
        append(log, b"y" * 100)
        if flush:
            log.flush(NOW, with_indexes=True)
        produce(log, 1, transactional=True)
        log = open_at(disk.kill(), recovery_point=log.recovery_point)
        assert log.producers.first_unstable_offset == 0
        end_txn(log, 7, commit=False)
        assert log.aborted_transactions(0, 10) == [(7, 0, 3, 4)]


@pytest.mark.parametrize("recovery_point", [0, 5, 9])
def test_the_index_of_aborts_survives_and_is_found_again(recovery_point: int) -> None:
    for removed in ([], ["index"], ["timeindex"]):
        disk = new_disk()
        log = open_at(disk)
        for sequence in range(3):
            produce(log, sequence, transactional=True)
            append(log, b"y" * 100)
            end_txn(log, 7, commit=sequence == 1)
        expected = log.aborted_transactions(0, 100)
        assert len(expected) == 2
        log.flush(NOW, with_indexes=True)
        for extension in removed:
            for name in files(disk, f".{extension}"):
                disk.remove(f"{DIRECTORY}/{name}")
        log = open_at(disk.kill(), recovery_point=recovery_point)
        assert log.aborted_transactions(0, 100) == expected


def test_a_torn_index_of_aborts_is_built_again() -> None:
    disk = new_disk()
    log = open_at(disk)
    for sequence in range(3):
        produce(log, sequence, transactional=True)
        append(log, b"y" * 100)
        end_txn(log, 7, commit=False)
    expected = log.aborted_transactions(0, 100)
    log.flush(NOW, with_indexes=True)
    for name in files(disk, ".txnindex"):
        file = disk.open(f"{DIRECTORY}/{name}")
        file.write(0, [bytes(34)])
    log = open_at(disk.kill(), recovery_point=9)
    assert log.aborted_transactions(0, 100) == expected


def test_a_damaged_marker_does_not_keep_the_log_shut() -> None:
    disk = new_disk()
    log = open_at(disk, config=LARGE)
    produce(log, 0, transactional=True)
    size = log.active.size
    end_txn(log, 7, commit=False)
    append(log, b"y")
    log.close(NOW)
    disk.flip_bit(path(0, "log"), size + 63, 2)
    for name in files(disk, ".snapshot"):
        disk.remove(f"{DIRECTORY}/{name}")
    log = open_at(disk.kill(), clean=True, recovery_point=3, config=LARGE)
    assert log.log_end_offset == 3
    assert records_of(read(log, 2)) == [(2, b"y")]


# ----------------------------------------------------------------------------------- start offsets


def test_a_start_offset_behind_the_end_begins_a_new_log() -> None:
    """A power cut may lose records that were deleted anyway; their offsets must not be reused."""
    disk = new_disk()
    filled(disk, 3)
    said: list[str] = []
    log = open_at(disk.kill(), start=50, said=said)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert append(log, b"next").base_offset == 50
    assert any("50" in sentence for sentence in said)


def test_a_start_offset_inside_the_log_is_kept() -> None:
    disk = new_disk()
    log = open_at(disk)
    for epoch in (1, 1, 4, 9):
        append(log, b"x" * 100, epoch=epoch)
    log = open_at(disk.kill(), start=2)
    assert log.log_start_offset == 2
    assert log.epochs.entries == [(4, 2), (9, 3)]


def test_a_full_disk_does_not_keep_a_log_from_being_opened_and_read() -> None:
    disk = new_disk()
    log = filled(disk)
    expected = stored(log)
    disk = disk.kill()
    disk.capacity = 0
    log = open_at(disk)
    assert stored(log) == expected
    with pytest.raises(KafkaError) as caught:
        append(log, b"next" * 50)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.capacity = None
    append(log, b"next" * 50)
    log.flush(NOW, with_indexes=True)
    assert stored(open_at(disk.power_cut(), recovery_point=41))[: len(expected)] == expected


def test_a_followed_log_with_gaps_survives_a_kill() -> None:
    disk = new_disk()
    log = open_at(disk)
    for base_offset in range(0, 200, 10):
        follow(log, batch_of(b"v" * 50, base_offset=base_offset, leader_epoch=2))
    expected = stored(log)
    log = open_at(disk.kill())
    assert stored(log) == expected
    assert log.log_end_offset == 191

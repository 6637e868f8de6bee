"""Tests of the index of aborted transactions: format, look-ups, and full or torn disks."""

from __future__ import annotations

import random
import threading

import pytest

from ottla.storage.txn_index import AbortedTxn, TransactionIndex
from ottla.testing.simulation.disk import Fault, SimulatedDisk

PATH = "/00000000000000000100.txnindex"
FIRST = AbortedTxn(7, 100, 104, 101)
SECOND = AbortedTxn(0x0102_0304_0506_0708, 101, 0x1_0000_0000, 0x1_0000_0001)
FIRST_BYTES = "0000 0000000000000007 0000000000000064 0000000000000068 0000000000000065"
SECOND_BYTES = "0000 0102030405060708 0000000000000065 0000000100000000 0000000100000001"


def filled(disk: SimulatedDisk) -> TransactionIndex:
    index = TransactionIndex(disk, PATH)
    index.append(FIRST)
    index.append(SECOND)
    return index


def test_entries_have_kafkas_bytes_at_once() -> None:
    disk = SimulatedDisk()
    filled(disk)
    assert disk.read_bytes(PATH) == bytes.fromhex(FIRST_BYTES + SECOND_BYTES)


def test_entries_written_by_kafka_are_read() -> None:
    disk = SimulatedDisk()
    disk.open(PATH, create=True).write(0, [bytes.fromhex(FIRST_BYTES + SECOND_BYTES)])
    index = TransactionIndex(disk, PATH)
    assert index.is_sane(100)
    assert index.entries() == [FIRST, SECOND]


def test_a_segment_without_aborts_has_no_file() -> None:
    disk = SimulatedDisk()
    index = TransactionIndex(disk, PATH)
    assert index.entries() == []
    assert index.is_sane(100)
    index.flush()
    index.sync()
    index.reset()
    index.truncate_to(0)
    index.flush()
    assert disk.list("/") == []


@pytest.mark.parametrize(
    ("first", "end", "found", "is_complete"),
    [
        (0, 100, [], True),
        (0, 101, [7], True),
        (0, 102, [7, SECOND.producer_id], True),
        (0, 103, [7, SECOND.producer_id], True),
        (104, 200, [7, SECOND.producer_id], True),
        (105, 200, [SECOND.producer_id], True),
        (105, 2**40, [SECOND.producer_id], False),
        (2**40, 2**41, [], False),
    ],
)
def test_transactions_that_touch_a_range_are_found(
    first: int, end: int, found: list[int], is_complete: bool
) -> None:
    entries, complete = filled(SimulatedDisk()).overlapping(first, end)
    assert [entry.producer_id for entry in entries] == found
    assert complete == is_complete


def test_truncation_keeps_what_was_over_before() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    index.truncate_to(105)
    index.flush()
    assert index.entries() == [FIRST]
    assert disk.read_bytes(PATH) == bytes.fromhex(FIRST_BYTES)
    index.append(SECOND)
    assert disk.read_bytes(PATH) == bytes.fromhex(FIRST_BYTES + SECOND_BYTES)


def test_an_entry_that_finds_no_room_is_kept_and_written_when_there_is_some() -> None:
    disk = SimulatedDisk()
    index = TransactionIndex(disk, PATH)
    index.append(FIRST)
    disk.capacity = 40
    index.append(SECOND)
    assert index.entries() == [FIRST, SECOND]
    with pytest.raises(OSError, match="No space left"):
        index.flush()
    disk.capacity = None
    index.flush()
    assert disk.read_bytes(PATH) == bytes.fromhex(FIRST_BYTES + SECOND_BYTES)


def test_what_was_synced_survives_a_power_cut() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    assert index.is_unsynced
    index.sync()
    assert not index.is_unsynced
    disk.sync_directory("/")
    assert TransactionIndex(disk.power_cut(), PATH).entries() == [FIRST, SECOND]


def test_after_a_sync_that_failed_everything_is_written_again() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed)
        index = filled(disk)
        disk.sync_directory("/")
        disk.inject(Fault("sync"))
        with pytest.raises(OSError, match="Input/output"):
            index.sync()
        index.flush()
        index.sync()
        assert TransactionIndex(disk.power_cut(), PATH).entries() == [FIRST, SECOND]


def test_entries_dropped_before_a_sync_do_not_come_back() -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        index = filled(disk)
        index.sync()
        disk.sync_directory("/")
        index.reset()
        index.flush()
        index.sync()
        assert TransactionIndex(disk.power_cut(random.Random(seed)), PATH).entries() == []


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param(FIRST_BYTES + "00", id="a part of an entry"),
        pytest.param(FIRST_BYTES + "00" * 34, id="a hole"),
        pytest.param(FIRST_BYTES + FIRST_BYTES, id="an entry twice"),
        pytest.param(FIRST_BYTES + "0001" + SECOND_BYTES[4:], id="an unknown version"),
    ],
)
def test_a_file_that_a_crash_has_spoilt_is_not_sane(contents: str) -> None:
    disk = SimulatedDisk()
    disk.open(PATH, create=True).write(0, [bytes.fromhex(contents)])
    assert not TransactionIndex(disk, PATH).is_sane(100)


def test_an_entry_from_before_the_segment_is_not_sane() -> None:
    assert not filled(SimulatedDisk()).is_sane(105)


def test_the_index_follows_its_renamed_file() -> None:
    disk = SimulatedDisk()
    index = filled(disk)
    index.rename(PATH + ".deleted")
    assert disk.list("/") == [PATH[1:] + ".deleted"]
    index.remove()
    assert disk.list("/") == []


class SlowFirstRead(SimulatedDisk):
    """Disk whose first read blocks until released and returns the data from before it blocked."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def read_bytes(self, path: str) -> bytes:
        data = super().read_bytes(path)
        if not self.has_begun.is_set():
            self.has_begun.set()
            self.may_end.wait(10)
        return data


def test_a_reader_in_another_thread_does_not_undo_an_append() -> None:
    disk = SlowFirstRead()
    disk.open(PATH, create=True).write(0, [bytes.fromhex(FIRST_BYTES)])
    index = TransactionIndex(disk, PATH)
    reader = threading.Thread(target=index.entries)
    reader.start()
    assert disk.has_begun.wait(10)
    writer = threading.Thread(target=index.append, args=[SECOND])
    writer.start()
    writer.join(0.2)
    disk.may_end.set()
    for thread in (reader, writer):
        thread.join()
    assert index.entries() == [FIRST, SECOND]

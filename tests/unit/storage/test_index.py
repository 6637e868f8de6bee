"""Tests of sparse indexes: on-disk format, look-ups, and recovery from crashes."""

from __future__ import annotations

import struct
import threading
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.index import NO_TIMESTAMP, OffsetIndex, OffsetPosition, TimeIndex
from ottla.testing.simulation.disk import Fault, SimulatedDisk

BASE = 5_000_000_000
PATH = "/00000000005000000000.index"
TIME_PATH = "/00000000005000000000.timeindex"


def offset_index(disk: SimulatedDisk, *, new: bool = True) -> OffsetIndex:
    return OffsetIndex(disk, PATH, BASE, new=new)


def time_index(disk: SimulatedDisk, *, new: bool = True) -> TimeIndex:
    return TimeIndex(disk, TIME_PATH, BASE, new=new)


# ----------------------------------------------------------------------------------- the formats


def test_an_offset_index_has_kafkas_bytes() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(BASE + 9, 4_200)
    index.append(BASE + 0x7FFF_FFFF, 0x7000_0001)
    index.flush()
    assert disk.read_bytes(PATH).hex(" ", 4) == "00000009 00001068 7fffffff 70000001"


def test_a_time_index_has_kafkas_bytes() -> None:
    disk = SimulatedDisk()
    index = time_index(disk)
    index.append(1_700_000_000_000, BASE + 3)
    index.append(0x0000_7FFF_FFFF_FFFF, BASE + 258)
    index.flush()
    assert disk.read_bytes(TIME_PATH).hex(" ", 4) == (
        "0000018b cfe56800 00000003 00007fff ffffffff 00000102"
    )


def test_indexes_written_by_kafka_are_read() -> None:
    disk = SimulatedDisk()
    disk.open(PATH, create=True).write(0, [bytes.fromhex("00000009 00001068 0000000a 00002000")])
    disk.open(TIME_PATH, create=True).write(
        0, [bytes.fromhex("0000018b cfe56800 00000003 0000018b ffffffff 00000009")]
    )
    index, times = offset_index(disk, new=False), time_index(disk, new=False)
    assert index.is_sane(0x2001)
    assert times.is_sane()
    assert len(index) == len(times) == 2
    assert index.lookup(BASE + 9) == (BASE + 9, 4_200)
    assert index.last() == (BASE + 10, 0x2000)
    assert times.lookup(1_700_000_000_000) == (1_700_000_000_000, BASE + 3)
    assert times.last() == (0x018B_FFFF_FFFF, BASE + 9)


entries = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9_000)), max_size=40)


@given(entries, st.data())
def test_an_offset_index_looks_up_the_last_entry_at_or_before(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    disk = SimulatedDisk()
    index, pairs, offset, position = offset_index(disk), [(BASE, 0)], BASE - 1, 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        index.append(offset, position)
        pairs.append((offset, position))
        if data.draw(st.booleans()):
            index.flush()
    index.flush()
    for known in (index, offset_index(disk, new=False)):
        target = data.draw(st.integers(BASE, BASE + 2_000))
        at_or_before = [pair for pair in pairs[1:] if pair[0] <= target]
        assert known.lookup(target) == (at_or_before or pairs[:1])[-1]
        assert known.last() == pairs[-1]


@given(
    st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 5)), max_size=30), st.integers(-2, 40)
)
def test_a_time_index_takes_only_what_is_newer(appends: list[tuple[int, int]], target: int) -> None:
    disk = SimulatedDisk()
    index, kept, offset = time_index(disk), [(NO_TIMESTAMP, BASE)], BASE
    for timestamp, step in appends:
        offset += step
        index.append(timestamp, offset)
        if timestamp > kept[-1][0]:
            kept.append((timestamp, offset))
    index.flush()
    assert struct.iter_unpack(">qi", disk.read_bytes(TIME_PATH))
    for known in (index, time_index(disk, new=False)):
        assert len(known) == len(kept) - 1
        assert known.lookup(target) == [pair for pair in kept if pair[0] <= max(target, -1)][-1]
        assert known.last() == kept[-1]


def test_records_without_a_timestamp_leave_no_time_entry() -> None:
    index = time_index(SimulatedDisk())
    index.append(NO_TIMESTAMP, BASE + 5)
    assert len(index) == 0


# --------------------------------------------------------------------------------- truncation


def test_truncation_keeps_entries_below_the_offset() -> None:
    disk = SimulatedDisk()
    index, times = offset_index(disk), time_index(disk)
    for number in range(1, 6):
        index.append(BASE + 10 * number, 1_000 * number)
        times.append(100 * number, BASE + 10 * number)
    index.flush()
    times.flush()
    index.truncate_to(BASE + 30)
    times.truncate_to(BASE + 31)
    assert index.last() == (BASE + 20, 2_000)
    assert times.last() == (300, BASE + 30)
    index.append(BASE + 25, 2_500)
    index.flush()
    times.flush()
    assert disk.read_bytes(PATH) == struct.pack(">6i", 10, 1_000, 20, 2_000, 25, 2_500)
    assert len(disk.read_bytes(TIME_PATH)) == 36


def test_an_index_knows_that_its_file_still_holds_entries_that_are_no_longer_true() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(BASE + 10, 1_000)
    index.flush()
    assert not index.is_rewritten
    index.truncate_to(BASE)
    assert index.is_rewritten
    index.flush()
    assert index.is_rewritten, "a power cut could still bring the old file back"
    index.sync()
    assert not index.is_rewritten


def test_a_reset_index_is_empty_on_disk_too() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(BASE + 10, 1_000)
    index.flush()
    index.reset()
    assert index.last() == (BASE, 0)
    assert index.is_rewritten
    index.flush()
    assert disk.read_bytes(PATH) == b""


def test_a_sync_that_fails_is_not_taken_for_done() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(BASE + 10, 1_000)
    index.append(BASE + 20, 2_000)
    index.flush()
    index.truncate_to(BASE + 20)
    index.flush()
    disk.inject(Fault("sync"))
    with pytest.raises(OSError, match="Input/output"):
        index.sync()
    assert index.is_rewritten
    index.flush()
    index.sync()
    disk.sync_directory("/")
    found = disk.power_cut()
    assert found.read_bytes(PATH) == struct.pack(">2i", 10, 1_000)


# -------------------------------------------------------------------------------- disk and memory


def test_entries_stay_in_memory_until_they_are_flushed() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(BASE + 10, 1_000)
    assert not disk.exists(PATH)
    index.unload()
    assert index.last() == (BASE + 10, 1_000)
    index.flush()
    index.unload()
    index.append(BASE + 20, 2_000)
    assert index.lookup(BASE + 15) == (BASE + 10, 1_000)


def test_an_empty_index_has_a_file_once_it_is_flushed() -> None:
    disk = SimulatedDisk()
    offset_index(disk).flush()
    assert disk.read_bytes(PATH) == b""
    assert offset_index(disk, new=False).is_sane(0)


def test_a_flush_that_fails_half_way_is_done_again_as_a_whole() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(BASE + 10, 1_000)
    index.flush()
    index.append(BASE + 20, 2_000)
    index.append(BASE + 30, 3_000)
    disk.capacity = 19
    with pytest.raises(OSError, match="No space left"):
        index.flush()
    assert not offset_index(disk, new=False).is_sane(10_000)
    disk.capacity = None
    index.flush()
    assert disk.read_bytes(PATH) == struct.pack(">6i", 10, 1_000, 20, 2_000, 30, 3_000)


@pytest.mark.parametrize("size", [1, 7, 9, 12])
def test_an_offset_index_with_a_part_of_an_entry_is_not_sane(size: int) -> None:
    disk = SimulatedDisk()
    disk.open(PATH, create=True).write(0, [bytes(size)])
    assert not offset_index(disk, new=False).is_sane(10_000)


def test_a_missing_index_is_not_sane() -> None:
    disk = SimulatedDisk()
    assert not offset_index(disk, new=False).is_sane(10_000)
    assert not time_index(disk, new=False).is_sane()


@pytest.mark.parametrize(("offset", "position"), [(-1, 5), (5, -1), (5, 100)])
def test_an_offset_index_that_points_outside_its_log_is_not_sane(
    offset: int, position: int
) -> None:
    disk = SimulatedDisk()
    disk.open(PATH, create=True).write(0, [struct.pack(">2i", offset, position)])
    assert not offset_index(disk, new=False).is_sane(100)


def test_asking_whether_an_index_is_sane_does_not_load_it() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    for number in range(1_000):
        index.append(BASE + number, number)
    index.flush()
    before = disk.calls["read"]
    stored = offset_index(disk, new=False)
    assert stored.is_sane(1_000)
    assert not stored.is_loaded
    assert disk.calls["read"] == before + 1


def test_holes_that_a_power_cut_leaves_are_noticed() -> None:
    disk = SimulatedDisk()
    disk.open(PATH, create=True).write(0, [struct.pack(">6i", 5, 50, 0, 0, 9, 90)])
    disk.open(TIME_PATH, create=True).write(0, [struct.pack(">qiqi", 70, 5, 0, 9)])
    index, times = offset_index(disk, new=False), time_index(disk, new=False)
    assert index.is_sane(100)
    assert not index.is_rising()
    assert not times.is_rising()
    disk.open(PATH).truncate(0)
    disk.open(PATH).write(0, [struct.pack(">4i", 0, 0, 5, 50)])
    disk.open(TIME_PATH).write(0, [struct.pack(">qiqi", 0, 0, 70, 5)])
    assert not offset_index(disk, new=False).is_rising()
    assert not time_index(disk, new=False).is_rising()
    disk.open(PATH).write(0, [struct.pack(">4i", 5, 50, 6, 60)])
    disk.open(TIME_PATH).write(0, [struct.pack(">qi", 70, 5)])
    disk.open(TIME_PATH).write(12, [struct.pack(">qi", 71, 5)])
    assert offset_index(disk, new=False).is_rising()
    assert time_index(disk, new=False).is_rising()


def test_an_index_follows_its_renamed_file() -> None:
    disk = SimulatedDisk()
    index = offset_index(disk)
    index.append(BASE + 10, 1_000)
    index.flush()
    index.rename(PATH + ".deleted")
    index.unload()
    assert index.last() == OffsetPosition(BASE + 10, 1_000)
    index.remove()
    assert disk.list("/") == []


class _SlowArray(array):  # type: ignore[type-arg]
    """Array that runs a callback after each append, when an index entry is only partly written."""

    look = staticmethod(lambda: None)

    def append(self, value: int) -> None:
        super().append(value)
        type(self).look()


def test_a_reader_never_sees_half_an_entry() -> None:
    index = offset_index(SimulatedDisk())
    index.append(BASE + 1, 100)
    index._columns = tuple(_SlowArray("i", column) for column in index.load())  # type: ignore[assignment]
    seen: list[object] = []

    def look() -> None:
        reader = threading.Thread(
            target=lambda: seen.extend([index.lookup(BASE + 9), index.last()])
        )
        reader.start()
        reader.join()

    _SlowArray.look = staticmethod(look)
    index.append(BASE + 2, 200)
    old, new = (BASE + 1, 100), (BASE + 2, 200)
    assert len(seen) == 4
    assert set(seen) <= {old, new}

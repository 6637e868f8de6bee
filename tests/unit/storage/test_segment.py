"""Tests of one segment: failed appends, corrupt headers and wrong indexes."""

from __future__ import annotations

import struct
import tempfile

import pytest
from tests.unit.storage.logs import DIRECTORY, NOW, batch_of, new_disk

from ottla.storage.file import OsFile, OsFileSystem
from ottla.storage.segment import UNINDEXED_BYTES, Segment, WouldBlock, segment_path
from ottla.storage.segment_recovery import recover_segment, recovery_start
from ottla.testing.simulation.disk import Fault, SimulatedDisk
from ottla.wire.records.batch import read_header
from ottla.wire.records.errors import BatchError, CorruptBatch

BASE = 100
INTERVAL = 150
LOG = segment_path(DIRECTORY, BASE, "log")
INDEX = segment_path(DIRECTORY, BASE, "index")
TIME_INDEX = segment_path(DIRECTORY, BASE, "timeindex")


def new_segment(disk: SimulatedDisk) -> Segment:
    return Segment(disk, DIRECTORY, BASE, new=True, created_ms=NOW)


def test_a_new_segment_begins_empty_whatever_the_file_holds() -> None:
    disk = new_disk()
    put(new_segment(disk), BASE)
    assert new_segment(disk).size == disk.size(LOG) == 0


def test_an_empty_file_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts: list[int] = []
    monkeypatch.setattr(OsFile, "truncate", lambda file, size: cuts.append(size))
    with tempfile.TemporaryDirectory() as home:
        Segment(OsFileSystem(), home, BASE, new=True)
    assert not cuts


def put(
    segment: Segment, base_offset: int, *, timestamp: int | None = None, count: int = 2
) -> bytes:
    batch = batch_of(
        *[b"v%d" % (base_offset + n) for n in range(count)],
        base_offset=base_offset,
        leader_epoch=0,
        timestamp=NOW + base_offset if timestamp is None else timestamp,
    )
    header = read_header(batch)
    segment.append([batch], len(batch), header.last_offset, header.max_timestamp, INTERVAL)
    return batch


def filled(disk: SimulatedDisk, batches: int = 10) -> tuple[Segment, int]:
    """Create a segment with batches of two records and return it with the size of a batch."""
    segment = new_segment(disk)
    for number in range(batches):
        put(segment, BASE + 2 * number)
    return segment, segment.size // batches


def reopened(disk: SimulatedDisk) -> Segment:
    return Segment(disk, DIRECTORY, BASE)


def bases(segment: Segment) -> list[int]:
    return [header.base_offset for header in segment.iter_headers(0, wait=True)]


# ----------------------------------------------------------------------------------------- append


def test_batches_lie_back_to_back_and_every_few_are_indexed() -> None:
    disk = new_disk()
    segment, size = filled(disk)
    assert disk.size(LOG) == 10 * size == segment.size
    assert bases(segment) == list(range(100, 120, 2))
    segment.seal()
    segment.flush_indexes()
    step = INTERVAL // size + 1
    indexed = range(step, 10, step)
    assert disk.read_bytes(INDEX) == b"".join(
        struct.pack(">2i", 2 * n + 1, n * size) for n in indexed
    )
    assert disk.read_bytes(TIME_INDEX) == b"".join(
        struct.pack(">qi", NOW + BASE + 2 * n, 2 * n + 1) for n in [*indexed, 9]
    )


def test_a_time_entry_never_claims_less_than_an_older_batch() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    for number, timestamp in enumerate([50, 90, 20, 30, 90, 60, 95, 10]):
        put(segment, BASE + 2 * number, timestamp=timestamp)
    segment.seal()
    segment.flush_indexes()
    entries = list(struct.iter_unpack(">qi", disk.read_bytes(TIME_INDEX)))
    assert entries == [(90, 3), (95, 13)]
    assert segment.max_timestamp == 95
    assert segment.offset_of_max_timestamp == 113


def test_a_failed_write_leaves_nothing() -> None:
    disk = new_disk()
    segment, size = filled(disk, 2)
    disk.inject(Fault("write", path=".log"))
    with pytest.raises(OSError, match="Input/output"):
        put(segment, 104)
    assert disk.size(LOG) == 2 * size
    put(segment, 104)
    assert bases(segment) == [100, 102, 104]


def test_a_torn_write_that_cannot_be_undone_is_undone_before_the_next() -> None:
    disk = new_disk()
    segment, size = filled(disk, 2)
    disk.capacity = disk.size(LOG) + 30
    disk.inject(Fault("truncate"))
    with pytest.raises(OSError, match="Input/output"):
        put(segment, 104)
    assert disk.size(LOG) == 2 * size + 30
    assert bases(segment) == [100, 102]
    disk.capacity = None
    put(segment, 104, count=1)
    assert disk.size(LOG) == segment.size
    assert bases(reopened(disk)) == [100, 102, 104]


def test_a_sealed_segment_has_no_torn_tail() -> None:
    disk = new_disk()
    segment, size = filled(disk, 2)
    disk.capacity = disk.size(LOG) + 70
    disk.inject(Fault("truncate"))
    with pytest.raises(OSError, match="Input/output"):
        put(segment, 104)
    segment.seal()
    assert disk.size(LOG) == 2 * size


@pytest.mark.parametrize("path", [".index", ".timeindex", ".log"])
def test_what_must_be_read_for_an_append_is_read_before_it_writes(path: str) -> None:
    """Otherwise the batch would be in the file, and the next one would reuse its offsets."""
    disk = new_disk()
    segment, _ = filled(disk)
    segment.seal()
    segment.flush_indexes()
    segment = reopened(disk)
    disk.inject(Fault("read", path=path, times=5))
    with pytest.raises(OSError, match="Input/output"):
        put(segment, 120)
    disk.heal()
    assert bases(reopened(disk)) == list(range(100, 120, 2))
    put(segment, 120)
    assert bases(segment)[-1] == 120


def test_damage_in_a_segment_does_not_keep_it_from_being_appended_to() -> None:
    disk = new_disk()
    _, size = filled(disk, 4)
    disk.flip_bit(LOG, size + 16, 0)
    segment = reopened(disk)
    assert segment.first_timestamp == NOW + 100
    put(segment, 108)
    assert segment.size == 5 * size
    assert segment.max_timestamp == NOW + 108


# ------------------------------------------------------------------------------------------- read


def test_a_batch_is_located_by_any_offset_in_it() -> None:
    segment, size = filled(new_disk())
    assert [segment.locate(offset, wait=True) for offset in (99, 100, 101, 102, 119)] == [
        0, 0, 0, size, 9 * size,
    ]  # fmt: skip
    assert segment.locate(120, wait=True) is None


def test_a_wrong_index_is_noticed_and_passed_over() -> None:
    disk = new_disk()
    segment, size = filled(disk)
    for entries in ([(5, 7)], [(5, size * 9)], [(5, 0), (9, size + 1)]):
        segment.offset_index.reset()
        for offset, position in entries:
            segment.offset_index.append(BASE + offset, position)
        for offset in range(100, 120):
            assert segment.locate(offset, wait=True) == (offset - 100) // 2 * size
        assert segment.next_offset() == 120


@pytest.mark.parametrize("tail", [1, 60, 61, 70])
def test_bytes_behind_the_last_batch_are_no_batch(tail: int) -> None:
    disk = new_disk()
    segment, size = filled(disk, 3)
    disk.open(LOG).write(3 * size, [disk.read_bytes(LOG)[:tail]])
    segment = reopened(disk)
    with pytest.raises(BatchError):
        segment.next_offset()
    with pytest.raises(BatchError):
        segment.locate(106, wait=True)
    assert segment.locate(104, wait=True) == 2 * size


def test_batches_out_of_order_are_damage() -> None:
    disk = new_disk()
    segment, size = filled(disk, 3)
    disk.open(LOG).write(size, [struct.pack(">q", 99)])
    with pytest.raises(CorruptBatch, match="out of order"):
        segment.locate(103, wait=True)


def test_a_cold_read_does_not_wait_unless_it_may() -> None:
    disk = new_disk()
    segment, _ = filled(disk)
    segment.flush_indexes()
    disk.cold_rate = 1.0
    with pytest.raises(WouldBlock):
        segment.locate(110, wait=False)
    disk.cold_rate = 0.0
    segment.unload()
    with pytest.raises(WouldBlock):
        segment.locate(110, wait=False)
    assert segment.locate(110, wait=True) is not None


def test_a_damaged_batch_is_not_given_out() -> None:
    disk = new_disk()
    segment, size = filled(disk, 3)
    headers = list(segment.iter_headers(0, wait=True))
    disk.flip_bit(LOG, 2 * size - 1, 3)
    segment.read_batch(headers[0])
    with pytest.raises(CorruptBatch, match="CRC"):
        segment.read_batch(headers[1])


# ------------------------------------------------------------------------------------- timestamps


@pytest.mark.parametrize("keep_indexes", [True, False])
def test_timestamps_are_found_again_when_a_segment_is_opened(keep_indexes: bool) -> None:
    disk = new_disk()
    segment = new_segment(disk)
    for number, timestamp in enumerate([50, 90, 20, 30, 90, 60, 95, 10]):
        put(segment, BASE + 2 * number, timestamp=timestamp)
    if keep_indexes:
        segment.flush_indexes()
    segment = reopened(disk)
    assert (segment.first_timestamp, segment.max_timestamp) == (50, 95)
    assert segment.offset_of_max_timestamp == 113
    found = [header.base_offset for header in segment.batches_since(60)]
    assert found == [102, 108, 110, 112]


def test_an_empty_segment_has_no_timestamps() -> None:
    segment = new_segment(new_disk())
    assert (segment.first_timestamp, segment.max_timestamp) == (-1, -1)
    assert segment.offset_of_max_timestamp == BASE
    assert segment.next_offset() == BASE


# ------------------------------------------------------------------------------------ truncation


def test_truncation_cuts_file_indexes_and_timestamps() -> None:
    disk = new_disk()
    segment, size = filled(disk)
    segment.seal()
    segment.flush_indexes()
    segment.truncate_to_position(4 * size, 108)
    assert bases(reopened(disk)) == [100, 102, 104, 106]
    assert segment.max_timestamp == NOW + 106
    assert disk.read_bytes(INDEX) == struct.pack(">2i", 5, 2 * size)[: disk.size(INDEX)]
    assert all(offset < 8 for _, offset in struct.iter_unpack(">qi", disk.read_bytes(TIME_INDEX)))
    assert segment.indexes_are_rewritten
    put(segment, 108, timestamp=5)
    assert segment.max_timestamp == NOW + 106


def test_truncation_to_nothing_leaves_an_empty_segment() -> None:
    disk = new_disk()
    segment, _ = filled(disk)
    segment.flush_indexes()
    segment.truncate_to_position(0, 100)
    assert (segment.size, segment.max_timestamp, segment.first_timestamp) == (0, -1, -1)
    put(segment, 100, timestamp=7)
    assert (segment.first_timestamp, segment.max_timestamp) == (7, 7)


# -------------------------------------------------------------------------------------- life cycle


def test_all_files_are_renamed_and_removed_together() -> None:
    disk = new_disk()
    segment, _ = filled(disk)
    segment.flush_indexes()
    segment.change_suffix(".deleted")
    assert disk.list(DIRECTORY) == [
        f"00000000000000000100.{extension}.deleted" for extension in ("index", "log", "timeindex")
    ]
    assert bases(segment)[0] == 100
    segment.remove()
    assert disk.list(DIRECTORY) == []


def test_a_small_segment_does_without_index_files() -> None:
    disk = new_disk()
    segment, _ = filled(disk, 1)
    segment.seal()
    segment.flush_indexes()
    assert disk.list(DIRECTORY) == ["00000000000000000100.log"]
    assert reopened(disk).indexes_are_sane()
    while segment.size <= UNINDEXED_BYTES:
        put(segment, BASE + segment.size)
    assert not reopened(disk).indexes_are_sane()
    segment.flush_indexes()
    assert reopened(disk).indexes_are_sane()


# --------------------------------------------------------------------------------------- recovery


def recover(
    segment: Segment, safe_offset: int, end_offset: int | None = None
) -> tuple[tuple[int, int, int, bool], list[int]]:
    seen: list[int] = []
    recovered = recover_segment(
        segment,
        safe_offset,
        end_offset,
        INTERVAL,
        lambda header: header.leader_epoch == 0,
        lambda header, _: seen.append(header.base_offset),
    )
    return tuple(recovered), seen


def saved(disk: SimulatedDisk, batches: int = 10) -> int:
    segment, size = filled(disk, batches)
    segment.flush_indexes()
    return size


def test_recovery_begins_at_the_last_indexed_batch_before_the_safe_offset() -> None:
    disk = new_disk()
    size = saved(disk)
    assert recovery_start(reopened(disk), 118) == (116, 8 * size)
    assert recovery_start(reopened(disk), 117) == (116, 8 * size)
    assert recovery_start(reopened(disk), 116) == (112, 6 * size)
    assert recovery_start(reopened(disk), 103) == (100, 0)
    result, seen = recover(reopened(disk), 118)
    assert seen == [116, 118]
    assert result == (120, 0, 0, True)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([(9, 321)], id="into a batch"),
        pytest.param([(8, 4)], id="another offset"),
        pytest.param([(5, 2), (9, 0), (13, 6)], id="a hole"),
        pytest.param([(9, 10**6)], id="behind the end"),
    ],
)
def test_an_index_that_does_not_fit_the_log_is_not_relied_on(
    entries: list[tuple[int, int]],
) -> None:
    disk = new_disk()
    size = saved(disk)
    places = [(offset, n * size if n < 20 else n) for offset, n in entries]
    disk.open(INDEX).truncate(0)
    disk.open(INDEX).write(0, [b"".join(struct.pack(">2i", *place) for place in places)])
    segment = reopened(disk)
    result, seen = recover(segment, 115)
    assert seen == list(range(100, 120, 2))
    assert result == (120, 0, 0, True)
    assert [segment.locate(offset, wait=True) for offset in (100, 110, 119)] == [
        0,
        5 * size,
        9 * size,
    ]


@pytest.mark.parametrize("kept", [1, 30, 60, 61, 75])
def test_a_torn_batch_behind_the_safe_offset_is_cut(kept: int) -> None:
    disk = new_disk()
    size = saved(disk)
    disk.open(LOG).truncate(9 * size + kept)
    result, _ = recover(reopened(disk), 104)
    assert result == (118, kept, 0, True)
    assert disk.size(LOG) == 9 * size


def test_zeros_where_batches_should_be_are_cut() -> None:
    disk = new_disk()
    size = saved(disk)
    disk.open(LOG).write(6 * size, [bytes(2 * size)])
    result, seen = recover(reopened(disk), 100)
    assert result == (112, 4 * size, 0, True)
    assert seen == [100, 102, 104, 106, 108, 110]


def test_a_damaged_batch_before_the_safe_offset_is_kept() -> None:
    disk = new_disk()
    size = saved(disk)
    disk.remove(INDEX)
    disk.flip_bit(LOG, 3 * size + 70, 1)
    result, seen = recover(reopened(disk), 114)
    assert result == (120, 0, 1, True)
    assert seen == [100, 102, 104, 108, 110, 112, 114, 116, 118]


@pytest.mark.parametrize("offset", [107, 106 + 2**20, 2**40, 101, -5])
def test_a_wrong_offset_before_the_safe_offset_costs_no_other_batch(offset: int) -> None:
    disk = new_disk()
    size = saved(disk)
    disk.remove(INDEX)
    disk.open(LOG).write(3 * size, [struct.pack(">q", offset)])
    result, seen = recover(reopened(disk), 114)
    assert result == (120, 0, 1, True)
    assert seen == [100, 102, 104, 108, 110, 112, 114, 116, 118]


@pytest.mark.parametrize("at", [16, 8, 10])
def test_a_place_before_the_safe_offset_that_is_no_batch_makes_the_end_unknown(at: int) -> None:
    disk = new_disk()
    size = saved(disk)
    disk.remove(INDEX)
    disk.flip_bit(LOG, 3 * size + at, 6)
    result, seen = recover(reopened(disk), 114)
    assert result == (106, 0, 1, False)
    assert disk.size(LOG) == 10 * size
    assert seen == [100, 102, 104]


@pytest.mark.parametrize("bit", range(64))
def test_the_last_batch_before_the_safe_offset_is_never_cut_and_never_moves(bit: int) -> None:
    """The CRC does not cover the base offset, and no later batch can contradict it."""
    disk = new_disk()
    size = saved(disk)
    disk.flip_bit(LOG, 9 * size + bit // 8, 7 - bit % 8)
    result, seen = recover(reopened(disk), 120)
    assert disk.size(LOG) == 10 * size
    assert result == (118, 0, 1, False)
    assert 118 not in seen


def test_gaps_that_compaction_left_are_recovered() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    for base_offset in (105, 120, 121 + 1, 150):
        put(segment, base_offset)
    for safe_offset in (100, 124, 130, 152):
        result, seen = recover(reopened(disk), safe_offset, end_offset=160)
        assert result == (152, 0, 0, True)
        assert seen[-1] == 150


def test_recovered_indexes_are_those_that_were_there() -> None:
    disk = new_disk()
    segment, _ = filled(disk)
    segment.seal()
    segment.flush_indexes()
    before = disk.read_bytes(INDEX), disk.read_bytes(TIME_INDEX)
    disk.remove(INDEX)
    recover(reopened(disk), 100)
    assert (disk.read_bytes(INDEX), disk.read_bytes(TIME_INDEX)) == before


def test_recovery_knows_the_newest_timestamp_even_if_its_index_entry_is_dropped() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    for number, timestamp in enumerate([10, 20, 30, 80, 90, 15]):
        put(segment, BASE + 2 * number, timestamp=timestamp)
    segment.flush_indexes()
    size = segment.size // 6
    disk.open(LOG).write(4 * size + 70, [b"torn"])
    segment = reopened(disk)
    result, _ = recover(segment, 108)
    assert result == (108, 2 * size, 0, True)
    assert segment.max_timestamp == 80
    assert [header.base_offset for header in segment.batches_since(70)] == [106]


def test_a_full_disk_does_not_keep_a_segment_from_being_recovered() -> None:
    disk = new_disk()
    saved(disk)
    disk.remove(INDEX)
    disk.remove(TIME_INDEX)
    disk.capacity = disk.size(LOG)
    segment = reopened(disk)
    assert recover(segment, 100)[0] == (120, 0, 0, True)
    assert len(segment.offset_index) > 1
    disk.capacity = None
    segment.flush_indexes()
    assert reopened(disk).indexes_are_sane()

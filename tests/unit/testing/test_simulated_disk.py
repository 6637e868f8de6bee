"""Tests that the simulated disk keeps synced data and may lose the rest."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.base.ports import write_atomically
from ottla.testing.simulation.clock import SimulatedClock
from ottla.testing.simulation.disk import Fault, PowerCut, SimulatedDisk


def synced_disk(contents: bytes = b"") -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories("/d")
    disk.sync_directory("/")
    file = disk.open("/d/f", create=True)
    file.write(0, [contents])
    file.sync()
    disk.sync_directory("/d")
    return disk


def test_what_was_synced_survives_any_power_cut() -> None:
    for seed in range(50):
        disk = synced_disk(b"kept" * 3_000)
        assert disk.power_cut(random.Random(seed)).read_bytes("/d/f") == b"kept" * 3_000


def test_unsynced_sectors_survive_or_not_each_for_itself() -> None:
    found = set()
    for seed in range(300):
        disk = synced_disk(b"a" * 8_192)
        disk.open("/d/f").write(0, [b"b" * 8_192])
        after = disk.power_cut(random.Random(seed)).read_bytes("/d/f")
        sectors = [after[n : n + 512] for n in range(0, 8_192, 512)]
        assert all(len(set(sector)) == 1 for sector in sectors)
        found.add(bytes(sector[0] for sector in sectors))
    assert {b"a" * 16, b"b" * 16, b"a" * 8 + b"b" * 8, b"b" * 8 + b"a" * 8} <= found
    assert any(len(set(pages[:8])) == 2 for pages in found), "no page was ever torn"


def test_a_file_may_grow_without_its_data() -> None:
    sizes, holes = set(), 0
    for seed in range(200):
        disk = synced_disk()
        disk.open("/d/f").write(0, [b"x" * 10_000])
        after = disk.power_cut(random.Random(seed)).read_bytes("/d/f")
        assert set(after) <= {0, ord("x")}
        sizes.add(len(after))
        holes += 0 in after
    assert {0, 10_000} <= sizes
    assert holes


def test_what_was_written_behind_a_lost_truncation_is_lost_too() -> None:
    found = set()
    for seed in range(200):
        disk = synced_disk(b"old!")
        file = disk.open("/d/f")
        file.truncate(0)
        file.write(0, [b"new"])
        found.add(disk.power_cut(random.Random(seed)).read_bytes("/d/f"))
    assert found == {b"old!", b"", b"new", b"\0", b"\0\0", b"\0\0\0"}


def test_everything_below_a_directory_can_be_synced_at_once() -> None:
    for seed in range(20):
        disk = synced_disk(b"old")
        disk.make_directories("/d/e")
        disk.open("/d/e/g", create=True).write(0, [b"deep"])
        disk.open("/d/f").write(0, [b"new"])
        disk.sync_below("/d")
        found = disk.power_cut(random.Random(seed))
        assert (found.read_bytes("/d/f"), found.read_bytes("/d/e/g")) == (b"new", b"deep")


def test_names_are_uncertain_until_their_directory_is_synced() -> None:
    outcomes = set()
    for seed in range(100):
        disk = synced_disk(b"f")
        disk.open("/d/g", create=True)
        disk.remove("/d/f")
        outcomes.add(tuple(disk.power_cut(random.Random(seed)).list("/d")))
    assert outcomes == {(), ("f",), ("g",), ("f", "g")}


def test_a_rename_happens_as_a_whole() -> None:
    for seed in range(100):
        disk = synced_disk(b"f")
        disk.rename("/d/f", "/d/g")
        assert disk.power_cut(random.Random(seed)).list("/d") in (["f"], ["g"])


def test_an_atomic_replacement_leaves_the_old_contents_or_the_new() -> None:
    for calls in range(12):
        for seed in range(20):
            disk = synced_disk(b"old")
            disk.cut_in(calls)
            is_done = False
            try:
                write_atomically(disk, "/d/f", b"new")
                is_done = True
            except PowerCut:
                pass
            found = disk.power_cut(random.Random(seed)).read_bytes("/d/f")
            assert found == b"new" if is_done else found in (b"old", b"new")


def test_a_killed_process_loses_nothing() -> None:
    disk = synced_disk()
    disk.open("/d/f").write(0, [b"unsynced"])
    disk.rename("/d/f", "/d/g")
    assert disk.kill().read_bytes("/d/g") == b"unsynced"
    with pytest.raises(PowerCut):
        disk.exists("/d/g")


def test_a_full_disk_writes_what_fits_and_takes_more_when_there_is_room() -> None:
    disk = synced_disk(b"1234")
    disk.capacity = 6
    file = disk.open("/d/f")
    with pytest.raises(OSError, match="No space left") as caught:
        file.write(4, [b"abc", b"def"])
    assert caught.value.errno == errno.ENOSPC
    assert file.read(0, 100) == b"1234ab"
    with pytest.raises(OSError, match="No space left"):
        disk.open("/d/g", create=True)
    file.write(0, [b"over"])
    disk.capacity = 100
    file.write(4, [b"abcdef"])
    assert file.read(0, 100) == b"overabcdef"


def test_faults_hit_the_call_they_are_meant_for() -> None:
    disk = synced_disk(b"data")
    disk.inject(Fault("read", path="/f", skip=1, times=2))
    file = disk.open("/d/f")
    assert file.read(0, 4) == b"data"
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            file.read(0, 4)
    assert file.read(0, 4) == b"data"


def test_a_failed_write_may_leave_any_part_written() -> None:
    lengths = set()
    for seed in range(40):
        disk = SimulatedDisk(seed)
        disk.inject(Fault("write"))
        file = disk.open("/f", create=True)
        with pytest.raises(OSError, match="Input/output error"):
            file.write(0, [b"abc"])
        assert b"abc".startswith(file.read(0, 3))
        lengths.add(file.size())
    assert lengths == {0, 1, 2, 3}


def test_after_a_failed_sync_a_good_one_does_not_bring_the_data_back() -> None:
    found = set()
    for seed in range(50):
        disk = synced_disk(b"old")
        file = disk.open("/d/f")
        file.write(0, [b"new"])
        disk.inject(Fault("sync"))
        disk.rng = random.Random(seed)
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        assert file.read(0, 3) == b"new"
        file.sync()
        found.add(disk.power_cut().read_bytes("/d/f"))
    assert found == {b"old", b"new"}


def test_a_flipped_bit_is_on_the_platter() -> None:
    disk = synced_disk(b"\x00\x00")
    disk.flip_bit("/d/f", 1, 7)
    assert disk.read_bytes("/d/f") == b"\x00\x80"
    assert disk.power_cut().read_bytes("/d/f") == b"\x00\x80"


def test_a_cold_cache_makes_readers_wait() -> None:
    disk = synced_disk(b"data")
    file = disk.open("/d/f")
    assert file.read_cached(0, 4) == b"data"
    disk.cold_rate = 1.0
    assert file.read_cached(0, 4) is None
    assert file.read(0, 4) == b"data"


def test_the_same_seed_gives_the_same_disk() -> None:
    def run() -> bytes:
        disk = SimulatedDisk(7)
        disk.fault_rate = 0.3
        file = disk.open("/f", create=True)
        disk.sync_directory("/")
        for number in range(100):
            try:
                file.write(number * 100, [bytes([number]) * 100])
                file.sync()
            except OSError:
                pass
        return disk.power_cut().read_bytes("/f")

    assert run() == run()


def test_directories_nest_and_go_with_what_is_in_them() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/a/b")
    disk.open("/a/b/f", create=True)
    assert disk.is_directory("/a/b")
    assert disk.list("/a") == ["b"]
    disk.rename("/a/b", "/a/c")
    assert disk.exists("/a/c/f")
    disk.remove_tree("/a/c")
    assert disk.list("/a") == []
    disk.remove("/a/none")
    with pytest.raises(FileNotFoundError):
        disk.list("/a/c")
    with pytest.raises(FileNotFoundError):
        disk.open("/a/f")


def test_time_stands_still_until_it_is_moved() -> None:
    clock = SimulatedClock(1_000)
    clock.advance(500)
    assert (clock.time_ms(), clock.monotonic()) == (1_500, 0.5)
    clock.set_time(10)
    assert (clock.time_ms(), clock.monotonic()) == (10, 0.5)
    disk = SimulatedDisk(clock=clock)
    disk.open("/f", create=True)
    assert disk.modified_ms("/f") == 10

"""Tests of the cache of leader epochs and their start offsets."""

from __future__ import annotations

import pytest
from tests.unit.storage.logs import DIRECTORY, new_disk

from ottla.storage.checkpoint import MalformedCheckpoint
from ottla.storage.epoch_cache import FILE_NAME, NO_EPOCH, NO_OFFSET, LeaderEpochCache
from ottla.testing.simulation.disk import Fault, SimulatedDisk

PATH = f"{DIRECTORY}/{FILE_NAME}"


def cache_of(disk: SimulatedDisk, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(disk, DIRECTORY)
    for epoch, offset in entries:
        cache.assign(epoch, offset)
    return cache


def test_the_file_has_kafkas_bytes() -> None:
    disk = new_disk()
    cache_of(disk, (0, 0), (3, 120)).flush()
    assert disk.read_bytes(PATH) == b"0\n2\n0 0\n3 120\n"


def test_the_file_is_read_back() -> None:
    disk = new_disk()
    cache_of(disk, (0, 0), (3, 120)).flush()
    cache = LeaderEpochCache(disk, DIRECTORY)
    assert cache.load()
    assert cache.entries == [(0, 0), (3, 120)]
    assert cache.latest_epoch == 3
    assert not cache.dirty


def test_a_missing_file_is_distinguished_from_an_empty_one() -> None:
    disk = new_disk()
    assert not LeaderEpochCache(disk, DIRECTORY).load()
    cache = cache_of(disk, (1, 0))
    cache.clear()
    cache.flush()
    assert LeaderEpochCache(disk, DIRECTORY).load()


@pytest.mark.parametrize("contents", [b"", b"0\n1\n", b"0\n1\n1 2 3\n", b"0\n1\nx 2\n"])
def test_a_malformed_file_is_refused(contents: bytes) -> None:
    disk = new_disk()
    disk.open(PATH, create=True).write(0, [contents])
    with pytest.raises((MalformedCheckpoint, ValueError)):
        LeaderEpochCache(disk, DIRECTORY).load()


def test_only_a_newer_epoch_is_assigned() -> None:
    cache = cache_of(new_disk(), (2, 10), (2, 15), (1, 20), (-1, 30), (4, 40))
    assert cache.entries == [(2, 10), (4, 40)]


def test_an_epoch_that_begins_earlier_replaces_those_behind_it() -> None:
    assert cache_of(new_disk(), (1, 0), (2, 50), (3, 60), (4, 50)).entries == [(1, 0), (4, 50)]


def test_a_flush_writes_only_what_has_changed() -> None:
    disk = new_disk()
    cache = cache_of(disk, (1, 0))
    cache.flush()
    writes = disk.calls["write"]
    cache.flush()
    cache.truncate_from_end(100)
    cache.truncate_from_start(0)
    cache.flush()
    assert disk.calls["write"] == writes


def test_a_flush_that_fails_is_done_again() -> None:
    disk = new_disk()
    cache = cache_of(disk, (1, 0))
    disk.inject(Fault("sync"))
    with pytest.raises(OSError, match="Input/output"):
        cache.flush()
    assert cache.dirty
    cache.flush()
    assert disk.read_bytes(PATH) == b"0\n1\n1 0\n"


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (NO_EPOCH, (NO_EPOCH, NO_OFFSET)),
        (0, (0, 10)),
        (2, (2, 50)),
        (3, (2, 50)),
        (4, (4, 80)),
        (5, (4, 80)),
        (7, (7, 100)),
        (8, (NO_EPOCH, NO_OFFSET)),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_begins(epoch: int, answer: tuple[int, int]) -> None:
    cache = cache_of(new_disk(), (2, 10), (4, 50), (7, 80))
    assert cache.end_offset_for(epoch, log_end_offset=100) == answer


def test_an_empty_cache_knows_no_ends() -> None:
    assert cache_of(new_disk()).end_offset_for(0, 100) == (NO_EPOCH, NO_OFFSET)


@pytest.mark.parametrize(
    ("offset", "epoch"), [(9, NO_EPOCH), (10, 2), (49, 2), (50, 4), (79, 4), (80, 7), (999, 7)]
)
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert cache_of(new_disk(), (2, 10), (4, 50), (7, 80)).epoch_for(offset) == epoch


@pytest.mark.parametrize(
    ("end", "entries"),
    [(100, 3), (81, 3), (80, 2), (51, 2), (50, 1), (10, 0), (0, 0)],
)
def test_truncation_forgets_epochs_that_begin_at_the_end_or_later(end: int, entries: int) -> None:
    cache = cache_of(new_disk(), (2, 10), (4, 50), (7, 80))
    cache.truncate_from_end(end)
    assert cache.entries == [(2, 10), (4, 50), (7, 80)][:entries]
    assert cache.latest_epoch == [NO_EPOCH, 2, 4, 7][entries]


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, [(2, 10), (4, 50), (7, 80)]),
        (10, [(2, 10), (4, 50), (7, 80)]),
        (11, [(2, 11), (4, 50), (7, 80)]),
        (50, [(4, 50), (7, 80)]),
        (79, [(4, 79), (7, 80)]),
        (90, [(7, 90)]),
    ],
)
def test_a_new_start_moves_the_beginning_of_the_epoch_it_lies_in(
    start: int, entries: list[tuple[int, int]]
) -> None:
    cache = cache_of(new_disk(), (2, 10), (4, 50), (7, 80))
    cache.truncate_from_start(start)
    assert cache.entries == entries

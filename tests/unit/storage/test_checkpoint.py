"""Tests of Kafka's text checkpoint files."""

from __future__ import annotations

import random

import pytest

from ottla.base.types import TopicPartition
from ottla.storage.checkpoint import MalformedCheckpoint, decode, read_offsets, write_offsets
from ottla.testing.simulation.disk import PowerCut, SimulatedDisk

PATH = "/data/recovery-point-offset-checkpoint"
OFFSETS = {TopicPartition("orders", 0): 1_500, TopicPartition("a.b_c-d", 12): 0}


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def disk_with(contents: bytes) -> SimulatedDisk:
    disk = new_disk()
    disk.open(PATH, create=True).write(0, [contents])
    return disk


def test_a_checkpoint_has_kafkas_bytes() -> None:
    disk = new_disk()
    write_offsets(disk, PATH, OFFSETS)
    assert disk.read_bytes(PATH) == b"0\n2\norders 0 1500\na.b_c-d 12 0\n"
    assert disk.list("/data") == ["recovery-point-offset-checkpoint"]


def test_an_empty_checkpoint_has_kafkas_bytes() -> None:
    disk = new_disk()
    write_offsets(disk, PATH, {})
    assert disk.read_bytes(PATH) == b"0\n0\n"
    assert read_offsets(disk, PATH) == {}


def test_a_checkpoint_is_read_back() -> None:
    disk = new_disk()
    write_offsets(disk, PATH, OFFSETS)
    assert read_offsets(disk, PATH) == OFFSETS


def test_no_file_is_no_offsets() -> None:
    assert read_offsets(new_disk(), PATH) == {}


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"0",
        b"0\n",
        b"0\nx\n",
        b"1\n0\n",
        b"0\n2\norders 0 1500\n",
        b"0\n1\norders 0 1500\norders 1 1500\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders zero 1500\n",
        b"0\n1\norders 0 1500 7\n",
        bytes(12),
        b"\xff\xfe0\n0\n",
    ],
)
def test_a_malformed_checkpoint_is_refused_by_its_name(contents: bytes) -> None:
    with pytest.raises(MalformedCheckpoint, match="recovery-point-offset-checkpoint"):
        read_offsets(disk_with(contents), PATH)


def test_columns_may_be_wide_apart() -> None:
    assert decode(b"0\n1\n5 \t 17\n", PATH) == [["5", "17"]]


def test_a_power_cut_leaves_the_old_checkpoint_or_the_new() -> None:
    newer = {TopicPartition("orders", 0): 1_600}
    for seed in range(60):
        disk = new_disk()
        write_offsets(disk, PATH, OFFSETS)
        disk.cut_in(seed % 10)
        try:
            write_offsets(disk, PATH, newer)
        except PowerCut:
            assert read_offsets(disk.power_cut(random.Random(seed)), PATH) in (OFFSETS, newer)
        else:
            assert read_offsets(disk.power_cut(random.Random(seed)), PATH) == newer

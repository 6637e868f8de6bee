"""Power cuts, flipped bits, full disks and failing syncs, by seed."""

from __future__ import annotations

import errno

import pytest
from tests.sim.power_cut import CHECKPOINT, STARTS, Story
from tests.unit.storage.logs import DIRECTORY, append, open_at, read, stored

from ottla.base.errors import ErrorCode, KafkaError
from ottla.storage.flush import SyncFailed
from ottla.testing.simulation.disk import Fault
from ottla.wire.records.batch import read_header

LIVES = 5


def power_cuts(seed: int) -> None:
    story = Story(seed)
    for _ in range(LIVES):
        story.live(story.rng.choice([5, 30, 100, 300]))
        if story.rng.random() < 0.2:
            story.shut_down()
            story.disk = story.disk.power_cut()
            story.reopen()
            assert not story.said, story


@pytest.mark.parametrize("block", range(4))  # `make chaos` runs 4,000 more
def test_what_was_flushed_survives_power_cuts_at_any_call(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        power_cuts(seed)


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("block", range(40))
def test_what_was_flushed_survives_many_power_cuts(block: int) -> None:
    for seed in range(10_000 + block * 100, 10_100 + block * 100):
        power_cuts(seed)


# ------------------------------------------------------------------------------------ flipped bits


def flipped_bit(seed: int) -> None:
    """Flush and checkpoint everything, then flip one bit of a log file."""
    story = Story(seed)
    for _ in range(story.rng.randint(5, 60)):
        story.act()
    story.append()
    story.flush()
    story.checkpoint()
    batches = {read_header(batch).base_offset: batch for batch in story.history}
    disk, start_offset = story.disk, story.log.log_start_offset
    segment = story.rng.choice([segment for segment in story.log.segments if segment.size])
    position, bit = story.rng.randrange(segment.size), story.rng.randrange(8)
    damaged = next(h for h in segment.iter_headers(0, wait=True) if h.end > position)
    disk.flip_bit(segment.file.path, position, bit)
    logs = [name for name in disk.list(DIRECTORY) if name.endswith(".log")]
    sizes = {name: disk.size(f"{DIRECTORY}/{name}") for name in logs}
    end_offset = story.log.log_end_offset
    is_clean = story.rng.random() < 0.3
    if is_clean:
        story.log.close(0)
    disk = disk.power_cut()
    log = open_at(
        disk,
        clean=is_clean,
        recovery_point=story.safe_offset,
        start=start_offset,
        config=story.config,
    )
    where = f"seed {seed}: bit {bit} of byte {position} of {segment.file.path}"
    assert log.log_end_offset == end_offset, where
    for name, size in sizes.items():
        assert disk.size(f"{DIRECTORY}/{name}") >= size, f"{where}: {name} was cut"
    refused = 0
    for base_offset, batch in batches.items():
        if read_header(batch).last_offset < start_offset:
            continue
        try:
            found = read(log, max(base_offset, start_offset), 1)
        except KafkaError as error:
            refused += error.code == ErrorCode.CORRUPT_MESSAGE
        else:
            assert found == batch, f"{where}: wrong at {base_offset}"
    if damaged.last_offset >= start_offset:
        assert refused, f"{where}: not noticed"
    assert append(log, b"next", epoch=story.epoch).base_offset == end_offset
    assert read(log, end_offset)


@pytest.mark.parametrize("block", range(3))
def test_a_flipped_bit_that_was_safe_is_neither_served_nor_cut_away(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        flipped_bit(seed)


def test_an_epoch_that_a_flipped_bit_raised_before_the_log_starts_fences_no_producer() -> None:
    flipped_bit(11_684)


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("block", range(20))
def test_many_flipped_bits_that_were_safe_are_neither_served_nor_cut_away(block: int) -> None:
    for seed in range(10_000 + block * 200, 10_200 + block * 200):
        flipped_bit(seed)


# -------------------------------------------------------------------------------------- full disks


def full_disk(seed: int) -> None:
    story = Story(seed)
    rng, refused = story.rng, 0
    for _ in range(4):
        for _ in range(rng.randint(1, 30)):
            story.append()
        logs = sum(story.disk.size(f"{DIRECTORY}/{n}") for n in story.disk.list(DIRECTORY))
        story.disk.capacity = logs + rng.choice([0, 1, 60, 300])
        before = stored(story.log)
        for _ in range(rng.randint(5, 20)):
            refused += not survives_full_disk(story)
            assert stored(story.log)[: len(before)] == before, story
        if rng.random() < 0.3:
            story.disk = story.disk.kill()
            reopened_when_full(story)
        story.disk.capacity = None
        assert stored(story.log) == b"".join(story.history), story
        story.append()
        story.flush()
        story.checkpoint()
        story.disk = story.disk.power_cut() if rng.random() < 0.5 else story.disk.kill()
        story.reopen()
        assert story.log.log_end_offset == story.safe_offset, story
    assert refused, story


def survives_full_disk(story: Story) -> bool:
    """Append, roll or flush, and return False if the disk was full. No other error may occur."""
    sequences, open_txns = dict(story.sequences), set(story.open_txns)
    end_offset, kept = story.log.log_end_offset, list(story.history)
    try:
        story.rng.choice([story.append, story.append, story.roll, story.flush])()
    except KafkaError as error:
        if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        story.sequences, story.open_txns, story.history = sequences, open_txns, kept
    except OSError as error:
        if error.errno != errno.ENOSPC or isinstance(error, SyncFailed):
            raise
    else:
        return True
    assert story.log.log_end_offset == end_offset, story
    return False


def reopened_when_full(story: Story) -> None:
    """Restart the broker while the disk is full: it must still serve reads."""
    story.log = open_at(story.disk, recovery_point=story.safe_offset, config=story.config)
    assert stored(story.log) == b"".join(story.history), story
    story.take_over()


@pytest.mark.parametrize("block", range(2))
def test_a_full_disk_refuses_writes_and_nothing_else(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        full_disk(seed)


# ------------------------------------------------------------------------------------ failed syncs


def test_a_sync_that_fails_makes_nothing_safe_and_unmakes_nothing() -> None:
    for seed in range(60):
        story = Story(seed)
        for _ in range(story.rng.randint(3, 40)):
            story.act()
        story.flush()
        story.checkpoint()
        for _ in range(story.rng.randint(1, 10)):
            story.append()
        safe_offset = story.safe_offset
        story.disk.inject(Fault("sync", path=story.rng.choice([".log", ".snapshot", "index", ""])))
        try:
            story.flush()
        except OSError:
            assert story.log.recovery_point == safe_offset
        story.disk = story.disk.power_cut()
        story.reopen()
        assert story.log.log_end_offset >= story.safe_offset >= safe_offset


def test_checkpoints_that_are_lost_cost_only_time() -> None:
    for seed in range(30):
        story = Story(seed)
        for _ in range(60):
            story.append()
        story.flush()
        story.disk.remove(CHECKPOINT)
        story.disk.remove(STARTS)
        story.disk = story.disk.power_cut()
        story.reopen()
        assert story.log.log_end_offset == story.safe_offset

"""Tests of a broker that dies during a compaction or its swap, before each change to the disk."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.compacted_logs import Rounds, compacted
from tests.unit.storage.small_logs import (
    START_MS,
    data_records,
    end_transaction,
    latest_values,
    open_test_log,
    put,
)

from ottla.base.ports import File, ReadableBuffer
from ottla.storage.file import OsFileSystem

CONFIG = compacted(segment_bytes=2_000, index_interval_bytes=200)
END_OFFSET = 34


class Died(BaseException):
    """Simulated death of the broker; a BaseException, so that no error handling catches it."""


class MortalFile:
    def __init__(self, file: File, fs: MortalFileSystem) -> None:
        self.__dict__.update(_file=file, _fs=fs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._file, name, value)

    def write(self, position: int, buffers: Sequence[ReadableBuffer]) -> None:
        self._fs.live()
        self._file.write(position, buffers)

    def truncate(self, size: int) -> None:
        self._fs.live()
        self._file.truncate(size)

    def sync(self) -> None:
        self._fs.live()
        self._file.sync()


class MortalFileSystem(OsFileSystem):
    """File system that permits `lives` changes and raises `error` at the next one."""

    def __init__(self, lives: int | None = None, error: BaseException | None = None) -> None:
        super().__init__()
        self.lives = lives
        self.error = error or Died()

    def live(self) -> None:
        if self.lives is not None:
            if self.lives == 0:
                raise self.error
            self.lives -= 1

    def open(self, path: str, *, create: bool = False, private: bool = False) -> Any:
        if create:
            self.live()
        return MortalFile(super().open(path, create=create, private=private), self)

    def rename(self, source: str, target: str) -> None:
        self.live()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.live()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.live()
        super().sync_directory(path)


def prepare(directory: Path) -> dict[bytes | None, bytes]:
    """Write a log with a tombstone and a transaction whose first two segments merge.

    Return its table."""
    log = open_test_log(str(directory), CONFIG)
    for number in range(30):
        if number in (5, 10):
            log.roll(START_MS)
        put(log, [(b"k%d" % (number % 7), b"%d" % number * 30)], timestamp=START_MS + number)
    put(log, [(b"k0", None)], timestamp=START_MS + 30)
    put(log, [(b"k1", b"aborted")], producer=(5, 0, 0), transactional=True)
    end_transaction(log, 5, 0, commit=False)
    log.roll(START_MS)
    put(log, [(b"k2", b"active")], timestamp=START_MS + 31)
    table = latest_values(r for r in data_records(log) if r.value != b"aborted")
    log.close(START_MS)
    return table


def clean(directory: Path, lives: int | None, error: BaseException | None = None) -> int:
    """Open and compact the log with `lives` changes to the disk; return the log end offset."""
    fs = MortalFileSystem()
    log = open_test_log(str(directory), CONFIG, fs=fs)
    rounds = Rounds(log)
    job = rounds.job(roll=False)
    assert job is not None
    fs.lives, fs.error = lives, error or fs.error
    rounds.run(job)
    return log.log_end_offset


def read_table(directory: Path) -> tuple[dict[bytes | None, bytes], int]:
    log = open_test_log(str(directory), CONFIG, is_clean=False, recovery_point=END_OFFSET)
    aborted = {
        offset
        for txn in log.aborted_transactions(0, log.log_end_offset)
        for offset in range(txn.first_offset, txn.last_offset)
    }
    records = [record for record in data_records(log) if record.offset not in aborted]
    assert [r.value for r in records if r.value == b"aborted"] == []
    for segment in log.segments:
        assert segment.indexes_are_sane()
    return latest_values(records), log.log_end_offset


def changes_of_a_compaction(directory: Path) -> int:
    fs = MortalFileSystem(lives=1_000_000)
    log = open_test_log(str(directory), CONFIG, fs=fs)
    rounds = Rounds(log)
    job = rounds.job(roll=False)
    assert job is not None
    assert fs.lives is not None
    before = fs.lives
    result = rounds.run(job)
    assert result.cleaned[0].replaced == [0, 5]
    return before - fs.lives


def test_a_crash_before_any_change_loses_nothing(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    table = prepare(origin)
    shutil.copytree(origin, tmp_path / "counted")
    changes = changes_of_a_compaction(tmp_path / "counted")
    assert changes > 30
    for lives in range(changes):
        directory = tmp_path / f"crash-{lives}"
        shutil.copytree(origin, directory)
        with pytest.raises(Died):
            clean(directory, lives)
        after_crash, end = read_table(directory)
        assert (after_crash, end) == (table, END_OFFSET), f"after {lives} changes"
        names = {path.suffix for path in directory.iterdir()}
        assert not names & {".cleaned", ".swap", ".deleted"}
        clean(directory, None)
        assert read_table(directory) == (table, END_OFFSET), f"cleaned after {lives} changes"
        shutil.rmtree(directory)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    table = prepare(origin)
    logs = sorted(path.name for path in origin.glob("*.log"))
    full = OSError(errno.ENOSPC, "No space left on device")
    for lives in (0, 3):
        directory = tmp_path / f"full-{lives}"
        shutil.copytree(origin, directory)
        fs = MortalFileSystem()
        rounds = Rounds(open_test_log(str(directory), CONFIG, fs=fs))
        job = rounds.job(roll=False)
        assert job is not None
        fs.lives, fs.error = lives, full
        with pytest.raises(OSError, match="No space left"):
            rounds.run(job)
        fs.lives = None
        rounds.log.close(START_MS)
        assert sorted(path.name for path in directory.glob("*.log")) == logs
        assert read_table(directory) == (table, END_OFFSET)

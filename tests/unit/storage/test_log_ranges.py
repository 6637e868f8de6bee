"""Tests of large reads returned unread, as a range of the log's file.

They use real files, because only those have descriptors to send from."""

from __future__ import annotations

import errno
import os
import random
import socket
from pathlib import Path

import pytest
from tests.unit.storage.logs import FOREVER, NOW, append, headers_of, open_at, stored

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import FileRange, Piece, ReadableBuffer
from ottla.storage.file import OsFileSystem
from ottla.storage.log import Log
from ottla.storage.log_reader import MIN_IN_FILE_BYTES
from ottla.storage.segment import WouldBlock

CONFIG = TopicConfig(segment_bytes=3_000_000, index_interval_bytes=4_096)
ROOM = 1_000_000


def new_log(folder: Path, batches: int, size: int = 20_000) -> Log:
    """Create a log with batches of one record each, of different sizes."""
    log = reopened(folder)
    rng = random.Random(7)
    for _ in range(batches):
        append(log, rng.randbytes(rng.randint(1, size)))
    return log


def reopened(folder: Path) -> Log:
    fs = OsFileSystem()
    return open_at(fs, config=CONFIG, directory=str(folder), clean=True, recovery_point=FOREVER)


def fetch(
    log: Log, offset: int, room: int = ROOM, max_offset: int = FOREVER, *, wait: bool = False
) -> tuple[Piece, int]:
    return log.read(offset, room, max_offset, at_least_one=True, wait=wait, in_file=True)


def contents(records: Piece) -> bytes:
    return bytes(records) if isinstance(records, ReadableBuffer) else records.read()


def range_at(log: Log, offset: int) -> FileRange:
    records, _ = fetch(log, offset)
    assert not isinstance(records, ReadableBuffer)
    return records


def was_read(log: Log, offset: int) -> bool:
    return isinstance(fetch(log, offset)[0], ReadableBuffer)


def test_what_was_appended_is_given_unread_and_read_on_it_is_the_whole_log(tmp_path: Path) -> None:
    log = new_log(tmp_path, 1_000)
    assert len(log.segments) > 2
    found, offset, unread = b"", 0, 0
    while offset < log.log_end_offset:
        records, next_offset = fetch(log, offset)
        unread += not isinstance(records, ReadableBuffer)
        data = contents(records)
        headers = headers_of(data)
        assert (headers[0].base_offset, headers[-1].next_offset) == (offset, next_offset)
        assert len(data) <= ROOM
        found, offset = found + data, next_offset
    assert found == stored(log)
    assert unread >= 9


def test_a_small_read_is_read(tmp_path: Path) -> None:
    log = new_log(tmp_path, 100)
    records, _ = fetch(log, 0, MIN_IN_FILE_BYTES - 1)
    assert isinstance(records, ReadableBuffer)
    assert len(records) > MIN_IN_FILE_BYTES // 2


@pytest.mark.parametrize("max_offset", [40, 57, 80])
def test_nothing_from_the_maximum_offset_on_is_in_a_range(tmp_path: Path, max_offset: int) -> None:
    log = new_log(tmp_path, 200)
    records, next_offset = fetch(log, 0, 10 * ROOM, max_offset)
    assert not isinstance(records, ReadableBuffer)
    assert headers_of(contents(records))[-1].next_offset == next_offset <= max_offset


def test_a_log_that_was_opened_is_verified_once_and_then_given_unread(tmp_path: Path) -> None:
    new_log(tmp_path, 100).close(NOW)
    log = reopened(tmp_path)
    fetch(log, 0, wait=True)  # loads the index, which only a caller that may wait can do
    assert was_read(log, 0)
    assert not was_read(log, 0)


def test_an_index_is_loaded_where_it_may_be_waited_for(tmp_path: Path) -> None:
    new_log(tmp_path, 1_000).close(NOW)
    log = reopened(tmp_path)
    second = log.segments[1]
    start = second.base_offset
    fetch(log, start, wait=True)
    assert was_read(log, start)
    second.unload()
    assert not second.offset_index.is_loaded
    # A consumer that has read the previous segment leaves this cursor.
    log.reader._cursors[start] = (second, 0)
    with pytest.raises(WouldBlock):
        fetch(log, start)
    unread, _ = fetch(log, start, wait=True)
    assert not isinstance(unread, ReadableBuffer)
    assert second.offset_index.is_loaded


def test_no_damage_of_a_file_that_was_opened_is_given_unread(tmp_path: Path) -> None:
    new_log(tmp_path, 100).close(NOW)
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[5_000] ^= 1
    path.write_bytes(data)
    log = reopened(tmp_path)
    damaged = next(each.base_offset for each in headers_of(data) if each.end > 5_000)
    for wait in (True, False, False):
        for offset in range(damaged):
            records, next_offset = fetch(log, offset, wait=wait)
            assert isinstance(records, ReadableBuffer)
            assert next_offset == damaged
        with pytest.raises(KafkaError) as caught:
            fetch(log, damaged, wait=wait)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_bytes_that_came_from_the_disk_are_verified_again(tmp_path: Path) -> None:
    log = new_log(tmp_path, 100)
    assert not was_read(log, 0)
    log.read(50, 1, FOREVER, at_least_one=True, wait=True)
    assert was_read(log, 0)
    assert not was_read(log, 0)


def test_bytes_that_are_not_in_memory_are_not_given_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(tmp_path, 100)
    preadv = os.preadv

    def refuse_far(fd: int, buffers: list[bytearray], at: int, flags: int = 0) -> int:
        if at > 200_000:
            raise BlockingIOError(errno.EAGAIN, "not now")
        return preadv(fd, buffers, at, flags)

    monkeypatch.setattr(os, "preadv", refuse_far)
    with pytest.raises(WouldBlock):
        fetch(log, 0)


def test_an_index_entry_that_points_elsewhere_ends_no_range(tmp_path: Path) -> None:
    log = new_log(tmp_path, 100)
    index = log.active.offset_index
    _, positions = index.load()
    whole = stored(log)
    for slot in range(len(positions)):
        positions[slot] -= 3
    records, next_offset = fetch(log, 0, 500_000)
    assert headers_of(contents(records))[-1].next_offset == next_offset
    assert whole.startswith(contents(records))


def test_a_range_outlives_its_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, 1_000)
    unread = range_at(log, 0)
    whole = stored(log)
    log.flush(NOW)
    for segment in log.detach_head(1, NOW):
        segment.remove()
    assert not (tmp_path / "00000000000000000000.log").exists()
    left, right = socket.socketpair()
    with left, right:
        sent = unread.send(left.fileno(), 0, 10_000)
        assert right.recv(sent, socket.MSG_WAITALL) == whole[:sent]


def test_a_range_of_a_truncated_log_is_no_longer_sent(tmp_path: Path) -> None:
    log = new_log(tmp_path, 200)
    unread = range_at(log, 100)
    log.truncate_to(120, NOW)
    for _ in range(80):
        append(log, b"other" * 4_000)
    left, right = socket.socketpair()
    with left, right:
        for use in (lambda: unread.send(left.fileno(), 0, 100), unread.read):
            with pytest.raises(OSError, match="truncated"):
                use()
    assert contents(fetch(log, 0)[0]) == stored(log)[: len(fetch(log, 0)[0])]

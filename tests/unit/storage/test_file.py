"""Tests of real files behind a bounded number of descriptors."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.ports import write_atomically
from ottla.storage.file import MAX_BUFFERS_PER_WRITE, OsFile, OsFileSystem


def new_file(fs: OsFileSystem, folder: Path, name: str, contents: bytes = b"") -> OsFile:
    file = fs.open(f"{folder}/{name}", create=True)
    file.write(0, [contents])
    return file


def open_descriptors(folder: Path) -> list[str]:
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)):
            names.append(os.path.basename(target))
    return sorted(names)


def test_buffers_are_written_one_after_another(tmp_path: Path) -> None:
    file = new_file(OsFileSystem(), tmp_path, "f", b"0123456789")
    file.write(2, [b"ab", bytearray(b"cd"), memoryview(b"ef")])
    assert file.read(0, 100) == b"01abcdef89"
    assert file.size() == 10


def test_a_write_of_more_buffers_than_the_kernel_takes_is_whole(tmp_path: Path) -> None:
    file = new_file(OsFileSystem(), tmp_path, "f")
    pieces = [bytes([n % 256]) * (n % 3) for n in range(MAX_BUFFERS_PER_WRITE * 3)]
    file.write(0, pieces)
    assert file.read(0, 10_000) == b"".join(pieces)


def test_a_write_that_the_kernel_cuts_short_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_file(OsFileSystem(), tmp_path, "f")
    pwritev, pwrite = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: pwritev(fd, [buffers[0][:3]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:2], at))
    file.write(1, [b"abcdef", b"ghi"])
    assert file.read(0, 100) == b"\0abcdefghi"


def test_a_read_gives_fewer_bytes_only_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_file(OsFileSystem(), tmp_path, "f", b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 3), at))
    assert file.read(2, 6) == b"234567"
    assert file.read(7, 6) == b"789"
    assert file.read(10, 6) == b""


def test_bytes_in_memory_are_read_without_waiting(tmp_path: Path) -> None:
    file = new_file(OsFileSystem(), tmp_path, "f", b"0123456789")
    assert file.read_cached(2, 3) == b"234"


def test_bytes_that_are_not_in_memory_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "not now")

    file = new_file(OsFileSystem(), tmp_path, "f", b"0123456789")
    monkeypatch.setattr(os, "preadv", refuse)
    assert file.read_cached(2, 3) is None


def test_a_file_system_without_nowait_reads_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, "no such flag")

    file = new_file(OsFileSystem(), tmp_path, "f", b"0123456789")
    monkeypatch.setattr(os, "preadv", refuse)
    assert file.read_cached(2, 3) == b"234"


def test_no_more_descriptors_are_open_than_allowed(tmp_path: Path) -> None:
    fs = OsFileSystem(max_open=3)
    files = [new_file(fs, tmp_path, f"f{n}", b"%d" % n) for n in range(10)]
    for _ in range(2):
        assert [file.read(0, 9) for file in files] == [b"%d" % n for n in range(10)]
        assert len(open_descriptors(tmp_path)) == 3


def test_a_range_of_a_file_keeps_it_open(tmp_path: Path) -> None:
    fs = OsFileSystem(max_open=2)
    files = [new_file(fs, tmp_path, f"f{n}", b"%d" % n) for n in range(5)]
    unread = files[0].range_cached(0, 1)
    assert unread is not None
    for file in files[1:]:
        file.read(0, 9)
    fs.remove(files[0].path)
    files[0].close()
    assert unread.read() == b"0"
    del unread
    assert "f0 (deleted)" not in open_descriptors(tmp_path)


def test_bytes_that_are_not_in_memory_make_no_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "not now")

    file = new_file(OsFileSystem(), tmp_path, "f", b"0123456789")
    monkeypatch.setattr(os, "preadv", refuse)
    assert file.range_cached(2, 3) is None
    assert not file._users


Use = Callable[[OsFile], object]


@pytest.mark.parametrize(
    ("call", "use"),
    [
        pytest.param("pwritev", lambda f: f.write(0, [b"new"]), id="write"),
        pytest.param("pread", lambda f: f.read(0, 3), id="read"),
        pytest.param("preadv", lambda f: f.read_cached(0, 3), id="read_cached"),
        pytest.param("ftruncate", lambda f: f.truncate(1), id="truncate"),
        pytest.param("fdatasync", lambda f: f.sync(), id="sync"),
        pytest.param("fstat", lambda f: f.size(), id="size"),
    ],
)
def test_a_descriptor_in_use_is_not_closed_for_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, use: Use
) -> None:
    """The kernel would reuse a closed descriptor, and the call would reach another file."""
    fs = OsFileSystem(max_open=1)
    victim, other = new_file(fs, tmp_path, "victim", b"old"), new_file(fs, tmp_path, "other", b"xx")
    others = [new_file(fs, tmp_path, f"f{n}", b"yy") for n in range(3)]
    system_call = getattr(os, call)

    def interrupted(fd: int, *arguments: Any) -> Any:
        monkeypatch.setattr(os, call, system_call)
        assert [file.read(0, 2) for file in [other, *others]] == [b"xx", b"yy", b"yy", b"yy"]
        assert os.readlink(f"/proc/self/fd/{fd}").endswith("/victim")
        return system_call(fd, *arguments)

    monkeypatch.setattr(os, call, interrupted)
    use(victim)
    assert other.read(0, 9) == b"xx"
    assert victim.read(0, 9) in (b"old", b"new", b"o")


def test_a_file_closed_under_a_reader_is_closed_when_the_reader_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_file(OsFileSystem(), tmp_path, "f", b"data")
    pread = os.pread

    def interrupted(fd: int, length: int, position: int) -> bytes:
        file.close()
        assert open_descriptors(tmp_path) == ["f"]
        return pread(fd, length, position)

    monkeypatch.setattr(os, "pread", interrupted)
    assert file.read(0, 4) == b"data"
    assert open_descriptors(tmp_path) == []


def test_a_closed_file_opens_again_by_its_name(tmp_path: Path) -> None:
    file = new_file(OsFileSystem(), tmp_path, "f", b"data")
    file.close()
    file.close()
    assert open_descriptors(tmp_path) == []
    assert file.read(0, 4) == b"data"


def test_threads_that_share_few_descriptors_read_and_write_their_own_files(tmp_path: Path) -> None:
    fs = OsFileSystem(max_open=2)
    failures: list[str] = []

    def work(number: int) -> None:
        mine = bytes([number]) * 64
        file = new_file(fs, tmp_path, f"f{number}", mine)
        for _ in range(400):
            file.write(0, [mine])
            if file.read(0, 64) != mine or file.read_cached(0, 64) not in (mine, None):
                failures.append(f"file {number} holds another's bytes")
                return
            if number % 2:
                file.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(open_descriptors(tmp_path)) <= 2


def test_names_are_listed_renamed_and_removed(tmp_path: Path) -> None:
    fs, folder = OsFileSystem(), f"{tmp_path}/a/b"
    fs.make_directories(folder)
    fs.make_directories(folder)
    new_file(fs, Path(folder), "two", b"22")
    new_file(fs, Path(folder), "one", b"1")
    assert fs.list(folder) == ["one", "two"]
    assert fs.is_directory(folder)
    assert not fs.is_directory(f"{folder}/one")
    fs.rename(f"{folder}/one", f"{folder}/two")
    assert fs.read_bytes(f"{folder}/two") == b"1"
    assert fs.size(f"{folder}/two") == 1
    assert fs.modified_ms(f"{folder}/two") > 1_600_000_000_000
    fs.sync_directory(folder)
    fs.remove(f"{folder}/two")
    fs.remove(f"{folder}/two")
    assert not fs.exists(f"{folder}/two")
    fs.remove_tree(f"{tmp_path}/a")
    assert not fs.exists(folder)


def test_a_file_that_is_not_there_cannot_be_opened_without_creating_it(tmp_path: Path) -> None:
    fs = OsFileSystem()
    with pytest.raises(FileNotFoundError):
        fs.open(f"{tmp_path}/none")
    assert fs.open(f"{tmp_path}/none", create=True).size() == 0


def test_a_small_file_is_replaced_atomically(tmp_path: Path) -> None:
    fs = OsFileSystem()
    write_atomically(fs, f"{tmp_path}/f", b"a longer first version")
    write_atomically(fs, f"{tmp_path}/f", b"second")
    assert fs.read_bytes(f"{tmp_path}/f") == b"second"
    assert fs.list(str(tmp_path)) == ["f"]


def test_a_write_without_room_raises(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    fs = OsFileSystem()
    file = OsFile(fs, "/dev/full")
    with pytest.raises(OSError, match="No space left"):
        file.write(0, [b"data"])

"""Tests of the embedded store: transactions, watches, crashes, corruption and full disks."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.unit.metadata.memory_files import MemoryFileSystem

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.metadata import Check, Create, Delete, Node, Replace, TxnConflict
from ottla.metadata import journal
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.journal import Journal, encode_line
from ottla.storage.file import OsFile, OsFileSystem

T = TypeVar("T")
DIRECTORY = "/data/ottla-metadata"
LOG = f"{DIRECTORY}/metadata.log"
SNAPSHOT = f"{DIRECTORY}/metadata.snapshot"


async def at_once(work: Callable[[], T]) -> T:
    return work()


def in_thread(work: Callable[[], T]) -> Awaitable[T]:
    return asyncio.get_running_loop().run_in_executor(None, work)


async def open_store(fs: MemoryFileSystem) -> EmbeddedStore:
    return await EmbeddedStore.open(fs, DIRECTORY, at_once)


async def contents(store: EmbeddedStore) -> dict[str, Node]:
    nodes, _ = await store.load("/")
    return nodes


async def reopened(fs: MemoryFileSystem) -> dict[str, Node]:
    return await contents(await open_store(fs))


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_transaction_creates_replaces_and_deletes(fs: MemoryFileSystem) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        assert await store.txn([], [Create("/a", b"1"), Create("/b", b"2")]) == 1
        assert await store.txn([], [Replace("/a", b"3"), Delete("/b")]) == 2
        assert await contents(store) == {"/a": Node(b"3", 1)}
        assert await reopened(fs) == {"/a": Node(b"3", 1)}

    run(scenario())


def test_values_of_any_bytes_come_back_after_a_restart(fs: MemoryFileSystem) -> None:
    value = bytes(range(256)) + "é✓".encode()

    async def scenario() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/é", value)])
        assert await reopened(fs) == {"/é": Node(value, 0)}

    run(scenario())


@pytest.mark.parametrize(
    ("checks", "ops", "path", "found"),
    [
        ([Check("/a", 1)], [Replace("/a", b"")], "/a", 0),
        ([Check("/a", None)], [Delete("/a")], "/a", 0),
        ([Check("/b", 0)], [Delete("/a")], "/b", None),
        ([], [Create("/a", b"")], "/a", 0),
        ([], [Replace("/b", b"")], "/b", None),
        ([], [Delete("/b")], "/b", None),
        ([], [Delete("/a"), Replace("/a", b"")], "/a", None),
    ],
)
def test_a_conflict_reports_what_failed_and_changes_nothing(
    fs: MemoryFileSystem, checks: Any, ops: Any, path: str, found: int | None
) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/a", b"1")])
        with pytest.raises(TxnConflict) as raised:
            await store.txn(checks, [Create("/other", b""), *ops])
        assert (raised.value.path, raised.value.found) == (path, found)
        assert await contents(store) == await reopened(fs) == {"/a": Node(b"1", 0)}

    run(scenario())


def test_transactions_that_wait_together_share_one_sync_and_see_each_other(
    fs: MemoryFileSystem,
) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        before = fs.syncs
        results = await asyncio.gather(
            store.txn([], [Create("/a", b"1")]),
            store.txn([Check("/a", 0)], [Replace("/a", b"2")]),
            store.txn([Check("/a", 0)], [Replace("/a", b"3")]),
            store.txn([], [Create("/b", b"4")]),
            return_exceptions=True,
        )
        assert fs.syncs == before + 1
        assert isinstance(results[2], TxnConflict)
        assert [results[0], results[1], results[3]] == [1, 2, 3]
        assert await reopened(fs) == {"/a": Node(b"2", 1), "/b": Node(b"4", 0)}

    run(scenario())


def test_the_disk_is_written_in_a_thread(fs: MemoryFileSystem) -> None:
    threads = []

    async def scenario() -> None:
        store = await EmbeddedStore.open(fs, DIRECTORY, in_thread)
        append = store._journal.append

        def recorded(line: bytes, revision: int) -> None:
            threads.append(threading.current_thread())
            append(line, revision)

        store._journal.append = recorded  # type: ignore[method-assign]
        await asyncio.gather(*(store.txn([], [Create(f"/{n}", b"")]) for n in range(10)))
        await store.close()

    run(scenario())
    assert threads
    assert threading.main_thread() not in threads


def test_watchers_see_each_commit_in_order_before_txn_returns(
    fs: MemoryFileSystem,
) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        seen: list[Any] = []
        unwatch = store.watch("/a", lambda revision, changes: seen.append((revision, changes)))
        await asyncio.gather(
            store.txn([], [Create("/a/1", b"x"), Create("/b", b"")]),
            store.txn([], [Replace("/b", b"")]),
            store.txn([], [Delete("/a/1")]),
        )
        assert seen == [(1, [("/a/1", Node(b"x", 0))]), (2, []), (3, [("/a/1", None)])]
        unwatch()
        await store.txn([], [Create("/a/2", b"")])
        assert len(seen) == 3

    run(scenario())


def test_a_failing_watcher_does_not_stop_the_others(
    fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        seen: list[int] = []

        def fail(revision: int, changes: Any) -> None:
            raise RuntimeError("no")

        store.watch("/", fail)
        store.watch("/", lambda revision, changes: seen.append(revision))
        assert await store.txn([], [Create("/a", b"")]) == 1
        assert seen == [1]

    run(scenario())
    assert "watcher" in caplog.text


def test_ephemeral_nodes_are_gone_after_a_restart_and_persistent_ones_stay(
    fs: MemoryFileSystem,
) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/live", b"1", ephemeral=True), Create("/kept", b"2")])
        await store.txn([], [Replace("/live", b"3")])
        assert set(await contents(store)) == {"/live", "/kept"}
        assert await reopened(fs) == {"/kept": Node(b"2", 0)}
        await store.txn([], [Delete("/live")])
        await store.txn([], [Create("/live", b"4")])
        assert await reopened(fs) == {"/kept": Node(b"2", 0), "/live": Node(b"4", 0)}

    run(scenario())


def test_nothing_committed_is_lost_in_a_power_cut(fs: MemoryFileSystem) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        for number in range(5):
            await store.txn([], [Create(f"/{number}", b"")])
        fs.power_cut()
        assert set(await reopened(fs)) == {"/0", "/1", "/2", "/3", "/4"}

    run(scenario())


async def fill(fs: MemoryFileSystem, count: int = 3) -> None:
    store = await open_store(fs)
    for number in range(count):
        await store.txn([], [Create(f"/topics/{number}", b'{"name":"t"}')])


def test_every_torn_tail_is_cut_off_and_reported(
    fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    run(fill(fs))
    whole = fs.read_bytes(LOG)
    last = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for end in range(last + 1, len(whole)):
        fs.names[LOG].data = bytearray(whole[:end])
        caplog.clear()
        assert set(run(reopened(fs))) == {"/topics/0", "/topics/1"}
        assert f"{LOG}: truncated {end - last} bytes at position {last}" in caplog.text
        assert fs.read_bytes(LOG) == whole[:last]


def test_a_tail_whose_sectors_were_not_written_is_torn(fs: MemoryFileSystem) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/a", b"")])
        start = fs.size(LOG)
        await store.txn([], [Create("/b", b"x" * 3000)])
        whole = fs.read_bytes(LOG)
        for holes in [(start, 512), (1024, 1536), (1536, 3072)]:
            damaged = bytearray(whole)
            damaged[slice(*holes)] = bytes(holes[1] - holes[0])
            fs.names[LOG].data = damaged
            assert set(await reopened(fs)) == {"/a"}

    run(scenario())


def test_the_store_continues_after_a_torn_tail(fs: MemoryFileSystem) -> None:
    async def scenario() -> None:
        await fill(fs)
        fs.names[LOG].data = fs.names[LOG].data[:-5]
        store = await open_store(fs)
        await store.txn([], [Create("/new", b"")])
        assert set(await reopened(fs)) == {"/topics/0", "/topics/1", "/new"}

    run(scenario())


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_in_the_log_goes_unnoticed(fs: MemoryFileSystem, bit: int) -> None:
    run(fill(fs))
    whole = fs.read_bytes(LOG)
    starts = [0] + [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << bit
        fs.names[LOG].data = damaged
        with pytest.raises(UserError, match=LOG) as raised:
            run(reopened(fs))
        start = max(s for s in starts if s <= position)
        assert f"at byte {start}:" in str(raised.value)


def test_a_flipped_bit_in_the_snapshot_is_named(fs: MemoryFileSystem) -> None:
    async def compacted() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/a", b""), Create("/b", b"")])
        await store._compact()

    run(compacted())
    whole = fs.read_bytes(SNAPSHOT)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        fs.names[SNAPSHOT].data = damaged
        with pytest.raises(UserError, match=SNAPSHOT):
            run(reopened(fs))


def test_a_snapshot_that_lacks_lines_is_refused(fs: MemoryFileSystem) -> None:
    async def compacted() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/a", b""), Create("/b", b"")])
        await store._compact()

    run(compacted())
    data = fs.names[SNAPSHOT].data
    fs.names[SNAPSHOT].data = data[: data.rindex(b"\n", 0, len(data) - 1) + 1]
    with pytest.raises(UserError, match=SNAPSHOT):
        run(reopened(fs))


def test_a_snapshot_that_is_missing_is_refused_rather_than_its_topics_lost(
    fs: MemoryFileSystem,
) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/a", b"")])
        await store._compact()
        await store.txn([], [Create("/b", b"")])
        fs.remove(SNAPSHOT)
        with pytest.raises(UserError, match="missing"):
            await open_store(fs)

    run(scenario())


def test_a_format_from_the_future_is_refused(fs: MemoryFileSystem) -> None:
    line = journal._line({"format": 2, "revision": 1, "txns": [[["create", "/a", ""]]]})
    fs.open(LOG, create=True).write(0, [line])
    with pytest.raises(UserError, match="format 2"):
        run(open_store(fs))


def test_the_log_is_compacted_when_it_has_grown(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "COMPACT_ABOVE_BYTES", 2_000)

    async def scenario() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/a", b""), Create("/live", b"", ephemeral=True)])
        for number in range(100):
            await store.txn([], [Replace("/a", b"%d" % number)])
        assert fs.size(LOG) <= 2_100
        assert fs.exists(SNAPSHOT)
        fs.power_cut()
        store = await open_store(fs)
        nodes, revision = await store.load("/")
        assert (nodes, revision) == ({"/a": Node(b"99", 100)}, 101)
        assert await store.txn([Check("/a", 100)], [Replace("/a", b"")]) == 102

    run(scenario())


def test_a_crash_between_snapshot_and_emptied_log_repeats_nothing(fs: MemoryFileSystem) -> None:
    async def scenario() -> None:
        await fill(fs)
        log = fs.read_bytes(LOG)
        store = await open_store(fs)
        await store._compact()
        fs.names[LOG].data = bytearray(log)
        nodes, revision = await (await open_store(fs)).load("/")
        assert (len(nodes), revision) == (3, 3)

    run(scenario())


def test_a_full_disk_fails_the_transaction_and_loses_nothing(fs: MemoryFileSystem) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        seen: list[int] = []
        store.watch("/", lambda revision, changes: seen.append(revision))
        await store.txn([], [Create("/a", b"1")])
        fs.capacity = fs.size(LOG) + 20
        with pytest.raises(KafkaError) as raised:
            await store.txn([], [Create("/b", b"2"), Replace("/a", b"9")])
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert seen == [1]
        assert await contents(store) == await reopened(fs) == {"/a": Node(b"1", 0)}
        fs.capacity = None
        assert await store.txn([], [Create("/b", b"2")]) == 2
        assert set(await reopened(fs)) == {"/a", "/b"}

    run(scenario())


def test_what_could_not_be_cut_off_is_cut_before_the_next_write(fs: MemoryFileSystem) -> None:
    async def scenario() -> None:
        store = await open_store(fs)
        await store.txn([], [Create("/a", b"1")])
        fs.capacity, fs.refuse_truncate = fs.size(LOG) + 150, True
        with pytest.raises(KafkaError):
            await store.txn([], [Create("/long", b"2" * 200)])
        assert fs.size(LOG) == fs.capacity
        fs.capacity, fs.refuse_truncate = None, False
        await store.txn([], [Create("/b", b"")])
        assert set(await reopened(fs)) == {"/a", "/b"}

    run(scenario())


def test_a_full_disk_during_compaction_is_a_warning(
    fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "COMPACT_ABOVE_BYTES", 1)

    async def scenario() -> None:
        store = await open_store(fs)
        fs.capacity = 100
        await store.txn([], [Create("/a", b"x" * 10)])
        assert await reopened(fs) == {"/a": Node(b"x" * 10, 0)}

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "Could not compact the metadata log" in caplog.text


def test_close_commits_what_waits_and_refuses_what_comes_after(fs: MemoryFileSystem) -> None:
    async def scenario() -> None:
        store = await EmbeddedStore.open(fs, DIRECTORY, in_thread)
        waiting = asyncio.ensure_future(store.txn([], [Create("/a", b"")]))
        await asyncio.sleep(0)
        await store.close()
        assert await waiting == 1
        with pytest.raises(KafkaError):
            await store.txn([], [Create("/b", b"")])
        assert set(await reopened(fs)) == {"/a"}

    run(scenario())


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    """They contain the credentials of users. Files of earlier versions were readable by all."""
    directory = tmp_path / "ottla-metadata"
    previous = os.umask(0)
    try:
        for _ in range(2):
            journal = Journal(OsFileSystem(), str(directory))
            nodes = journal.open()
            revision = journal.revision + 1
            op = Replace("/a", b"x") if nodes else Create("/a", b"x")
            journal.append(encode_line([[op]], revision), revision)
            journal.compact({"/a": Node(b"x", revision - 1)})
            journal.close()
            modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
            assert modes == {"metadata.log": 0o600, "metadata.snapshot": 0o600}
            for path in directory.iterdir():
                path.chmod(0o644)
            (directory / "metadata.snapshot.tmp").write_bytes(b"a crash left this")
        assert directory.stat().st_mode & 0o700 == 0o700
    finally:
        os.umask(previous)


def test_the_snapshot_is_private_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []

    def recorded(self: OsFile, position: int, buffers: Any) -> None:
        modes.append(os.stat(self.path).st_mode & 0o777)
        write(self, position, buffers)

    write = OsFile.write
    monkeypatch.setattr(OsFile, "write", recorded)
    journal = Journal(OsFileSystem(), str(tmp_path))
    journal.open()
    journal.append(encode_line([[Create("/a", b"x")]], 1), 1)
    journal.compact({"/a": Node(b"x", 0)})
    journal.close()
    assert modes == [0o600] * 2


def test_a_file_that_cannot_be_made_private_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError("not the owner")

    (tmp_path / "metadata.log").touch(0o644)
    monkeypatch.setattr(os, "chmod", refuse)
    Journal(OsFileSystem(), str(tmp_path)).open()
    assert f"may be able to read {tmp_path}/metadata.log" in caplog.text

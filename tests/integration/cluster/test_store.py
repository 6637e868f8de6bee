"""Contract tests of the MetadataStore port, run against both implementations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.base.metadata import Check, Create, Delete, MetadataStore, Node, Replace, TxnConflict
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.metadata import tree
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.follower import ImageFollower
from ottla.metadata.image import ClusterImage, ImageDelta
from ottla.metadata.zookeeper.ensemble import EnsembleMember
from ottla.metadata.zookeeper.store import ZooKeeperStore
from ottla.storage.file import OsFileSystem

T = TypeVar("T")
Opened = Callable[[], Awaitable[MetadataStore]]
SHA_512 = ScramMechanism.SHA_512
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)
_roots = count(1)


async def at_once(work: Callable[[], T]) -> T:
    return work()


@pytest.fixture(params=["embedded", "zookeeper"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Return a function that opens a store; each call opens the same one."""
    if request.param == "embedded":
        directory = str(tmp_path / "metadata")
        return lambda: EmbeddedStore.open(OsFileSystem(100), directory, at_once)
    member: EnsembleMember = request.getfixturevalue("zookeeper")
    connect = f"{member.connect}/store-{next(_roots)}"
    return lambda: ZooKeeperStore.open(connect, session_timeout_ms=4000, connect_timeout_ms=20_000)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


async def contents(store: MetadataStore) -> dict[str, Node]:
    nodes, _ = await store.load("/")
    return nodes


async def eventually(look: Callable[[], Awaitable[object]], expected: object) -> None:
    """Wait for a value: commits of another session become visible with a delay."""
    while await look() != expected:  # noqa: ASYNC110 the test times out
        await asyncio.sleep(0.01)


def test_a_transaction_creates_replaces_and_deletes(opened: Opened) -> None:
    async def scenario() -> None:
        store = await opened()
        first = await store.txn([], [Create("/topics/a", b"1"), Create("/topics/b", b"2")])
        second = await store.txn([], [Replace("/topics/a", b"3"), Delete("/topics/b")])
        assert second > first
        await eventually(lambda: contents(store), {"/topics/a": Node(b"3", 1)})
        await store.close()
        again = await opened()
        assert await contents(again) == {"/topics/a": Node(b"3", 1)}
        await again.close()

    run(scenario())


@pytest.mark.parametrize(
    ("checks", "ops", "path"),
    [
        ([Check("/topics/a", 1)], [Replace("/topics/a", b"x")], "/topics/a"),
        ([Check("/topics/a", None)], [Delete("/topics/a")], "/topics/a"),
        ([Check("/topics/b", 0)], [Delete("/topics/a")], "/topics/b"),
        ([], [Create("/topics/a", b"x")], "/topics/a"),
        ([], [Replace("/topics/b", b"x")], "/topics/b"),
        ([], [Delete("/topics/b")], "/topics/b"),
        ([], [Delete("/topics/a"), Replace("/topics/a", b"x")], "/topics/a"),
    ],
)
def test_a_conflict_reports_its_position_and_changes_nothing(
    opened: Opened, checks: Any, ops: Any, path: str
) -> None:
    async def scenario() -> None:
        store = await opened()
        await store.txn([], [Create("/topics/a", b"1")])
        with pytest.raises(TxnConflict) as raised:
            await store.txn(checks, [Create("/topics/other", b"x"), *ops])
        assert raised.value.path == path
        await eventually(lambda: contents(store), {"/topics/a": Node(b"1", 0)})
        await store.close()

    run(scenario())


def test_watchers_see_every_change_in_order_up_to_the_revision_of_the_commit(
    opened: Opened,
) -> None:
    async def scenario() -> None:
        store = await opened()
        seen: list[tuple[str, Node | None]] = []
        revisions: list[int] = []

        def on_change(revision: int, changes: Any) -> None:
            revisions.append(revision)
            seen.extend(changes)

        unwatch = store.watch("/topics", on_change)
        for number in range(5):
            path = f"/topics/{number}"
            await store.txn([], [Create(path, b"x"), Create(f"/live/{number}", b"y")])
        last = await store.txn([], [Delete("/topics/3")])
        while not revisions or revisions[-1] < last:  # noqa: ASYNC110 the test times out
            await asyncio.sleep(0.01)
        assert revisions == sorted(revisions)
        assert dict(seen) == {
            f"/topics/{number}": None if number == 3 else Node(b"x", 0) for number in range(5)
        }
        unwatch()
        before = len(seen)
        await store.txn([], [Create("/topics/late", b"x")])
        assert len(seen) == before
        await store.close()

    run(scenario())


def test_access_is_watched_and_loaded_by_its_own_prefix_only(opened: Opened) -> None:
    async def scenario() -> None:
        store = await opened()
        seen: dict[str, list[tuple[int, str]]] = {"/": [], "/access/": []}

        def on_change(prefix: str, revision: int, changes: Any) -> None:
            seen[prefix] += [(revision, path) for path, _ in changes] or [(revision, "")]

        for prefix in seen:
            store.watch(prefix, partial(on_change, prefix))
        user, topic = "/access/scram/alice", "/topics/a"
        last = await store.txn([], [Create(topic, b"1"), Create(user, b"2")])
        while not all(each and each[-1][0] >= last for each in seen.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert [path for _, path in seen["/"] if path] == [topic]
        assert [path for _, path in seen["/access/"] if path] == [user]
        assert (await store.load("/"))[0] == {topic: Node(b"1", 0)}
        expected = {user: Node(b"2", 0)}
        assert (await store.load("/access/"))[0] == (await store.load(user))[0] == expected
        with pytest.raises(TxnConflict) as raised:
            await store.txn([Check(topic, 0)], [Create(user, b"3")])
        assert raised.value.path == user
        await store.close()
        again = await opened()
        assert (await again.load("/access/"))[0] == expected
        await again.close()

    run(scenario())


def test_users_appear_and_disappear_while_the_broker_reacts_to_other_changes(
    opened: Opened,
) -> None:
    async def scenario() -> None:
        store, image = await opened(), ClusterImage()
        reacting, gate = asyncio.Event(), asyncio.Event()

        async def react(delta: ImageDelta) -> None:
            reacting.set()
            await gate.wait()

        follower = ImageFollower(store, image, react)
        await follower.load()
        follower.follow()
        await store.txn([], [Create("/controller/epoch", b"{}")])
        await reacting.wait()
        for new in ({"alice": {SHA_512: CREDENTIAL}, "bob": {SHA_512: CREDENTIAL}}, {"alice": {}}):
            revision = await store.txn([], tree.scram_ops(image.scram, new))
            await follower.access_applied(revision)
            assert image.scram_credential(SHA_512, "alice") == new["alice"].get(SHA_512)
            assert image.scram_credential(SHA_512, "bob") == CREDENTIAL
        waiting = asyncio.ensure_future(follower.applied(revision))
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.set()
        await waiting
        await follower.close()
        await store.close()

    run(scenario())


def test_ephemeral_nodes_are_gone_with_their_session(opened: Opened) -> None:
    async def scenario() -> None:
        store = await opened()
        await store.txn([], [Create("/live/1", b"{}", ephemeral=True), Create("/topics/k", b"2")])
        await store.close()
        again = await opened()
        assert await contents(again) == {"/topics/k": Node(b"2", 0)}
        await again.close()

    run(scenario())


@pytest.mark.parametrize(
    "path",
    [
        tree.topic_path(bytes(16)),
        tree.broker_config_path("1"),
        tree.broker_config_path(""),
        tree.group_config_path("a/group"),
        tree.group_config_path("."),
        tree.group_config_path(".."),
        tree.scram_path(".."),
    ],
)
def test_a_new_store_accepts_a_node_at_every_kind_of_path(opened: Opened, path: str) -> None:
    async def scenario() -> None:
        store = await opened()
        await store.txn([], [Create(path, b"1")])

        async def loaded() -> object:
            nodes, _ = await store.load(path)
            return nodes

        await eventually(loaded, {path: Node(b"1", 0)})
        await store.close()

    run(scenario())


def test_of_transactions_at_the_same_time_one_wins(opened: Opened) -> None:
    async def scenario() -> None:
        store = await opened()
        await store.txn([], [Create("/topics/a", b"0")])
        outcomes = await asyncio.gather(
            *(
                store.txn([Check("/topics/a", 0)], [Replace("/topics/a", b"%d" % n)])
                for n in range(1, 6)
            ),
            return_exceptions=True,
        )
        won = [n for n, each in enumerate(outcomes, start=1) if isinstance(each, int)]
        assert len(won) == 1
        assert sum(isinstance(each, TxnConflict) for each in outcomes) == 4
        await eventually(lambda: contents(store), {"/topics/a": Node(b"%d" % won[0], 1)})
        await store.close()

    run(scenario())


def test_sessions_of_one_ensemble_see_each_other(zookeeper: EnsembleMember) -> None:
    async def scenario() -> None:
        connect = f"{zookeeper.connect}/store-{next(_roots)}"

        def opened() -> Awaitable[ZooKeeperStore]:
            return ZooKeeperStore.open(connect, session_timeout_ms=4000, connect_timeout_ms=20_000)

        one, other = await opened(), await opened()
        await one.txn([], [Create("/live/1", b"{}", ephemeral=True)])
        await eventually(lambda: contents(other), {"/live/1": Node(b"{}", 0)})
        await one.close()
        await eventually(lambda: contents(other), {})
        await other.close()

    run(scenario())

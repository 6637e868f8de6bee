"""Tests that the image and the broker's reaction to changes stay in step and in order."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest
from tests.unit.metadata.memory_files import MemoryFileSystem

from ottla.base.cluster import PartitionState, TopicImage
from ottla.base.errors import KafkaError
from ottla.base.metadata import Delete, Op
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.base.types import new_uuid
from ottla.metadata import tree
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.follower import ImageFollower
from ottla.metadata.image import AccessDelta, ClusterImage, ImageDelta
from ottla.storage.file import OsFileSystem

STATE = PartitionState(1, 0, (1,), (1,), isr_incarnations=(0,))
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)


async def at_once(work: Any) -> Any:
    return work()


def topic(name: str, partitions: int = 1) -> TopicImage:
    return TopicImage(name, new_uuid(), {}, (STATE,) * partitions)


async def store_with(*topics: TopicImage) -> EmbeddedStore:
    store = await EmbeddedStore.open(MemoryFileSystem(), "/data/ottla-metadata", at_once)
    for each in topics:
        await store.txn([], tree.create_topic_ops(each))
    return store


def test_what_exists_at_the_start_is_returned_and_what_comes_while_it_is_acted_on_waits() -> None:
    async def scenario() -> None:
        store, image = await store_with(topic("old")), ClusterImage()
        deltas: list[ImageDelta] = []
        follower = ImageFollower(store, image, deltas.append)
        first = await follower.load()
        assert [t.name for t in first.topics_created] == ["old"]
        await store.txn([], tree.create_topic_ops(topic("meanwhile")))
        await asyncio.sleep(0)
        assert list(image.topics) == ["old"]
        follower.follow()
        revision = await store.txn([], tree.create_topic_ops(topic("new")))
        await follower.applied(revision)
        created = [t.name for delta in deltas for t in delta.topics_created]
        assert created == list(image.topics)[1:] == ["meanwhile", "new"]
        await follower.close()

    asyncio.run(scenario())


def test_applied_waits_for_the_reaction_and_commits_meanwhile_are_taken_together() -> None:
    async def scenario() -> None:
        store, image = await store_with(), ClusterImage()
        reacting, gate, deltas = asyncio.Event(), asyncio.Event(), []

        async def react(delta: ImageDelta) -> None:
            deltas.append([t.name for t in delta.topics_created])
            reacting.set()
            await gate.wait()

        follower = ImageFollower(store, image, react)
        await follower.load()
        follower.follow()
        first = await store.txn([], tree.create_topic_ops(topic("a")))
        waiting = asyncio.ensure_future(follower.applied(first))
        await reacting.wait()
        assert not waiting.done()
        await store.txn([], tree.create_topic_ops(topic("b")))
        last = await store.txn([], tree.create_topic_ops(topic("c")))
        assert list(image.topics) == ["a"]
        gate.set()
        await waiting
        await follower.applied(last)
        assert deltas == [["a"], ["b", "c"]]
        await follower.close()

    asyncio.run(scenario())


def test_a_failing_reaction_does_not_stop_the_follower(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store, image = await store_with(), ClusterImage()

        def react(delta: ImageDelta) -> None:
            raise OSError("disk on fire")

        follower = ImageFollower(store, image, react)
        await follower.load()
        follower.follow()
        for name in ("a", "b"):
            await follower.applied(await store.txn([], tree.create_topic_ops(topic(name))))
        assert list(image.topics) == ["a", "b"]
        await follower.close()

    asyncio.run(scenario())
    assert "disk on fire" in caplog.text


def test_waiters_of_a_closed_follower_are_reported() -> None:
    async def scenario() -> None:
        follower = ImageFollower(await store_with(), ClusterImage(), lambda delta: None)
        await follower.load()
        follower.follow()
        waiting = asyncio.ensure_future(follower.applied(99))
        await asyncio.sleep(0)
        await follower.close()
        with pytest.raises(KafkaError):
            await waiting

    asyncio.run(scenario())


def user_ops(*users: str) -> list[Op]:
    return tree.scram_ops({}, {user: {ScramMechanism.SHA_256: CREDENTIAL} for user in users})


def test_users_are_known_after_load_and_change_before_follow() -> None:
    async def scenario() -> None:
        store, image = await store_with(), ClusterImage()
        await store.txn([], user_ops("alice"))
        follower = ImageFollower(store, image, lambda delta: None)
        await follower.load()
        assert list(image.scram) == ["alice"]
        revision = await store.txn([], [*user_ops("bob"), Delete(tree.scram_path("alice"))])
        assert list(image.scram) == ["bob"]
        await follower.access_applied(revision)
        await follower.close()

    asyncio.run(scenario())


def test_changes_of_users_during_load_are_not_applied_twice_or_lost() -> None:
    """The store may report commits between the watch and the load that follows it."""

    async def scenario() -> None:
        store, image = await store_with(), ClusterImage()
        load, interrupted = store.load, []

        async def slow_load(prefix: str) -> Any:
            if not interrupted:
                interrupted.append(prefix)
                await store.txn([], user_ops("alice", "bob"))
                await store.txn([], [Delete(tree.scram_path("alice"))])
            return await load(prefix)

        store.load = slow_load  # type: ignore[method-assign]
        seen: list[set[str]] = []
        follower = ImageFollower(
            store, image, lambda delta: None, lambda delta: seen.append(delta.users)
        )
        await follower.load()
        assert list(image.scram) == ["bob"]
        assert seen == [{"bob"}]
        await follower.close()

    asyncio.run(scenario())


def test_the_broker_learns_of_changed_users_while_it_reacts_to_something_else() -> None:
    async def scenario() -> None:
        store, image = await store_with(), ClusterImage()
        reacting, gate = asyncio.Event(), asyncio.Event()
        seen: list[tuple[set[str], list[str]]] = []

        async def react(delta: ImageDelta) -> None:
            reacting.set()
            await gate.wait()

        follower = ImageFollower(
            store, image, react, lambda delta: seen.append((delta.users, list(image.scram)))
        )
        await follower.load()
        follower.follow()
        await store.txn([], tree.create_topic_ops(topic("a")))
        await reacting.wait()
        await store.txn([], [*user_ops("alice"), *tree.create_topic_ops(topic("b"))])
        await store.txn([], [Delete(tree.scram_path("alice"))])
        assert seen == [({"alice"}, ["alice"]), ({"alice"}, [])]
        assert list(image.topics) == ["a"]
        await follower.close()

    asyncio.run(scenario())


def test_a_failing_reaction_to_users_does_not_stop_the_follower(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        store, image = await store_with(), ClusterImage()

        def fail(delta: AccessDelta) -> None:
            raise OSError("no memory")

        follower = ImageFollower(store, image, lambda delta: None, fail)
        await follower.load()
        follower.follow()
        await follower.applied(await store.txn([], user_ops("alice")))
        await follower.applied(await store.txn([], tree.create_topic_ops(topic("a"))))
        assert list(image.topics) == ["a"]
        await follower.close()

    asyncio.run(scenario())
    assert "no memory" in caplog.text


@pytest.mark.parametrize(("topics", "partitions"), [(1, 10_000), (10_000, 1)])
def test_ten_thousand_partitions_are_created_and_loaded_quickly(
    tmp_path: Any, topics: int, partitions: int
) -> None:
    """The budgets are 2 s and 1 s of CPU time, because the machine may be busy otherwise."""
    new = [topic(f"t{number}", partitions) for number in range(topics)]

    async def open_store() -> EmbeddedStore:
        return await EmbeddedStore.open(OsFileSystem(), f"{tmp_path}/ottla-metadata", at_once)

    async def create() -> None:
        store, image = await open_store(), ClusterImage()
        follower = ImageFollower(store, image, lambda delta: None)
        await follower.load()
        follower.follow()
        revisions = await asyncio.gather(
            *(store.txn([], tree.create_topic_ops(each)) for each in new)
        )
        await follower.applied(max(revisions))
        assert len(image.topics) == topics
        await follower.close()
        await store.close()

    async def load() -> None:
        store, image = await open_store(), ClusterImage()
        follower = ImageFollower(store, image, lambda delta: None)
        await follower.load()
        follower.follow()
        assert sum(len(each.partitions) for each in image.topics.values()) == 10_000
        await follower.close()
        await store.close()

    gc.collect()  # garbage of other tests must not count against the budget
    started = time.process_time()
    asyncio.run(create())
    created = time.process_time()
    asyncio.run(load())
    loaded = time.process_time()
    print(f"created in {created - started:.2f} s, loaded in {loaded - created:.2f} s")
    assert created - started < 2
    assert loaded - created < 1

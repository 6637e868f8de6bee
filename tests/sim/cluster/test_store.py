"""The ZooKeeper store against a simulated ensemble that can lose one particular reply."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from ottla.base.metadata import Change, Create, Delete
from ottla.metadata.zookeeper.store import ZooKeeperStore
from ottla.testing.simulation.cluster import ZOOKEEPER, SimulatedCluster, repeatable
from ottla.testing.simulation.zookeeper import PORT

CLIENT = "client"


class Bed:
    """A simulated ensemble, and a client process in which the store runs."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(1, brokers=0)
        self.process = self.cluster.process(CLIENT)
        self.zookeeper = self.cluster.zookeeper
        self.cluster.start()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.cluster.scheduler.run(coroutine, self.process)

    async def open(self) -> ZooKeeperStore:
        return await ZooKeeperStore.open(
            f"{ZOOKEEPER}:{PORT}/ottla", session_timeout_ms=6_000, connect_timeout_ms=10_000
        )

    def has(self, name: str) -> bool:
        return f"/ottla/tree/topics/{name}" in self.zookeeper.tree

    async def committed(self, name: str) -> None:
        for _ in range(1_000):
            if self.has(name):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} was not created")

    def lose_replies(self) -> None:
        self.cluster.network.cut(ZOOKEEPER, CLIENT, both=False)

    def lose_requests(self) -> None:
        self.cluster.network.cut(CLIENT, ZOOKEEPER, both=False)

    def break_connection(self) -> None:
        self.cluster.network.reset(CLIENT, ZOOKEEPER)
        self.cluster.network.heal()


@pytest.fixture
def bed() -> Any:
    with repeatable(1):
        yield Bed()


def create(name: str) -> list[Create]:
    return [Create(f"/topics/{name}", b"{}")]


def test_a_lost_reply_is_found_out_and_the_change_made_once(bed: Bed) -> None:
    async def scenario() -> None:
        store = await bed.open()
        bed.lose_replies()
        change = asyncio.ensure_future(store.txn([], create("a")))
        await bed.committed("a")
        bed.break_connection()
        assert await change > 0

    bed.run(scenario())


def test_a_lost_request_is_sent_again(bed: Bed) -> None:
    async def scenario() -> None:
        store = await bed.open()
        bed.lose_requests()
        change = asyncio.ensure_future(store.txn([], create("a")))
        await asyncio.sleep(0.1)
        assert not bed.has("a")
        bed.break_connection()
        assert await change > 0
        assert bed.has("a")

    bed.run(scenario())


def test_what_became_of_a_cancelled_change_is_not_taken_for_the_next_ones_outcome(
    bed: Bed,
) -> None:
    async def scenario() -> None:
        store = await bed.open()
        bed.lose_replies()
        given_up = asyncio.ensure_future(store.txn([], create("a")))
        await bed.committed("a")
        given_up.cancel()
        bed.lose_requests()
        change = asyncio.ensure_future(store.txn([], create("b")))
        await asyncio.sleep(0.1)
        bed.break_connection()
        await change
        assert bed.has("b"), "it was said to be done"

    bed.run(scenario())


@pytest.mark.parametrize("lag_s", [0.0, 0.3])
def test_a_member_that_lags_behind_shows_everything_in_the_end(bed: Bed, lag_s: float) -> None:
    async def scenario() -> None:
        bed.zookeeper.max_lag_s = lag_s
        first, second = await bed.open(), await bed.open()
        for number in range(20):
            await first.txn([], create(str(number)))
            if number == 10:
                bed.break_connection()
        await asyncio.sleep(2.0)
        assert (await second.load("/topics/"))[0].keys() == (await first.load("/topics/"))[0].keys()
        assert len((await second.load("/topics/"))[0]) == 20

    bed.run(scenario())


def test_a_removed_user_disappears_before_the_rest_of_the_tree_is_read_again(bed: Bed) -> None:

    async def scenario() -> None:
        store, other = await bed.open(), await bed.open()
        await other.txn([], [Create(f"/topics/{number}", b"{}") for number in range(2_000)])
        await other.txn([], [Create("/access/scram/alice", b"{}")])
        order: list[str] = []

        def on_change(revision: int, changes: Sequence[Change]) -> None:
            order.extend(path for path, _ in changes)

        store.watch("/access/", on_change)
        store.watch("/", on_change)
        await until(store, "/access/scram/", 1)
        await until(store, "/topics/", 2_000)
        order.clear()
        bed.lose_replies()
        change = [Delete("/access/scram/alice"), Create("/topics/new", b"{}")]
        changing = asyncio.ensure_future(other.txn([], change))
        await bed.committed("new")
        bed.break_connection()
        await changing
        await until(store, "/topics/", 2_001)
        assert order == ["/access/scram/alice", "/topics/new"]

    bed.run(scenario())


async def until(store: ZooKeeperStore, prefix: str, count: int) -> None:
    while len((await store.load(prefix))[0]) != count:  # noqa: ASYNC110 virtual time
        await asyncio.sleep(0.01)

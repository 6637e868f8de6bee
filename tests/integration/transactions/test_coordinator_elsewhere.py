"""Responses while there is no coordinator, or before it has loaded its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.transactions.producer import TransactionalProducer
from tests.raw_client import TIMEOUT_S, Api, RawClient

from ottla.base.errors import ErrorCode
from ottla.broker.coordinator_runtime import ShardState
from ottla.testing.broker import EmbeddedBroker

E = ErrorCode
Scenario = Callable[[EmbeddedBroker, TransactionalProducer], None]


def run(prepare: Scenario, look: Callable[[TransactionalProducer], None]) -> None:
    async def main() -> None:
        async with EmbeddedBroker() as embedded:

            def begin() -> TransactionalProducer:
                client = RawClient(embedded.port)
                client.create_topic("t")
                client.call(Api.FIND_COORDINATOR, 3, key="g", key_type=0)
                return TransactionalProducer(client)

            producer = await asyncio.to_thread(begin)
            if prepare is not nobody:
                await asyncio.to_thread(producer.begin)
            prepare(embedded, producer)
            await asyncio.wait_for(asyncio.to_thread(look, producer), TIMEOUT_S)
            producer.client.close()

    asyncio.run(main())


def nobody(embedded: EmbeddedBroker, producer: TransactionalProducer) -> None:
    """Ask before any client has looked for a coordinator, so that its topic does not exist."""
    producer.producer_id, producer.epoch = 7, 0


def loading(embedded: EmbeddedBroker, producer: TransactionalProducer) -> None:
    for runner in embedded.broker.transaction_coordinator.runtime.runners:
        runner.state = ShardState.LOADING


def moved(embedded: EmbeddedBroker, producer: TransactionalProducer) -> None:
    embedded.broker.transaction_coordinator.runtime.close()


def ask_everything(producer: TransactionalProducer) -> dict[str, Any]:
    listed = producer.client.call(Api.LIST_TRANSACTIONS, 0)
    return {
        "init": producer.init(),
        "add": producer.add("t"),
        "add offsets": producer.add_offsets("g"),
        "end": producer.end(),
        "describe": ErrorCode(producer.state().error_code),
        "list": ErrorCode(listed.error_code),
        "produce v10": producer.produce("t", b"x", version=10),
        "produce v12": producer.produce("t", b"x", version=12),
        "commit offset v1": producer.commit_offset("g", "t", 1, version=1),
        "commit offset v5": producer.commit_offset("g", "t", 1, version=5),
    }


@pytest.mark.parametrize(
    ("prepare", "code", "listed", "old"),
    [
        (nobody, E.NOT_COORDINATOR, E.NONE, E.NOT_COORDINATOR),
        (moved, E.NOT_COORDINATOR, E.NONE, E.NOT_COORDINATOR),
        (loading, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_LOAD_IN_PROGRESS,
         E.COORDINATOR_NOT_AVAILABLE),
    ],
)  # fmt: skip
def test_clients_must_find_the_coordinator_again(
    prepare: Scenario, code: ErrorCode, listed: ErrorCode, old: ErrorCode
) -> None:
    def look(producer: TransactionalProducer) -> None:
        assert ask_everything(producer) == {
            "init": code,
            "add": code,
            "add offsets": code,
            "end": code,
            "describe": code,
            "list": listed,
            "produce v10": E.NOT_ENOUGH_REPLICAS,
            "produce v12": E.NOT_ENOUGH_REPLICAS,
            "commit offset v1": old,
            "commit offset v5": code,
        }

    run(prepare, look)

"""Open transactions are found even if a coordinator dies during the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla import Producer
from ottla.base.errors import ErrorCode
from ottla.client.errors import ClientError
from ottla.client.producer.config import ProducerConfig
from ottla.spark import open_transactions as module
from ottla.spark.shared_client import SharedClient
from ottla.testing.broker_thread import BrokerThread


@pytest.fixture(scope="module")
def client() -> Iterator[SharedClient]:
    """Yield a client of a broker with one open transaction."""
    with BrokerThread() as broker:
        broker.create_topic("written")
        made = SharedClient(ProducerConfig(bootstrap_servers=[broker.bootstrap]))
        with Producer(broker.bootstrap, transactional_id="left-open") as producer:
            producer.begin_transaction()
            producer.send("written", b"half").result(30)
            yield made
            producer.abort_transaction()
        made.close()


def found(client: SharedClient) -> list[str]:
    return list(client.run(module.open_transactions, client.cluster))


def test_what_is_open_is_listed(client: SharedClient) -> None:
    assert found(client) == ["left-open"]


def test_a_broker_that_is_gone_is_not_asked_again(
    client: SharedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = module.list_transactions, []

    async def list_transactions(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise ClientError("broker 1 does not exist", code=ErrorCode.BROKER_NOT_AVAILABLE)
        return await real(*arguments, **options)

    monkeypatch.setattr(module, "list_transactions", list_transactions)
    assert found(client) == ["left-open"]
    assert len(calls) == 2


def test_a_list_does_not_count_if_a_coordinator_moved_meanwhile(
    client: SharedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = module._coordinators, []

    async def coordinators(cluster: Any) -> dict[int, int]:
        calls.append(cluster)
        return {**await real(cluster), **({0: 99} if len(calls) == 2 else {})}

    monkeypatch.setattr(module, "_coordinators", coordinators)
    assert found(client) == ["left-open"]
    assert len(calls) == 4, "asked, moved; asked, stayed"

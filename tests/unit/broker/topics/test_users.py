"""Tests of the handlers that describe and alter SCRAM credentials."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.broker.topics.testbed import FakeBroker, with_broker
from tests.unit.metadata.memory_files import MemoryFileSystem

from ottla.base.errors import ErrorCode
from ottla.base.scram import ScramMechanism, derive_credential
from ottla.broker.handlers import (
    alter_user_scram_credentials,
    create_topics,
    describe_user_scram_credentials,
)
from ottla.core.controller.scram import ScramUpsertion
from ottla.metadata.image import ImageDelta
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.wire.rpc import alter_user_scram_credentials as request_to_alter

SHA_512 = ScramMechanism.SHA_512
SECRET = b"salted-password"
CREDENTIAL = derive_credential(SHA_512, SECRET, b"salt-value", 4096)


def upsertion(user: str, **fields: Any) -> dict[str, Any]:
    new = {"mechanism": 2, "iterations": 4096, "salt": b"salt-value", "salted_password": SECRET}
    return {"name": user, **new, **fields}


async def alter(broker: FakeBroker, *upsertions: dict[str, Any], delete: str = "") -> list[int]:
    deletions = [{"name": delete, "mechanism": 2}] if delete else []
    answer = await broker.call(
        alter_user_scram_credentials, 0, deletions=deletions, upsertions=list(upsertions)
    )
    return [int(each.error_code) for each in answer.results]


async def described(broker: FakeBroker, users: list[str] | None) -> list[tuple[str, int]]:
    named = None if users is None else [{"name": user} for user in users]
    answer = await broker.call(describe_user_scram_credentials, 0, users=named)
    return [(each.user, int(each.error_code)) for each in answer.results]


def test_users_survive_a_restart() -> None:
    fs = MemoryFileSystem()

    async def create(broker: FakeBroker) -> None:
        assert await alter(broker, upsertion("alice"), upsertion("bob")) == [0, 0]
        assert await alter(broker, delete="bob") == [0]

    async def find(broker: FakeBroker) -> None:
        assert broker.image.scram == {"alice": {SHA_512: CREDENTIAL}}

    with_broker(create, fs)
    with_broker(find, fs)


def test_every_user_is_described_without_a_list_and_with_an_empty_one() -> None:
    async def scenario(broker: FakeBroker) -> None:
        assert await described(broker, None) == []
        await alter(broker, upsertion("bob"), upsertion("alice"))
        assert await described(broker, None) == [("alice", 0), ("bob", 0)]
        assert await described(broker, []) == [("alice", 0), ("bob", 0)]
        assert await described(broker, ["bob", "x", "y", "y"]) == [
            ("bob", 0),
            ("x", ErrorCode.RESOURCE_NOT_FOUND),
            ("y", ErrorCode.DUPLICATE_RESOURCE),
        ]

    with_broker(scenario)


def test_all_users_of_a_request_change_in_one_transaction() -> None:
    async def scenario(broker: FakeBroker) -> None:
        changes: list[set[str]] = []
        follower = broker.follower
        follower._on_access = lambda delta: changes.append(delta.users)
        codes = await alter(broker, upsertion("a"), upsertion("b"), upsertion("c", iterations=1))
        assert codes == [0, 0, ErrorCode.UNACCEPTABLE_CREDENTIAL]
        assert changes == [{"a", "b"}]

    with_broker(scenario)


def test_users_change_while_the_broker_opens_logs_and_another_change_waits() -> None:
    async def scenario(broker: FakeBroker) -> None:
        reacting, gate = asyncio.Event(), asyncio.Event()

        async def react(delta: ImageDelta) -> None:
            reacting.set()
            await gate.wait()

        broker.reaction = react
        creating = asyncio.ensure_future(broker.create(create_topics, "orders"))
        await reacting.wait()
        async with asyncio.timeout(5):
            assert await alter(broker, upsertion("alice")) == [0]
            assert broker.image.scram_credential(SHA_512, "alice") == CREDENTIAL
            assert await alter(broker, delete="alice") == [0]
            assert broker.image.scram_credential(SHA_512, "alice") is None
        assert not creating.done()
        gate.set()
        await creating

    with_broker(scenario)


def test_a_request_that_zookeeper_could_not_store_is_refused() -> None:
    async def scenario(broker: FakeBroker) -> None:
        names = [f"{'é' * 200}{number}" for number in range(900)]
        codes = await alter(broker, *map(upsertion, names))
        assert set(codes) == {ErrorCode.POLICY_VIOLATION}
        assert not broker.image.scram

    with_broker(scenario)


def test_a_failed_write_is_an_error_of_every_user(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario(broker: FakeBroker) -> None:
        def fail(line: bytes, revision: int) -> None:
            raise OSError("no space left")

        broker.store._journal.append = fail  # type: ignore[method-assign]
        codes = await alter(broker, upsertion("a"), upsertion("b"))
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert not broker.image.scram

    with_broker(scenario)
    assert "no space left" in caplog.text
    assert "salt" not in caplog.text


def test_requests_do_not_show_credentials() -> None:
    decoded = AlterUserScramCredentialsRequest()
    entry = ScramCredentialUpsertion()
    entry.name, entry.salt, entry.salted_password = "alice", b"salt-value", SECRET
    decoded.upsertions = [entry]
    sent = request_to_alter(upsertions=[upsertion("alice")])  # type: ignore[list-item]
    internal = ScramUpsertion("alice", 2, 4096, b"salt-value", SECRET)
    shown = repr([decoded, sent, internal])
    assert "alice" in shown
    assert "salt-value" not in shown
    assert SECRET.decode() not in shown

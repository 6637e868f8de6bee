"""Delegation tokens of a broker: their HMACs and credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from tests.unit.broker.net.harness import on_a_loop

from ottla.base.config.broker import BrokerConfig
from ottla.base.delegation_token import token_hmac
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import Delete, Node, Op
from ottla.base.principal import Principal
from ottla.base.scram import ScramMechanism
from ottla.broker.delegation_tokens import DelegationTokens
from ottla.core.controller.delegation_tokens import TokenRequest
from ottla.metadata import tree
from ottla.metadata.image import ClusterImage

T = TypeVar("T")
ALICE = Principal("User", "alice")
SHA_256, SHA_512 = ScramMechanism
REQUEST = TokenRequest(ALICE, ALICE, [], -1)


class Broker:
    """The parts of a broker that delegation tokens use; a commit is in the image at once."""

    def __init__(self, secret: str = "secret") -> None:
        self.config = BrokerConfig({"delegation.token.secret.key": secret})
        self.image = ClusterImage()
        self.now_ms = 1_000
        self.clock: Any = SimpleNamespace(time_ms=lambda: self.now_ms)
        self.controller = self
        self.error: KafkaError | None = None
        self.threads = 0

    async def run_blocking(self, work: Callable[[], T]) -> T:
        self.threads += 1
        return await asyncio.to_thread(work)

    async def change_access(self, decide: Callable[[], tuple[T, Sequence[Op]]]) -> T:
        if self.error is not None:
            raise self.error
        result, ops = decide()
        self.image.apply_access(
            (op.path, None if isinstance(op, Delete) else Node(op.value, 0))  # type: ignore[union-attr]
            for op in ops
        )
        return result


def tokens_of(broker: Broker) -> DelegationTokens:
    numbers = iter(range(100))
    return DelegationTokens(broker, new_id=lambda: f"token-{next(numbers)}")


@on_a_loop
async def test_a_token_is_found_by_its_hmac_at_every_broker() -> None:
    first = Broker()
    token = await tokens_of(first).create(REQUEST, acts_for_others=False)
    second = Broker()
    second.image = first.image
    tokens = tokens_of(second)
    hmac = token_hmac("secret", token.token_id)
    assert tokens.find(hmac) == token
    assert tokens.hmac_of(token.token_id) == hmac
    assert tokens.find(token_hmac("another secret", token.token_id)) is None


@on_a_loop
async def test_clients_that_log_in_at_the_same_time_share_the_computation() -> None:
    broker = Broker()
    tokens = tokens_of(broker)
    token = await tokens.create(REQUEST, acts_for_others=False)
    logins = (tokens.token_credential(SHA_512, token.token_id) for _ in range(20))
    found = await asyncio.gather(*logins)
    assert broker.threads == 1
    assert len({each.credential.salt for each in found if each is not None}) == 1
    await tokens.token_credential(SHA_256, token.token_id)
    await tokens.token_credential(SHA_256, token.token_id)
    assert broker.threads == 2


@on_a_loop
async def test_a_cancelled_login_does_not_disturb_another() -> None:
    broker = Broker()
    tokens = tokens_of(broker)
    token = await tokens.create(REQUEST, acts_for_others=False)
    first = asyncio.create_task(tokens.token_credential(SHA_512, token.token_id))
    second = asyncio.create_task(tokens.token_credential(SHA_512, token.token_id))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is not None


@on_a_loop
async def test_unknown_and_expired_tokens_have_no_credential() -> None:
    broker = Broker()
    tokens = tokens_of(broker)
    token = await tokens.create(REQUEST, acts_for_others=False)
    assert await tokens.token_credential(SHA_512, "unknown") is None
    broker.now_ms = token.expires_ms + 1
    assert await tokens.token_credential(SHA_512, token.token_id) is None
    assert broker.threads == 0


@on_a_loop
async def test_what_belongs_to_removed_tokens_is_forgotten() -> None:
    broker = Broker()
    tokens = tokens_of(broker)
    for _ in range(10):
        token = await tokens.create(REQUEST, acts_for_others=False)
        await tokens.token_credential(SHA_512, token.token_id)
        await tokens.expire(tokens.hmac_of(token.token_id), ALICE, -1)
    assert tokens.find(b"unknown") is None
    assert len(tokens._hmacs) == len(tokens._ids) == 0
    assert len(tokens._credentials) <= 1


@on_a_loop
async def test_a_sweep_removes_expired_tokens_at_the_controller_only() -> None:
    broker = Broker()
    tokens = tokens_of(broker)
    expired = await tokens.create(REQUEST, acts_for_others=False)
    broker.now_ms = expired.expires_ms + 1
    kept = await tokens.create(REQUEST, acts_for_others=False)
    broker.error = KafkaError(ErrorCode.NOT_CONTROLLER)
    await tokens.remove_expired()
    assert len(broker.image.tokens) == 2
    broker.error = None
    await tokens.remove_expired()
    assert list(broker.image.tokens) == [kept.token_id]


@on_a_loop
async def test_without_a_secret_nothing_works() -> None:
    tokens = tokens_of(Broker(secret=""))
    assert not tokens.is_enabled
    for call in (
        tokens.create(REQUEST, acts_for_others=False),
        tokens.renew(b"x", ALICE, -1),
        tokens.expire(b"x", ALICE, -1),
    ):
        with pytest.raises(KafkaError) as raised:
            await call
        assert raised.value.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@on_a_loop
async def test_a_malformed_node_is_no_token(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    token = await tokens_of(broker).create(REQUEST, acts_for_others=False)
    path = tree.token_path(token.token_id)
    delta = broker.image.apply_access([(path, Node(b'{"owner": "alice"}', 1))])
    assert delta.tokens == {token.token_id}
    assert not broker.image.tokens
    assert "is malformed" in caplog.text

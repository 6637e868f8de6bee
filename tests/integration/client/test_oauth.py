"""OAUTHBEARER with a broker that follows a script, and a token endpoint on this machine."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from tests.integration.client.fake_broker import FakeBroker, Stream
from tests.unit.client.test_oauth import IdentityProvider, answer

from ottla import Admin, AsyncAdmin, Consumer, Producer
from ottla.client.errors import AuthenticationFailed, BrokersUnreachable
from ottla.wire.api import Api

SOON_MS = 1_500
TOKEN = "MARKER-token"


class BearerScript:
    """A broker that accepts one message, as RFC 7628 describes it."""

    def __init__(self, *tokens: str, extensions: str = "") -> None:
        self.expected = {f"n,,\x01auth=Bearer {each}\x01{extensions}\x01" for each in tokens}
        self.messages: list[bytes] = []

    def __call__(self, stream: Stream) -> None:
        stream.open()
        asked = stream.receive()
        assert asked is not None
        assert (asked.api, asked.body.mechanism) == (Api.SASL_HANDSHAKE, "OAUTHBEARER")
        stream.answer(asked, error_code=0, mechanisms=["OAUTHBEARER"])
        asked = stream.receive()
        if asked is None:
            return  # the client has no token
        message = bytes(asked.body.auth_bytes)
        self.messages.append(message)
        if message.decode() in self.expected:
            stream.answer(asked, error_code=0, error_message=None, auth_bytes=b"")
            stream.serve()
            return
        refusal = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
        stream.answer(asked, error_code=0, error_message=None, auth_bytes=refusal.encode())
        asked = stream.receive()
        assert asked is not None
        self.messages.append(bytes(asked.body.auth_bytes))
        stream.answer(asked, error_code=58, error_message=refusal, auth_bytes=b"")


def options(**more: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "default_api_timeout_ms": SOON_MS,
        **more,
    }


def credentials(identity: IdentityProvider) -> dict[str, Any]:
    return {
        "sasl_oauthbearer_token_endpoint_url": identity.url,
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret": "MARKER-secret",
    }


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_token_of_the_endpoint_is_sent_with_the_extensions() -> None:
    script = BearerScript(TOKEN, extensions="logicalCluster=lkc-1\x01")
    with (
        IdentityProvider(answer(access_token=TOKEN, expires_in=300)) as identity,
        FakeBroker(script) as broker,
        Admin(
            broker.bootstrap,
            **options(**credentials(identity), sasl_oauthbearer_extensions="logicalCluster=lkc-1"),
        ) as admin,
    ):
        assert admin._async._cluster.metadata.cluster_id == "fake"
        assert len(identity.requests) == 1


@pytest.mark.parametrize("kind", [Admin, Consumer, Producer])
def test_every_client_takes_a_function(kind: Any) -> None:
    def provide(text: str) -> tuple[str, float]:
        return f"{text}-token", time.time() + 300

    given = options(oauth_cb=provide, sasl_oauthbearer_config="MARKER")
    with FakeBroker(BearerScript(TOKEN)) as broker, kind(broker.bootstrap, **given):
        assert broker.connections


def test_a_coroutine_function_runs_on_the_loop_of_the_client() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()

        async def provide() -> tuple[str, float]:
            assert asyncio.get_running_loop() is loop
            return TOKEN, time.time() + 300

        with FakeBroker(BearerScript(TOKEN)) as broker:
            async with AsyncAdmin(broker.bootstrap, **options(oauth_cb=provide)):
                pass

    asyncio.run(run())


def test_a_token_that_the_broker_refuses_is_one_sentence() -> None:
    script = BearerScript("another")
    with (
        IdentityProvider(answer(access_token=TOKEN, expires_in=300)) as identity,
        FakeBroker(script) as broker,
        pytest.raises(AuthenticationFailed, match=r"rejected the credentials: invalid token$"),
    ):
        Admin(broker.bootstrap, **options(**credentials(identity)))
    assert script.messages[1:] == [b"\x01"]
    assert broker.connections == 1


def test_an_endpoint_that_is_down_is_retried_until_the_timeout() -> None:
    with (
        FakeBroker(BearerScript(TOKEN)) as broker,
        pytest.raises(BrokersUnreachable, match=r"token endpoint http:.*:1/x cannot be"),
    ):
        Admin(
            broker.bootstrap,
            **options(
                sasl_oauthbearer_token_endpoint_url="http://127.0.0.1:1/x",
                sasl_oauthbearer_client_id="me",
                sasl_oauthbearer_client_secret="MARKER-secret",
            ),
        )


def test_an_endpoint_that_never_answers_does_not_block_the_event_loop() -> None:
    """The loop keeps turning while a thread waits for the token endpoint."""
    import socket

    async def run() -> int:
        with socket.create_server(("127.0.0.1", 0)) as silent, FakeBroker(BearerScript()) as broker:
            admin = AsyncAdmin(
                broker.bootstrap,
                **options(
                    sasl_oauthbearer_token_endpoint_url=(
                        f"http://127.0.0.1:{silent.getsockname()[1]}/"
                    ),
                    sasl_oauthbearer_client_id="me",
                    sasl_oauthbearer_client_secret="s",
                    sasl_login_connect_timeout_ms=500,
                    sasl_login_read_timeout_ms=500,
                ),
            )
            turns = 0

            async def turn() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0.01)
                    turns += 1

            turning = asyncio.create_task(turn())
            with pytest.raises(BrokersUnreachable):
                await admin.start()
            turning.cancel()
            await admin.close()
            return turns

    assert asyncio.run(run()) > 20

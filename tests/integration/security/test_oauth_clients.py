"""Our clients with OAUTHBEARER, against our broker and a token endpoint on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.running import running_on
from tests.jwt_issuer import AUDIENCE, ISSUER, SigningKey, key_set, sign
from tests.unit.client.test_oauth import IdentityProvider

from ottla import Admin, Consumer, Producer
from ottla.client.errors import AuthenticationFailed
from ottla.testing.broker_thread import BrokerThread

TIMEOUT_S = 20.0
KEY = SigningKey("k1")
STRANGER = SigningKey("k1")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    path = tmp_path_factory.mktemp("issuer") / "keys.json"
    path.write_bytes(key_set(KEY))
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with BrokerThread(overrides=overrides) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def address(broker: BrokerThread) -> str:
    return f"127.0.0.1:{broker.broker.ports['SASL_PLAINTEXT']}"


def issued(key: SigningKey = KEY) -> tuple[int, bytes]:
    content = {"access_token": sign(key), "expires_in": 300, "token_type": "Bearer"}
    return 200, json.dumps(content).encode()


def properties(url: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "secret",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
    }


def test_records_are_produced_and_consumed_with_a_token(broker: BrokerThread) -> None:
    with IdentityProvider(issued()) as identity:
        profile = properties(identity.url)
        with Producer(address(broker), profile=profile) as producer:
            producer.send("tokens", b"v").result(TIMEOUT_S)
        with Consumer(
            address(broker), profile=profile, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["tokens"])
            found: list[Any] = []
            while not found:
                found = consumer.poll(timeout_s=TIMEOUT_S)
        assert [each.value for each in found] == [b"v"]
        assert len(identity.requests) == 2  # one for each client, not for each connection


def test_tools_take_a_token_from_the_endpoint(broker: BrokerThread, tmp_path: Path) -> None:
    with IdentityProvider(issued()) as identity:
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{k}={v}\n" for k, v in properties(identity.url).items()))
        found = running_on(address(broker))("topics", "--command-config", str(path), "--list")
    assert found.code == 0, found


def test_a_token_in_a_file(broker: BrokerThread, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(sign(KEY))
    with Admin(
        address(broker),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=path.as_uri(),
    ) as admin:
        admin.list_topics()


def test_a_token_of_another_issuer_is_refused_in_one_sentence(broker: BrokerThread) -> None:
    with (
        IdentityProvider(issued(STRANGER)) as identity,
        pytest.raises(AuthenticationFailed, match=r"rejected the credentials: invalid token$"),
    ):
        Admin(address(broker), profile=properties(identity.url))


def test_open_connections_authenticate_again_with_a_new_token(broker: BrokerThread) -> None:
    """Tokens live for four seconds; the connection outlives several of them."""
    tokens: list[str] = []

    def provide() -> tuple[str, float]:
        expires_at = time.time() + 4
        tokens.append(sign(KEY, exp=expires_at))
        return tokens[-1], expires_at

    with Admin(
        address(broker),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        oauth_cb=provide,
    ) as admin:
        admin.list_topics()
        first = admin._async._cluster._connections.copy()
        deadline = time.monotonic() + 60
        while len(tokens) < 4:
            admin.list_topics()
            assert time.monotonic() < deadline
        assert admin._async._cluster._connections == first

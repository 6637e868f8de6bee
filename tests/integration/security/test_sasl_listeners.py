"""Listeners with each security protocol at the same time, with settings of their own."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, needs_openssl
from tests.integration.security.sasl_broker import (
    MECHANISMS,
    PASSWORDS,
    TIMEOUT_S,
    add_users,
    address,
    plain_jaas,
    profile,
)

from ottla import Consumer, Producer
from ottla.client.errors import AuthenticationFailed, ClientError
from ottla.testing.broker_thread import BrokerThread

pytestmark = needs_openssl

NAMES = "DNS:localhost,IP:127.0.0.1"
PLAIN = "listener.name.{}.plain.sasl.jaas.config"
BY_ALL_MECHANISMS = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def properties(authority: Authority, directory: Path) -> dict[str, str]:
    """Return the properties of a broker with five listeners.

    MUTUAL is for brokers: SCRAM-SHA-512 only, with client certificates, and short sessions. The
    users of SASL_PLAINTEXT and SASL_SSL differ."""
    own = authority.sign("broker", NAMES)
    store = directory / "broker.pem"
    store.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    names = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "MUTUAL"]
    protocols = [f"{name}:{name}" for name in names[:4]]
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join([*protocols, "MUTUAL:SASL_SSL"]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "ssl.principal.mapping.rules": "RULE:^CN=(app)$/$1/",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        PLAIN.format("sasl_plaintext"): plain_jaas({"clear": "clear-secret"}),
        PLAIN.format("sasl_ssl"): plain_jaas(PASSWORDS),
        "listener.name.mutual.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.connections.max.reauth.ms": "4000",
    }


@pytest.fixture(scope="module")
def broker(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    overrides = properties(authority, tmp_path_factory.mktemp("keys"))
    with BrokerThread(overrides=overrides) as broker:
        add_users(broker)
        yield broker


def secured(
    authority: Authority, mechanism: str, user: str = "alice", password: str | None = None
) -> dict[str, str]:
    return {
        **profile(user, mechanism, password),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.certificate,
    }


def mutual(authority: Authority, user: str = "alice") -> dict[str, str]:
    own = authority.sign("another", "DNS:client")
    return {
        **secured(authority, "SCRAM-SHA-512", user),
        "ssl.certificate.location": own.certificate,
        "ssl.key.location": own.key,
    }


@BY_ALL_MECHANISMS
def test_our_clients_use_sasl_with_tls(
    broker: BrokerThread, authority: Authority, mechanism: str
) -> None:
    where, common = address(broker, "SASL_SSL"), secured(authority, mechanism)
    with Producer(where, profile=common) as producer:
        producer.send(f"ours-{mechanism}", b"v").result(TIMEOUT_S)
    with Consumer(where, profile=common) as consumer:
        consumer.assign([consumer.partitions_for(f"ours-{mechanism}")[0]])
        consumer.seek_to_beginning()
        found = []
        while not found:
            found = consumer.poll(timeout_s=TIMEOUT_S)
    assert [each.value for each in found] == [b"v"]


def test_every_listener_has_its_own_settings(broker: BrokerThread, authority: Authority) -> None:
    for listener, accepted in (
        ("PLAINTEXT", {}),
        ("SSL", {"security.protocol": "SSL", "ssl.ca.location": authority.certificate}),
        ("SASL_PLAINTEXT", profile("clear", "PLAIN", "clear-secret")),
        ("SASL_SSL", secured(authority, "PLAIN")),
        ("MUTUAL", mutual(authority)),
    ):
        with Producer(address(broker, listener), profile=accepted) as producer:
            producer.send("all", listener.encode()).result(TIMEOUT_S)
    for listener, refused, reason in (
        ("SASL_PLAINTEXT", profile("alice", "PLAIN"), "Invalid username or password"),
        ("SASL_SSL", secured(authority, "PLAIN", "clear", "clear-secret"), "Invalid username"),
        (
            "MUTUAL",
            {**mutual(authority), "sasl.mechanism": "SCRAM-SHA-256"},
            "it supports SCRAM-SHA-512",
        ),
    ):
        with (
            pytest.raises(AuthenticationFailed, match=reason),
            Producer(address(broker, listener), profile=refused, max_block_ms=5_000),
        ):
            pass


def test_a_client_needs_a_certificate_and_a_password_where_both_are_required(
    broker: BrokerThread, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The certificate of `mutual` matches no mapping rule: with SASL, it names nobody."""
    with (
        pytest.raises(ClientError),
        Producer(
            address(broker, "MUTUAL"),
            profile=secured(authority, "SCRAM-SHA-512"),
            max_block_ms=5_000,
        ),
    ):
        pass
    assert "the client has no certificate" in caplog.text
    with Producer(address(broker, "MUTUAL"), profile=mutual(authority, "bob")) as producer:
        producer.send("mutual", b"v").result(TIMEOUT_S)
        principals = broker.call(
            lambda: {
                str(each.principal)
                for each in broker.broker.server.connections
                if each.listener == "MUTUAL"
            }
        )
    assert principals == {"User:bob"}


def test_librdkafka_authenticates_again_before_its_session_ends(
    broker: BrokerThread, authority: Authority
) -> None:
    import confluent_kafka

    server = broker.broker.server
    expired, repeated = server.sessions_expired, server.reauthentications_succeeded
    errors: list[str] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address(broker, "MUTUAL"),
            "linger.ms": 20,
            "error_cb": lambda error: errors.append(str(error)),
            **mutual(authority),
        }
    )
    deadline = time.monotonic() + TIMEOUT_S
    sent = 0
    while server.reauthentications_succeeded < repeated + 2:
        assert time.monotonic() < deadline, errors
        producer.produce("renewed", b"%d" % sent)
        assert producer.flush(TIMEOUT_S) == 0
        sent += 1
    assert errors == []
    assert server.sessions_expired == expired


# ---------------------------------------------------------------------------------- wrong protocol


def exchange(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
        client.sendall(data)
        with suppress(ConnectionError):
            while client.recv(1_000):
                pass


def test_a_client_without_tls_on_a_tls_port_is_named(
    broker: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    exchange(
        broker.broker.ports["SASL_SSL"], struct.pack(">ihhih", 10, 17, 1, 1, -1) + b"\0\5PLAIN"
    )
    assert "The TLS handshake with 127.0.0.1:" in caplog.text
    assert "on SASL_SSL failed: the client does not use TLS" in caplog.text


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_tls_client_on_a_port_without_tls_is_named(
    broker: BrokerThread, caplog: pytest.LogCaptureFixture, listener: str
) -> None:
    context = ssl.create_default_context()
    with (
        socket.create_connection(("127.0.0.1", broker.broker.ports[listener]), TIMEOUT_S) as client,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(client, server_hostname="localhost")
    assert "Closing the connection from 127.0.0.1:" in caplog.text
    assert "a TLS client connected to a port that expects the plaintext Kafka" in caplog.text

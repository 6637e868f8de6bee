"""Every client with every way to authenticate over TLS, and with a broker in the middle.

A broker in the middle has the name of the right broker in its certificate, but another authority
has signed it. No client may send it anything after the handshake."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from tests.integration.client.certificates import Authority, Certificate, needs_openssl
from tests.integration.security.sasl_broker import (
    PASSWORDS,
    TIMEOUT_S,
    add_users,
    address,
    plain_jaas,
)
from tests.jwt_issuer import AUDIENCE, ISSUER, SigningKey, TokenEndpoint, key_set, sign
from tests.raw_client import eventually

from ottla import Consumer, Producer
from ottla.client.errors import ClientError
from ottla.testing.broker_thread import BrokerThread

pytestmark = needs_openssl

NAMES = "DNS:localhost,IP:127.0.0.1"
KEY = SigningKey("k1")
PASSWORD = PASSWORDS["alice"]
MUTUAL, OAUTHBEARER = "mutual TLS", "OAUTHBEARER"
WAYS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", OAUTHBEARER, MUTUAL)
REFUSAL_S = 5.0
"""Time for clients that retry to report that they cannot connect."""


class Secured(NamedTuple):
    """The brokers, and what clients need."""

    broker: BrokerThread
    in_the_middle: BrokerThread
    authority: Authority
    own: Certificate
    """The certificate of the clients."""
    endpoint: TokenEndpoint

    def properties(self, way: str) -> dict[str, str]:
        """Return the properties of our clients and of librdkafka's."""
        found = {"security.protocol": "SASL_SSL", "ssl.ca.location": self.authority.certificate}
        if way == MUTUAL:
            return found | {
                "security.protocol": "SSL",
                "ssl.certificate.location": self.own.certificate,
                "ssl.key.location": self.own.key,
            }
        found["sasl.mechanism"] = way
        if way == OAUTHBEARER:
            return found | {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "alice",
                "sasl.oauthbearer.client.secret": PASSWORD,
                "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
            }
        return found | {"sasl.username": "alice", "sasl.password": PASSWORD}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority, stranger = (Authority(tmp_path_factory.mktemp(name)) for name in ("ca", "other"))
    home = tmp_path_factory.mktemp("keys")
    (home / "keys.json").write_bytes(key_set(KEY))
    own, forged = (
        _overrides(home, authority, _store(home / name, signer.sign("broker", NAMES)))
        for name, signer in (("own.pem", authority), ("forged.pem", stranger))
    )
    with (
        TokenEndpoint(KEY, "alice") as endpoint,
        BrokerThread(overrides=own) as broker,
        BrokerThread(overrides=forged) as in_the_middle,
    ):
        add_users(broker)
        client = authority.sign("app", "DNS:client")
        yield Secured(broker, in_the_middle, authority, client, endpoint)


def _overrides(home: Path, authority: Authority, key_store: str) -> dict[str, str]:
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SASL_SSL", "SSL")),
        "sasl.enabled.mechanisms": ",".join(WAYS[:4]),
        "sasl.oauthbearer.jwks.endpoint.url": (home / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain_jaas(PASSWORDS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "ssl.client.auth": "required",
    }


def _store(path: Path, own: Certificate) -> str:
    path.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    return str(path)


class Refused(Exception):
    """The client could not connect."""


Client: TypeAlias = Callable[[Secured, str, str, str], bytes | None]
"""Function that sends a record to a topic and returns its value as it consumes it, or raises
Refused. Its other arguments are the way to authenticate and the address."""


def ours(secured: Secured, way: str, where: str, topic: str) -> bytes | None:
    profile = secured.properties(way)
    try:
        with Producer(where, profile=profile, max_block_ms=int(REFUSAL_S * 1000)) as producer:
            producer.send(topic, b"ours").result(TIMEOUT_S)
    except ClientError as error:
        raise Refused(str(error)) from None
    with Consumer(where, profile=profile, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        found = []
        while not found:
            found = consumer.poll(timeout_s=TIMEOUT_S)
    return found[0].value


def confluent_kafka(secured: Secured, way: str, where: str, topic: str) -> bytes | None:
    import confluent_kafka

    errors: list[str] = []

    def remember(error: confluent_kafka.KafkaError) -> None:
        if error.code() == confluent_kafka.KafkaError._SSL:
            errors.append(str(error))

    common = {
        "bootstrap.servers": where,
        "error_cb": remember,
        **secured.properties(way),
    }
    producer = confluent_kafka.Producer(common)
    producer.produce(topic, b"confluent")
    deadline = time.monotonic() + TIMEOUT_S
    while len(producer) and not errors and time.monotonic() < deadline:
        producer.flush(0.1)
    if errors:
        raise Refused(errors[0])
    assert not len(producer)
    consumer = confluent_kafka.Consumer(
        {**common, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    value: bytes | None = None if message is None else message.value()
    return value


def kafka_python(secured: Secured, way: str, where: str, topic: str) -> bytes | None:
    import kafka
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return sign(KEY)

    common: dict[str, Any] = {
        "bootstrap_servers": where,
        "security_protocol": "SSL" if way == MUTUAL else "SASL_SSL",
        "ssl_cafile": secured.authority.certificate,
    }
    if way == MUTUAL:
        common |= {"ssl_certfile": secured.own.certificate, "ssl_keyfile": secured.own.key}
    elif way == OAUTHBEARER:
        common |= {"sasl_mechanism": way, "sasl_oauth_token_provider": Tokens()}
    else:
        common |= {"sasl_mechanism": way, "sasl_plain_username": "alice"}
        common["sasl_plain_password"] = PASSWORD
    try:
        producer = kafka.KafkaProducer(bootstrap_timeout_ms=int(REFUSAL_S * 1000), **common)
    except KafkaError as error:
        raise Refused(str(error)) from None
    try:
        producer.send(topic, b"kafka-python").get(TIMEOUT_S)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
        **common,
    )
    try:
        value: bytes | None = next(consumer).value
        return value
    finally:
        consumer.close()


def aiokafka(secured: Secured, way: str, where: str, topic: str) -> bytes | None:
    import aiokafka
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaConnectionError
    from aiokafka.helpers import create_ssl_context

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return sign(KEY)

    keys = {"certfile": secured.own.certificate, "keyfile": secured.own.key}
    common: dict[str, Any] = {
        "bootstrap_servers": where,
        "security_protocol": "SSL" if way == MUTUAL else "SASL_SSL",
        "ssl_context": create_ssl_context(
            cafile=secured.authority.certificate, **(keys if way == MUTUAL else {})
        ),
    }

    async def run() -> bytes | None:
        if way == OAUTHBEARER:
            common.update(sasl_mechanism=way, sasl_oauth_token_provider=Tokens())
        elif way != MUTUAL:
            common.update(sasl_mechanism=way, sasl_plain_username="alice")
            common["sasl_plain_password"] = PASSWORD
        producer = aiokafka.AIOKafkaProducer(**common)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"aiokafka")
        except KafkaConnectionError as error:
            raise Refused(str(error)) from None
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", **common
        )
        async with consumer:
            record = await consumer.getone()
        value: bytes | None = record.value
        return value

    return asyncio.run(asyncio.wait_for(run(), 2 * TIMEOUT_S))


def kcat(secured: Secured, way: str, where: str, topic: str) -> bytes | None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    properties = {**secured.properties(way), "debug": "security"}
    command = ["kcat", "-b", where, "-m", "10"]
    command += [each for item in properties.items() for each in ("-X", "=".join(item))]
    environment = {} if way != OAUTHBEARER else {"LD_LIBRARY_PATH": _newer_librdkafka(secured)}

    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*command, *arguments],
            input=stdin,
            env=environment or None,
            capture_output=True,
            timeout=3 * TIMEOUT_S,
            check=False,
        )

    listed = run("-L", "-t", topic)
    if listed.returncode:
        assert b"certificate verify failed" in listed.stderr, listed.stderr
        raise Refused(listed.stderr.decode())
    sent = run("-P", "-t", topic, stdin=b"kcat\n")
    assert sent.returncode == 0, sent.stderr
    read = run("-C", "-t", topic, "-o", "beginning", "-c", "1", "-q")
    assert read.returncode == 0, read.stderr
    return read.stdout.rstrip(b"\n")


def _newer_librdkafka(secured: Secured) -> str:
    """Return a directory with the library of confluent-kafka. Distributions build theirs without
    the HTTP client that fetches tokens."""
    import confluent_kafka

    found = list(Path(confluent_kafka.__file__).parent.with_suffix(".libs").glob("librdkafka-*"))
    if not found:
        pytest.skip("confluent-kafka has no library of its own")
    directory = Path(secured.own.key).parent / "lib"
    directory.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (directory / "librdkafka.so.1").symlink_to(found[0])
    return str(directory)


CLIENTS: dict[str, Client] = {
    "ours": ours,
    "confluent": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kcat": kcat,
}
by_all_ways = pytest.mark.parametrize("way", WAYS)
by_all_clients = pytest.mark.parametrize("client", CLIENTS)


def listener(way: str) -> str:
    return "SSL" if way == MUTUAL else "SASL_SSL"


@by_all_ways
@by_all_clients
def test_a_client_produces_and_consumes(secured: Secured, client: str, way: str) -> None:
    topic = f"{client}-{way}".replace(" ", "-")
    where = address(secured.broker, listener(way))
    assert CLIENTS[client](secured, way, where, topic) == client.encode()


@by_all_ways
@by_all_clients
def test_a_client_does_not_talk_to_a_broker_in_the_middle(
    secured: Secured, client: str, way: str
) -> None:
    """The settings are those with which the client connects to the right broker."""
    server = secured.in_the_middle.broker.server
    failed = server.handshakes_failed
    with pytest.raises(Refused):
        CLIENTS[client](secured, way, address(secured.in_the_middle, listener(way)), "t")
    eventually(lambda: server.handshakes_failed > failed)
    assert server.requests == server.authentications_failed == server.authentications_succeeded == 0

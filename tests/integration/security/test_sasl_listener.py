"""SASL listeners with real clients: who gets in, who does not, and the reasons they get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.integration.security.sasl_broker import (
    MECHANISMS,
    PASSWORDS,
    TIMEOUT_S,
    add_users,
    address,
    profile,
    sasl_properties,
)

from ottla import Consumer, Producer
from ottla.client.errors import AuthenticationFailed, ClientError
from ottla.testing.broker_thread import BrokerThread

REFUSED = {
    "PLAIN": "Authentication failed: Invalid username or password",
    "SCRAM-SHA-256": "Authentication failed during authentication due to invalid credentials with "
    "SASL mechanism SCRAM-SHA-256",
    "SCRAM-SHA-512": "Authentication failed during authentication due to invalid credentials with "
    "SASL mechanism SCRAM-SHA-512",
}
USERS = [(user, mechanism) for user in PASSWORDS for mechanism in MECHANISMS]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=sasl_properties()) as broker:
        add_users(broker)
        yield broker


@pytest.mark.parametrize(("user", "mechanism"), USERS)
def test_our_clients_authenticate(broker: BrokerThread, user: str, mechanism: str) -> None:
    topic = f"ours-{mechanism}-{len(user)}"
    secured = profile(user, mechanism)
    with Producer(address(broker), profile=secured) as producer:
        producer.send(topic, b"v").result(TIMEOUT_S)
    with Consumer(
        address(broker), profile=secured, group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        found = []
        while not found:
            found = consumer.poll(timeout_s=TIMEOUT_S)
    assert [each.value for each in found] == [b"v"]


@pytest.mark.parametrize(("user", "mechanism"), USERS)
def test_confluent_kafka_authenticates(broker: BrokerThread, user: str, mechanism: str) -> None:
    import confluent_kafka

    common = {"bootstrap.servers": address(broker), **profile(user, mechanism)}
    producer = confluent_kafka.Producer(common)
    producer.produce("confluent", b"v")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(
        {**common, "group.id": f"{user}-{mechanism}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["confluent"])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"v"


@pytest.mark.parametrize(
    ("user", "mechanism"), [each for each in USERS if each[0] != "we=i,rd"]
)  # kafka-python does not escape user names in SCRAM messages
def test_kafka_python_authenticates(broker: BrokerThread, user: str, mechanism: str) -> None:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=address(broker),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=PASSWORDS[user],
    )
    try:
        assert producer.send("kafka-python", b"v").get(TIMEOUT_S).offset >= 0
    finally:
        producer.close()


@pytest.mark.parametrize(("user", "mechanism"), USERS)
def test_aiokafka_authenticates(broker: BrokerThread, user: str, mechanism: str) -> None:
    import aiokafka

    async def send() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address(broker),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=PASSWORDS[user],
        )
        await producer.start()
        try:
            sent = await producer.send_and_wait("aiokafka", b"v")
            return int(sent.offset)
        finally:
            await producer.stop()

    assert asyncio.run(asyncio.wait_for(send(), TIMEOUT_S)) >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "guess"), ("nobody", "guess")])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    broker: BrokerThread, mechanism: str, user: str, password: str
) -> None:
    with (
        pytest.raises(AuthenticationFailed) as caught,
        Producer(address(broker), profile=profile(user, mechanism, password)),
    ):
        pass
    assert str(caught.value).endswith(f"rejected the credentials: {REFUSED[mechanism]}")


def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are() -> None:
    with (
        BrokerThread(overrides=sasl_properties(sasl__enabled__mechanisms="PLAIN")) as broker,
        pytest.raises(AuthenticationFailed, match=r"SCRAM-SHA-512; it supports PLAIN$"),
        Producer(address(broker), profile=profile("alice", "SCRAM-SHA-512")),
    ):
        pass


def test_a_client_without_sasl_is_not_served(
    broker: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ClientError), Producer(address(broker), max_block_ms=3_000):
        pass
    assert "the client sent METADATA before it was authenticated" in caplog.text


def test_sasl_on_a_plaintext_listener_is_an_illegal_state(broker: BrokerThread) -> None:
    with (
        pytest.raises(AuthenticationFailed),
        Producer(address(broker, "PLAINTEXT"), profile=profile("alice", "PLAIN")),
    ):
        pass

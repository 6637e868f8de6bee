"""Our clients with a broker that limits the lifetime of sessions (KIP-368)."""

from __future__ import annotations

import time

import pytest
from tests.integration.security.sasl_broker import (
    MECHANISMS,
    TIMEOUT_S,
    add_users,
    address,
    profile,
    sasl_properties,
)

from ottla import Consumer, Producer, TopicPartition
from ottla.testing.broker_thread import BrokerThread

LIFETIME_MS = 4_000
"""A tenth of it is the time that a busy machine has to renew a session."""
RENEWALS = 2


@pytest.mark.parametrize("mechanism", MECHANISMS[:2])
def test_clients_authenticate_again_without_losing_a_record(mechanism: str) -> None:
    properties = sasl_properties(connections__max__reauth__ms=str(LIFETIME_MS))
    secured = profile("alice", mechanism)
    sent = 0
    with BrokerThread(overrides=properties) as broker:
        add_users(broker)
        server = broker.broker.server
        deadline = time.monotonic() + TIMEOUT_S
        with Producer(address(broker), profile=secured, linger_ms=20) as producer:
            while server.reauthentications_succeeded < RENEWALS:
                assert time.monotonic() < deadline
                for each in [producer.send("t", b"%d" % (sent + number)) for number in range(10)]:
                    each.result(TIMEOUT_S)
                sent += 10
        with Consumer(address(broker), profile=secured) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            found: list[bytes | None] = []
            while len(found) < sent:
                found += [each.value for each in consumer.poll(timeout_s=TIMEOUT_S)]
        assert found == [b"%d" % number for number in range(sent)]
        assert server.reauthentications_failed == server.sessions_expired == 0

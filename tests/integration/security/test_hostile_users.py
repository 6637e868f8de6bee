"""Attempts of authenticated users to act for other users, with requests written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.security.sasl_broker import PASSWORDS, sasl_properties
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode
from ottla.testing.broker_thread import BrokerThread

FINAL_EPOCH = -1


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=sasl_properties()) as broker:
        yield broker


def log_in(broker: BrokerThread, user: str) -> RawClient:
    client = RawClient(broker.broker.ports["SASL_PLAINTEXT"])
    assert client.call(Api.SASL_HANDSHAKE, mechanism="PLAIN").error_code == ErrorCode.NONE
    token = f"\0{user}\0{PASSWORDS[user]}".encode()
    assert client.call(Api.SASL_AUTHENTICATE, auth_bytes=token).error_code == ErrorCode.NONE
    return client


# ------------------------------------------------------------------------------ fetch sessions


def fetch(client: RawClient, session_id: int, epoch: int, topic_id: bytes | None = None) -> Any:
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 1 << 20,
    }
    topics = [] if topic_id is None else [{"topic_id": topic_id, "partitions": [partition]}]
    return client.call(
        Api.FETCH,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
    )


def test_a_user_cannot_continue_the_fetch_session_of_another(broker: BrokerThread) -> None:
    with log_in(broker, "alice") as alice, log_in(broker, "bob") as bob:
        topic_id = alice.create_topic("private")
        session_id = fetch(alice, 0, 0, topic_id).session_id
        stolen = fetch(bob, session_id, 1, topic_id)
        assert stolen.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not stolen.responses
        assert fetch(alice, session_id, 1).error_code == ErrorCode.NONE


@pytest.mark.parametrize("epoch", [0, FINAL_EPOCH])
def test_a_user_cannot_close_the_fetch_session_of_another(broker: BrokerThread, epoch: int) -> None:
    with log_in(broker, "alice") as alice, log_in(broker, "bob") as bob:
        topic_id = alice.create_topic(f"private-{epoch}")
        session_id = fetch(alice, 0, 0, topic_id).session_id
        assert fetch(bob, session_id, epoch, topic_id).error_code == ErrorCode.NONE
        assert fetch(alice, session_id, 1).error_code == ErrorCode.NONE


def test_a_user_can_continue_a_fetch_session_on_another_connection(broker: BrokerThread) -> None:
    with log_in(broker, "alice") as one, log_in(broker, "alice") as other:
        session_id = fetch(one, 0, 0, one.create_topic("shared")).session_id
        assert fetch(other, session_id, 1).error_code == ErrorCode.NONE

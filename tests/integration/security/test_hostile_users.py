"""Attempts of authenticated users to act for other users, with requests written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.security.sasl_broker import PASSWORDS, plain_jaas, sasl_properties
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode
from ottla.testing.broker_thread import BrokerThread

FINAL_EPOCH = -1


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=sasl_properties(super__users="User:bob")) as broker:
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


# -------------------------------------------------------------------------- lasting privileges


def alter_user(client: RawClient, user: str) -> int:
    change = {
        "name": user,
        "mechanism": 1,
        "iterations": 4096,
        "salt": bytes(24),
        "salted_password": bytes(32),
    }
    answer = client.call(Api.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[change])
    return int(answer.results[0].error_code)


def alter_config(client: RawClient, kind: int, resource: str, name: str, value: str) -> int:
    config = {"name": name, "config_operation": 0, "value": value}
    changed = {"resource_type": kind, "resource_name": resource, "configs": [config]}
    answer = client.call(Api.INCREMENTAL_ALTER_CONFIGS, resources=[changed])
    return int(answer.responses[0].error_code)


def test_only_super_users_change_users(broker: BrokerThread) -> None:
    with log_in(broker, "alice") as alice, log_in(broker, "bob") as bob:
        for user in ("bob", "alice", "mallory"):
            assert alter_user(alice, user) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert alter_user(bob, user) == ErrorCode.NONE


@pytest.mark.parametrize("resource", ["1", ""])
def test_only_super_users_change_brokers(broker: BrokerThread, resource: str) -> None:
    change = (4, resource, "log.retention.ms", "3600000")
    with log_in(broker, "alice") as alice, log_in(broker, "bob") as bob:
        assert alter_config(alice, *change) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert alter_config(bob, *change) == ErrorCode.NONE
        replaced = {"resource_type": 4, "resource_name": resource, "configs": []}
        for client, code in (
            (alice, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            (bob, ErrorCode.NONE),
        ):
            answer = client.call(Api.ALTER_CONFIGS, resources=[replaced])
            assert answer.responses[0].error_code == code


def test_only_super_users_change_loggers(broker: BrokerThread) -> None:
    change = (8, "1", "ottla.broker.server", "INFO")
    with log_in(broker, "alice") as alice, log_in(broker, "bob") as bob:
        assert alter_config(alice, *change) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert alter_config(bob, *change) == ErrorCode.NONE


def test_every_user_changes_topics_in_a_request_that_also_names_a_broker(
    broker: BrokerThread,
) -> None:
    config = {"name": "retention.ms", "config_operation": 0, "value": "3600000"}
    with log_in(broker, "alice") as alice:
        alice.create_topic("kept")
        answer = alice.call(
            Api.INCREMENTAL_ALTER_CONFIGS,
            resources=[
                {"resource_type": 2, "resource_name": "kept", "configs": [config]},
                {"resource_type": 4, "resource_name": "1", "configs": [config]},
            ],
        )
        codes = {each.resource_name: each.error_code for each in answer.responses}
        assert codes == {"kept": 0, "1": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_clients_without_authentication_add_the_first_users(broker: BrokerThread) -> None:
    with RawClient(broker.broker.ports["PLAINTEXT"]) as client:
        assert alter_user(client, "carol") == ErrorCode.NONE
        assert alter_user(client, "ANONYMOUS") == ErrorCode.UNACCEPTABLE_CREDENTIAL


def test_nobody_authenticates_as_a_client_without_authentication() -> None:
    users = {"ANONYMOUS": "secret"}
    jaas = {"listener__name__sasl_plaintext__plain__sasl__jaas__config": plain_jaas(users)}
    with (
        BrokerThread(overrides=sasl_properties(**jaas)) as broker,
        RawClient(broker.broker.ports["SASL_PLAINTEXT"]) as client,
    ):
        client.call(Api.SASL_HANDSHAKE, mechanism="PLAIN")
        answer = client.call(Api.SASL_AUTHENTICATE, auth_bytes=b"\0ANONYMOUS\0secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

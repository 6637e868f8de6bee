"""Delegation tokens of a cluster: created at any broker, accepted by all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    start_zookeeper,
    wait_for,
)
from tests.integration.security.sasl_broker import plain_jaas
from tests.integration.security.test_delegation_tokens import with_token

from ottla import Admin
from ottla.base.errors import ErrorCode, UserError
from ottla.client.admin import DelegationToken
from ottla.client.errors import ClientError


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    home = tmp_path_factory.mktemp("tokens")
    try:
        zookeeper = start_zookeeper(home / "zookeeper")
    except UserError as error:
        pytest.skip(str(error))
    cluster = ClusterOfProcesses(
        home / "cluster",
        zookeeper.connect,
        listeners="PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        inter_broker_listener_name="PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        delegation_token_secret_key="secret of the cluster",
        super_users="User:bob",
    )
    jaas = plain_jaas({"alice": "alice-secret", "bob": "bob-secret"})
    for id in cluster.brokers:
        cluster.add(id, **{"listener.name.clients.plain.sasl.jaas.config": jaas})
    try:
        cluster.start()
        wait_for(cluster.is_healthy, "healthy cluster")
        yield cluster
    finally:
        cluster.close()
        zookeeper.kill()


def addresses(cluster: ClusterOfProcesses) -> list[str]:
    return [f"127.0.0.1:{each.ports['CLIENTS']}" for each in cluster.brokers.values()]


def profile(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def admits(address: str, token: DelegationToken) -> bool:
    """Return whether a client can log in to a broker with a token."""
    try:
        with Admin(address, profile=with_token(token)) as admin:
            return bool(admin.describe_cluster().nodes)
    except ClientError:
        return False


def test_a_token_created_at_any_broker_is_accepted_by_all(secured: ClusterOfProcesses) -> None:
    for address in addresses(secured):  # one of them is the controller
        with Admin(address, profile=profile("alice")) as admin:
            token = admin.create_delegation_token(renewers=["User:bob"])
            assert str(token.owner) == "User:alice"
            for other in addresses(secured):
                wait_for(lambda at=other, new=token: admits(at, new), "login at every broker")
            assert admin.renew_delegation_token(token.hmac) >= token.expiry_timestamp_ms
            admin.expire_delegation_token(token.hmac)
            for other in addresses(secured):
                wait_for(lambda at=other, old=token: not admits(at, old), "no login at any broker")


def test_the_controller_knows_the_client_that_asked(secured: ClusterOfProcesses) -> None:
    for address in addresses(secured):
        with (
            Admin(address, profile=profile("alice")) as alice,
            Admin(address, profile=profile("bob")) as bob,
        ):
            with pytest.raises(ClientError) as refused:
                alice.create_delegation_token(owner="User:bob")
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            token = bob.create_delegation_token(owner="User:alice")
            assert (str(token.owner), str(token.requester)) == ("User:alice", "User:bob")
        with Admin(address, profile=with_token(token)) as admin:
            with pytest.raises(ClientError) as refused:
                admin.create_delegation_token()
            assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_an_anonymous_client_gets_no_token_from_any_broker(secured: ClusterOfProcesses) -> None:
    for broker in secured.brokers.values():
        with (
            Admin(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as admin,
            pytest.raises(ClientError) as refused,
        ):
            admin.create_delegation_token()
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

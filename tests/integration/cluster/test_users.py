"""Users of a cluster: altered at any broker, known to all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, wait_for
from tests.raw_client import Api, RawClient

from ottla.base import scram
from ottla.base.config.broker import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.scram import new_credential
from ottla.broker.storage_format import format_storage, store_users
from ottla.client.admin import (
    Admin,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.errors import ClientError
from ottla.metadata.zookeeper.ensemble import EnsembleMember

SHA_512 = ScramMechanism.SCRAM_SHA_512
RESOURCE_NOT_FOUND = 91


def described(port: int, user: str) -> list[tuple[int, int]] | int:
    """Return what one broker knows about a user: the credentials, or an error code."""
    with RawClient(port) as client:
        answer = client.call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, users=[{"name": user}])
    (result,) = answer.results
    infos = [(each.mechanism, each.iterations) for each in result.credential_infos]
    return infos or int(result.error_code)


def wait_until_described(
    cluster: ClusterOfProcesses, user: str, expected: list[tuple[int, int]] | int
) -> None:
    """Wait until every broker describes a user like this."""

    def agree() -> bool:
        return all(described(each.port, user) == expected for each in cluster.brokers.values())

    wait_for(agree, f"{expected} for {user} at every broker")


def test_a_user_altered_at_any_broker_is_known_to_all(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    ports = [broker.port for broker in cluster.brokers.values()]
    for index, port in enumerate(ports):  # one of them is the controller
        user = f"{topic}/{index}"
        with RawClient(port) as client:
            new = {"name": user, "mechanism": 2, "iterations": 4096 + index}
            answer = client.call(
                Api.ALTER_USER_SCRAM_CREDENTIALS,
                upsertions=[{**new, "salt": b"salt", "salted_password": b"x" * 64}],
                deletions=[{"name": f"{user}-unknown", "mechanism": 1}],
            )
        codes = {each.user: each.error_code for each in answer.results}
        assert codes == {user: 0, f"{user}-unknown": RESOURCE_NOT_FOUND}
        wait_until_described(cluster, user, [(2, 4096 + index)])


def test_users_outlive_the_controller_and_restarts(cluster: ClusterOfProcesses, topic: str) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion(topic, SHA_512, "secret"),
            UserScramCredentialUpsertion(f"{topic}-removed", SHA_512, "secret"),
        )
        controller = cluster.brokers[cluster.controller()]
        controller.kill()
        admin.alter_user_scram_credentials(UserScramCredentialDeletion(f"{topic}-removed", SHA_512))
        cluster.heal()
        wait_until_described(cluster, topic, [(2, 4096)])
        wait_until_described(cluster, f"{topic}-removed", RESOURCE_NOT_FOUND)
        assert admin.describe_user_scram_credentials(topic) == {
            topic: [ScramCredentialInfo(SHA_512, 4096)]
        }


def test_no_broker_logs_credentials(cluster: ClusterOfProcesses, topic: str) -> None:
    with Admin(cluster.bootstrap) as admin:
        new = UserScramCredentialUpsertion(topic, SHA_512, "secret", salt=b"the-salt-of-the-user")
        admin.alter_user_scram_credentials(new)
        with pytest.raises(ClientError) as failure:
            admin.alter_user_scram_credentials(new, new)
        assert failure.value.code is ErrorCode.DUPLICATE_RESOURCE
    wait_until_described(cluster, topic, [(2, 4096)])
    for broker in cluster.brokers.values():
        assert "the-salt" not in broker.log()
        assert "dGhlLXNhbHQtb2YtdGhlLXVzZXI" not in broker.log()


def test_the_first_users_exist_before_the_first_broker(
    zookeeper: EnsembleMember, tmp_path: Path
) -> None:
    """Each broker's directory is formatted with the same users, as an installer would do."""
    cluster = ClusterOfProcesses(tmp_path, f"{zookeeper.connect}/formatted", count=2)
    cluster_id = "AAAAAAAAQACAAAAAAAAAAQ"
    credential = new_credential(scram.ScramMechanism.SHA_512, "secret", iterations=8192)
    users = {"admin": {scram.ScramMechanism.SHA_512: credential}}

    def config(id: int) -> BrokerConfig:
        broker = cluster.brokers[id]
        return BrokerConfig({**broker.overrides, "log.dirs": str(broker.data_dir)})

    async def format_both() -> list[str]:
        formatted = await asyncio.gather(
            *(format_storage(config(id), cluster_id, users) for id in cluster.brokers)
        )
        return [user for each in formatted for user in each.users]

    try:
        assert asyncio.run(format_both()) == ["admin"], "the second broker finds the user"
        cluster.start()
        wait_until_described(cluster, "admin", [(2, 8192)])
        later = {"admin": {}, "other": users["admin"]}
        stored = asyncio.run(store_users(config(1), later))  # while the brokers run
        assert stored == ["admin", "other"]
        wait_until_described(cluster, "other", [(2, 8192)])
        wait_until_described(cluster, "admin", RESOURCE_NOT_FOUND)
        described_cluster = cluster.admin.describe_cluster().result(10)
        assert described_cluster.cluster_id == cluster_id
    finally:
        cluster.close()

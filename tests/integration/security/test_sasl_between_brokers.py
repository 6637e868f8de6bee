"""A cluster whose brokers authenticate each other with SASL over TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client.certificates import Authority, needs_openssl
from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    start_zookeeper,
    wait_for,
)
from tests.integration.security.sasl_broker import PLAIN_MODULE

from ottla import (
    Admin,
    Consumer,
    Producer,
    ScramMechanism,
    TopicPartition,
    UserScramCredentialUpsertion,
)
from ottla.base.errors import ErrorCode, UserError
from ottla.base.jaas import SCRAM_MODULE
from ottla.metadata.zookeeper.ensemble import EnsembleMember
from ottla.net import sasl
from ottla.net.connection import Connection
from ottla.net.errors import ClientError
from ottla.wire import rpc

pytestmark = needs_openssl

TIMEOUT_S = 40.0
BROKER, ALICE = ("kafka", "broker-secret"), ("alice", "alice-secret")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sasl")


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture(scope="module")
def zookeeper(home: Path) -> Iterator[EnsembleMember]:
    try:
        member = start_zookeeper(home / "zookeeper")
    except UserError as error:
        pytest.skip(str(error))
    yield member
    member.kill()


def cluster_of(
    home: Path, zookeeper: EnsembleMember, authority: Authority, mechanism: str
) -> ClusterOfProcesses:
    own = authority.sign(f"broker-{mechanism}", "DNS:localhost,IP:127.0.0.1")
    store = home / f"{mechanism}.pem"
    store.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    (user, password), (alice, secret) = BROKER, ALICE
    module, users = (SCRAM_MODULE, "")
    if mechanism == "PLAIN":
        module, users = PLAIN_MODULE, f'user_{user}="{password}" user_{alice}="{secret}"'
    jaas = f'{module} required username="{user}" password="{password}" {users};'
    cluster = ClusterOfProcesses(
        home / mechanism,
        f"{zookeeper.connect}/{mechanism}",
        listeners="EXTERNAL://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        listener_security_protocol_map="INTERNAL:SASL_SSL,EXTERNAL:PLAINTEXT",
        inter_broker_listener_name="INTERNAL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(store),
        ssl_truststore_type="PEM",
        ssl_truststore_location=authority.certificate,
        sasl_enabled_mechanisms=mechanism,
        sasl_mechanism_inter_broker_protocol=mechanism,
        connections_max_reauth_ms="3000",
    )
    for id in cluster.brokers:
        cluster.add(id, **{f"listener.name.internal.{mechanism.lower()}.sasl.jaas.config": jaas})
    return cluster


def add_users(cluster: ClusterOfProcesses) -> None:
    """Add the SCRAM users. Until then brokers cannot log in to the controller to forward this."""

    def add() -> bool:
        with Admin(cluster.bootstrap) as admin:
            wanted = [
                UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, password)
                for user, password in (BROKER, ALICE)
            ]
            return bool(admin.alter_user_scram_credentials(*wanted))

    wait_for(add, "controller that adds the users")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_brokers_log_in_to_each_other(
    home: Path, zookeeper: EnsembleMember, authority: Authority, mechanism: str
) -> None:
    cluster = cluster_of(home, zookeeper, authority, mechanism)
    try:
        cluster.start()
        if mechanism != "PLAIN":
            add_users(cluster)
        wait_for(cluster.is_healthy, "healthy cluster")
        cluster.create_topic("t", partitions=1)
        with Producer(cluster.bootstrap, transactional_id="x") as producer:
            with producer.transaction():
                producer.send("t", b"before")
            cluster.brokers[cluster.leader("t")].kill()
            with producer.transaction():
                producer.send("t", b"after")
        with Consumer(cluster.bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [each.value for each in consumer.poll(timeout_s=TIMEOUT_S)]
        assert found == [b"before", b"after"]
        cluster.heal()
        check_strangers(cluster, authority, mechanism)
        logs = "".join(broker.log() for broker in cluster.brokers.values())
    finally:
        cluster.close()
    assert "Traceback" not in logs
    assert BROKER[1] not in logs
    assert "before its session ended" not in logs


def check_strangers(cluster: ClusterOfProcesses, authority: Authority, mechanism: str) -> None:
    """Check who is a broker on the listener for brokers, which has other clients, too."""
    port = next(iter(cluster.brokers.values())).ports["INTERNAL"]
    envelope = rpc.envelope(request_data=b"", request_principal=None, client_host_address=b"")
    markers = rpc.write_txn_markers(
        markers=[{"producer_id": 7, "topics": [{"name": "no", "partition_indexes": [0]}]}]
    )

    async def codes(user: str, password: str) -> tuple[int, int]:
        connection = await open_as(port, authority, mechanism, user, password)
        try:
            forged: Any = await connection.request(envelope, TIMEOUT_S)
            written: Any = await connection.request(markers, TIMEOUT_S)
        finally:
            connection.close()
        return forged.error_code, written.markers[0].topics[0].partitions[0].error_code

    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asyncio.run(codes(*ALICE)) == (refused, refused)
    assert asyncio.run(codes(*BROKER)) == (
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    with pytest.raises(ClientError, match="rejected the credentials"):
        asyncio.run(codes(BROKER[0], "wrong"))


async def open_as(
    port: int, authority: Authority, mechanism: str, user: str, password: str
) -> Connection:
    plain = sasl.Plain(user, password)
    login = plain if mechanism == "PLAIN" else sasl.Scram(mechanism, user, password)
    return await Connection.open(
        "localhost",
        port,
        timeout_s=TIMEOUT_S,
        tls=ssl.create_default_context(cafile=authority.certificate),
        authenticate=sasl.authenticator(login, TIMEOUT_S),
    )

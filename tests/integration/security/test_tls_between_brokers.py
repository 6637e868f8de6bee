"""Replication, failover and transactions of a cluster whose brokers connect with TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, needs_openssl
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, start_zookeeper

from ottla import Admin, ConfigResource, Consumer, Producer, ResourceType, TopicPartition
from ottla.base.errors import ErrorCode, UserError
from ottla.client.errors import ClientError

TIMEOUT_S = 40.0


def alter_stores(
    cluster: ClusterOfProcesses, bootstrap: str, profile: dict[str, str], directory: Path
) -> None:
    """Change the key store of every broker. Each checks the file, also if it has to forward the
    request to the controller."""
    name = "listener.name.ssl.ssl.keystore.location"
    renewed, missing = directory / "renewed.pem", directory / "missing.pem"
    renewed.write_text((directory / "broker.pem").read_text())
    with Admin(bootstrap, profile=profile) as admin:
        for id, broker in cluster.brokers.items():
            resource = ConfigResource(ResourceType.BROKER, str(id))
            with pytest.raises(ClientError, match=r"missing\.pem cannot be used") as raised:
                admin.alter_configs({resource: {name: str(missing)}})
            assert raised.value.code == ErrorCode.INVALID_REQUEST
            assert name not in admin.describe_configs(resource)[resource]
            admin.alter_configs({resource: {name: str(renewed)}})
            broker.wait_for_log("listener SSL uses changed TLS certificates")


@needs_openssl
def test_brokers_replicate_and_fail_over_through_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("broker", "DNS:localhost,IP:127.0.0.1")
    store = tmp_path / "broker.pem"
    store.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    try:
        zookeeper = start_zookeeper(tmp_path / "zookeeper")
    except UserError as error:
        pytest.skip(str(error))
    cluster = ClusterOfProcesses(
        tmp_path / "cluster",
        zookeeper.connect,
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        security_inter_broker_protocol="SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(store),
        ssl_truststore_type="PEM",
        ssl_truststore_location=authority.certificate,
        ssl_client_auth="required",
    )
    profile = {
        "security.protocol": "SSL",
        "ssl.ca.location": authority.certificate,
        "ssl.certificate.location": own.certificate,
        "ssl.key.location": own.key,
    }
    try:
        cluster.start()
        secured = ",".join(f"127.0.0.1:{each.ports['SSL']}" for each in cluster.brokers.values())
        alter_stores(cluster, secured, profile, tmp_path)
        cluster.create_topic("t", partitions=1)
        with Producer(secured, profile=profile, transactional_id="x") as producer:
            with producer.transaction():
                producer.send("t", b"before")
            cluster.brokers[cluster.leader("t")].kill()
            with producer.transaction():
                producer.send("t", b"after")
        with Consumer(secured, profile=profile, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [each.value for each in consumer.poll(timeout_s=TIMEOUT_S)]
        assert found == [b"before", b"after"]
    finally:
        cluster.close()
        zookeeper.kill()

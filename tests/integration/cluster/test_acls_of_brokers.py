"""Brokers of a cluster with an authorizer, in which nobody may do anything without an ACL.

The brokers are super users, or each has a user of its own, which may do CLUSTER_ACTION only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.integration.cluster.cluster_of_processes import (
    TIMEOUT_S,
    ClusterOfProcesses,
    start_zookeeper,
    wait_for,
)
from tests.integration.security.acl_broker import (
    PASSWORDS,
    acl,
    acl_properties,
    create_acls,
    described,
    log_in,
)
from tests.integration.security.sasl_broker import plain_jaas
from tests.raw_client import Api, RawClient

from ottla.base.acl import AclBinding, AclOperation, PatternType
from ottla.base.errors import ErrorCode as E
from ottla.base.errors import UserError
from ottla.core.security.permissions import (
    ACT_AS_BROKER,
    CREATE_TOPIC,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)

SUPER_USERS, CLUSTER_ACTION = "super users", "CLUSTER_ACTION"
BROKERS = (1, 2, 3)
MINE = "mine-"
"""Beginning of the names of topics, groups and transactional IDs of alice."""


def properties(id: int, brokers: str) -> dict[str, str]:
    if brokers == SUPER_USERS:
        return acl_properties("SECURED")
    users = PASSWORDS | {f"broker-{each}": "secret" for each in BROKERS}
    login = f' required username="broker-{id}" password="secret" '
    jaas = plain_jaas(users).replace(" required ", login)
    return acl_properties("SECURED") | {"listener.name.secured.plain.sasl.jaas.config": jaas}


@pytest.fixture(scope="module", params=[SUPER_USERS, CLUSTER_ACTION])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterOfProcesses]:
    home = tmp_path_factory.mktemp("acls-of-brokers")
    try:
        zookeeper = start_zookeeper(home / "zookeeper")
    except UserError as error:
        pytest.skip(str(error))
    cluster = ClusterOfProcesses(home / "cluster", zookeeper.connect, len(BROKERS))
    cluster.client_settings = login("admin")
    for id in BROKERS:
        cluster.add(id, **properties(id, request.param))
    try:
        cluster.start()
        allow(cluster, request.param)
        yield cluster
    finally:
        cluster.close()
        zookeeper.kill()


def login(user: str) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


def allow(cluster: ClusterOfProcesses, brokers: str) -> None:
    """Create all ACLs at the controller: the other brokers may not forward anything yet."""
    bindings: list[AclBinding] = [
        acl(each, MINE, pattern=PatternType.PREFIXED, operation=AclOperation.ALL)
        for each in (READ_TOPIC, READ_GROUP, WRITE_TRANSACTIONAL_ID)
    ]
    if brokers == CLUSTER_ACTION:
        bindings += [acl(ACT_AS_BROKER, principal=f"User:broker-{each}") for each in BROKERS]
    with connect(cluster, cluster.controller(), "admin") as admin:
        create_acls(admin, *bindings)
    for id in BROKERS:
        with connect(cluster, id, "admin") as admin:
            wait_for(lambda a=admin: set(bindings) <= described(a), "ACLs at every broker")


def connect(cluster: ClusterOfProcesses, id: int, user: str) -> RawClient:
    return log_in(cluster.brokers[id].ports["SECURED"], user)


def settings(cluster: ClusterOfProcesses, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "log_level": 0,
        **login("alice"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def produce(cluster: ClusterOfProcesses, topic: str, *values: bytes) -> None:
    producer = Producer(settings(cluster, acks="all"))
    failures: list[Any] = []
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda e, _: failures.append(e) if e else None
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures


def wait_until_in_sync(cluster: ClusterOfProcesses, topic: str, *replicas: int) -> None:
    def is_in_sync() -> bool:
        view = cluster.partitions(topic)[0]
        return view.replicas == replicas and sorted(view.isr) == sorted(replicas)

    wait_for(is_in_sync, f"replicas {replicas} of {topic} in sync")


def values_of(cluster: ClusterOfProcesses, topic: str) -> list[bytes]:
    return cluster.read_all(topic)[0]


def test_topics_are_created_automatically_by_the_permissions_of_the_client(
    cluster: ClusterOfProcesses,
) -> None:
    names = {id: f"hers-{id}" for id in BROKERS}
    with connect(cluster, cluster.controller(), "admin") as admin:
        bob = "User:bob"
        create_acls(admin, *(acl(DESCRIBE_TOPIC, each, principal=bob) for each in names.values()))
        for id, name in names.items():  # one of them is the controller
            with connect(cluster, id, "bob") as client:
                wait_for(lambda c=client, n=name: ask_for(c, n, False) == 3, "ACL")
                assert ask_for(client, name, True) == E.TOPIC_AUTHORIZATION_FAILED
                create_acls(admin, acl(CREATE_TOPIC, name, principal=bob))
                wait_for(lambda c=client, n=name: ask_for(c, n, True) == 0, "topic")


def ask_for(client: RawClient, topic: str, create: bool) -> int:
    answer = client.call(Api.METADATA, topics=[{"name": topic}], allow_auto_topic_creation=create)
    return int(answer.topics[0].error_code)


def test_requests_with_denied_parts_are_forwarded(cluster: ClusterOfProcesses) -> None:
    for id in BROKERS:  # one of them is the controller
        names = f"theirs-{id}", f"{MINE}forwarded-{id}"
        topics = [
            {"name": each, "num_partitions": 1, "replication_factor": 3, "configs": []}
            for each in names
        ]
        with connect(cluster, id, "alice") as alice:
            answer = alice.call(Api.CREATE_TOPICS, topics=topics, timeout_ms=20_000)
        found = {each.name: each.error_code for each in answer.topics}
        assert found == {names[0]: E.TOPIC_AUTHORIZATION_FAILED, names[1]: 0}


def test_every_broker_alters_its_own_loggers(cluster: ClusterOfProcesses) -> None:
    change = {"name": "kafka.authorizer.logger", "config_operation": 0, "value": "INFO"}
    for id in BROKERS:  # one of them is the controller
        resource = {"resource_type": 8, "resource_name": str(id), "configs": [change]}
        with connect(cluster, id, "admin") as admin:
            answer = admin.call(
                Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
            )
        assert answer.responses[0].error_code == 0, answer


def test_records_are_replicated_and_survive_their_leader(cluster: ClusterOfProcesses) -> None:
    topic = f"{MINE}failover"
    cluster.create_topic(topic)
    replicas = cluster.partitions(topic)[0].replicas
    produce(cluster, topic, b"before")
    wait_until_in_sync(cluster, topic, *replicas)
    killed = cluster.leader(topic)
    cluster.brokers[killed].kill()
    wait_for(lambda: cluster.leader(topic) != killed, "another leader")
    produce(cluster, topic, b"between")
    cluster.start()
    wait_until_in_sync(cluster, topic, *replicas)
    produce(cluster, topic, b"after")
    assert values_of(cluster, topic) == [b"before", b"between", b"after"]


def test_a_new_follower_starts_where_records_were_deleted(cluster: ClusterOfProcesses) -> None:
    # It asks the leader for the log start offset with ListOffsets.
    topic = f"{MINE}moved"
    cluster.create_topic(topic, replicas=1, min_insync_replicas="1")
    produce(cluster, topic, b"deleted", b"kept")  # in one batch
    leader = cluster.leader(topic)
    with connect(cluster, leader, "alice") as alice:
        partition = {"partition_index": 0, "offset": 1}
        topics = [{"name": topic, "partitions": [partition]}]
        answer = alice.call(Api.DELETE_RECORDS, topics=topics, timeout_ms=10_000)
        assert answer.topics[0].partitions[0].low_watermark == 1
    target = next(id for id in BROKERS if id != leader)
    with connect(cluster, target, "admin") as admin:
        moved = {"partition_index": 0, "replicas": [target]}
        topics = [{"name": topic, "partitions": [moved]}]
        answer = admin.call(Api.ALTER_PARTITION_REASSIGNMENTS, topics=topics, timeout_ms=20_000)
        assert answer.responses[0].partitions[0].error_code == 0
    wait_until_in_sync(cluster, topic, target)
    wait_for(lambda: cluster.leads(topic, 0, target), "the new replica as leader")
    produce(cluster, topic, b"more")
    assert values_of(cluster, topic) == [b"kept", b"more"]


def test_groups_and_transactions_work(cluster: ClusterOfProcesses) -> None:
    source, sink = f"{MINE}source", f"{MINE}sink"
    for each in (source, sink):
        cluster.create_topic(each, partitions=1)
    produce(cluster, source, b"1", b"2", b"3")
    group = {"group_id": f"{MINE}group", "auto_offset_reset": "earliest"}
    consumer = Consumer(settings(cluster, **group, enable_auto_commit=False))
    producer = Producer(settings(cluster, transactional_id=f"{MINE}copier"))
    try:
        consumer.subscribe([source])
        producer.init_transactions(TIMEOUT_S)
        copied = 0
        while copied < 3:
            messages = wait_for(lambda: consumer.consume(3, 1.0), "records")
            producer.begin_transaction()
            for each in messages:
                assert each.error() is None, each.error()
                producer.produce(sink, each.value(), partition=0)
                copied += 1
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(
                offsets, consumer.consumer_group_metadata(), TIMEOUT_S
            )
            producer.commit_transaction(TIMEOUT_S)
        committed = consumer.committed(consumer.assignment(), TIMEOUT_S)
        assert [each.offset for each in committed] == [3]
    finally:
        consumer.close()
    assert values_of(cluster, sink) == [b"1", b"2", b"3"]

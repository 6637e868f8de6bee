"""ACLs of a cluster: a revocation reaches open connections to every broker at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    start_zookeeper,
    wait_for,
)
from tests.integration.security.acl_broker import (
    acl,
    acl_properties,
    create_acls,
    delete_acls,
    described,
    fetch_request,
    log_in,
)
from tests.raw_client import Api, RawClient, newest

from ottla.base.errors import ErrorCode as E
from ottla.base.errors import UserError
from ottla.core.security.permissions import READ_TOPIC, WRITE_TOPIC

TOPIC = "shared"
PARTITIONS = 3
RECORDS = [(b"k", b"v", (), 1_000)]
BUSY_MACHINE_S = 5.0
"""Time limit for a revocation on a machine that runs other tests, too. It takes effect within a
tenth of a second on an idle one."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    home = tmp_path_factory.mktemp("acls")
    try:
        zookeeper = start_zookeeper(home / "zookeeper")
    except UserError as error:
        pytest.skip(str(error))
    cluster = ClusterOfProcesses(home / "cluster", zookeeper.connect)
    for id in cluster.brokers:
        cluster.add(id, **acl_properties("SECURED"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        zookeeper.kill()


def ports(cluster: ClusterOfProcesses) -> list[int]:
    return [each.ports["SECURED"] for each in cluster.brokers.values()]


@pytest.fixture
def admin(cluster: ClusterOfProcesses) -> Iterator[RawClient]:
    with log_in(ports(cluster)[0], "admin") as admin:
        yield admin


def create_topic(client: RawClient, name: str, **more: int) -> int:
    wanted = {"name": name, "num_partitions": PARTITIONS, "replication_factor": 3, "configs": []}
    answer = client.call(Api.CREATE_TOPICS, topics=[{**wanted, **more}], timeout_ms=20_000)
    return int(answer.topics[0].error_code)


def test_acls_created_at_any_broker_apply_at_all_of_them(
    cluster: ClusterOfProcesses, admin: RawClient
) -> None:
    for number, port in enumerate(ports(cluster)):  # one of them is the controller
        binding = acl(READ_TOPIC, f"topic-{number}")
        with log_in(port, "admin") as client:
            create_acls(client, binding)
        for other in ports(cluster):
            with log_in(other, "admin") as client:
                wait_for(lambda c=client, b=binding: b in described(c), "ACL at every broker")
        with log_in(port, "admin") as client:
            delete_acls(client, binding)


def leader_of(admin: RawClient, topic: str) -> dict[int, int]:
    """Return the leader of each partition, once each has one."""
    found: dict[int, int] = {}

    def has_leaders() -> bool:
        (described,) = admin.call(Api.METADATA, topics=[{"name": topic}]).topics
        found.update({each.partition_index: each.leader_id for each in described.partitions})
        return described.error_code == 0 and -1 not in found.values()

    wait_for(has_leaders, "leaders")
    return found


class StreamingConsumer:
    """A client that fetches a partition all the time, and notes when it is refused."""

    def __init__(self, port: int, topic_id: bytes, partition: int) -> None:
        self._client = log_in(port, "alice")
        request = dict(fetch_request(topic_id, session=(0, 0)))
        request["topics"][0]["partitions"][0]["partition"] = partition
        self._first = request
        self.refused_at: float | None = None
        self.is_streaming = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        answer = self._client.call(Api.FETCH, **self._first)
        session, epoch = answer.session_id, 1
        assert session
        while self.refused_at is None:
            waiting = fetch_request(session=(session, epoch), max_wait_ms=30_000, min_bytes=1)
            sent = self._client.send(Api.FETCH, newest(Api.FETCH), **waiting)
            self.is_streaming.set()
            answer = self._client.receive(Api.FETCH, newest(Api.FETCH), sent)
            codes = {each.error_code for topic in answer.responses for each in topic.partitions}
            if E.TOPIC_AUTHORIZATION_FAILED in codes:
                self.refused_at = time.monotonic()
            epoch += 1

    def join(self) -> None:
        self._thread.join(30)
        self._client.close()


def test_a_revocation_reaches_streaming_clients_of_every_broker(
    cluster: ClusterOfProcesses, admin: RawClient
) -> None:
    assert create_topic(admin, TOPIC) == 0
    leaders = leader_of(admin, TOPIC)
    assert len(set(leaders.values())) == PARTITIONS
    (described_topic,) = admin.call(Api.METADATA, topics=[{"name": TOPIC}]).topics
    may_read, may_write = acl(READ_TOPIC, TOPIC), acl(WRITE_TOPIC, TOPIC)
    create_acls(admin, may_read, may_write)
    at = {id: each.ports["SECURED"] for id, each in cluster.brokers.items()}
    producers = {partition: log_in(at[leader], "alice") for partition, leader in leaders.items()}
    for partition, producer in producers.items():
        wait_for(
            lambda p=producer, n=partition: p.produce(TOPIC, RECORDS, n).error_code == 0,
            "permission at every broker",
        )
    consumers = [
        StreamingConsumer(at[leader], described_topic.topic_id, partition)
        for partition, leader in leaders.items()
    ]
    for consumer in consumers:
        assert consumer.is_streaming.wait(20)
    for partition, producer in producers.items():
        assert producer.produce(TOPIC, RECORDS, partition).error_code == 0
    revoked_at = time.monotonic()
    delete_acls(admin, may_read, may_write)
    for consumer in consumers:
        consumer.join()
    times = [each.refused_at for each in consumers]
    assert all(each is not None and each - revoked_at < BUSY_MACHINE_S for each in times), times
    for partition, producer in producers.items():
        code = producer.produce(TOPIC, RECORDS, partition).error_code
        assert code == E.TOPIC_AUTHORIZATION_FAILED
        producer.close()


def test_a_forwarded_request_is_decided_by_the_permissions_of_its_client(
    cluster: ClusterOfProcesses,
) -> None:
    for port in ports(cluster):
        with log_in(port, "alice") as alice:
            assert alter_users(alice) == {E.CLUSTER_AUTHORIZATION_FAILED}


def alter_users(client: RawClient) -> set[int]:
    change = {"name": "eve", "mechanism": 1, "iterations": 4096}
    secrets = {"salt": bytes(24), "salted_password": bytes(32)}
    answer = client.call(
        Api.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[{**change, **secrets}]
    )
    return {each.error_code for each in answer.results}

"""Tests of starting a broker on a data directory that has logs but no Ottla metadata."""

from __future__ import annotations

import asyncio
import shutil
import struct
from pathlib import Path

import pytest

from ottla.base.acl import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.base.config.broker import BrokerConfig
from ottla.base.errors import UserError
from ottla.base.quota import QuotaEntity, QuotaKey
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.base.types import format_uuid
from ottla.broker.check import check
from ottla.core.security.authorizer import Resource
from ottla.metadata import tree
from ottla.testing.broker import EmbeddedBroker
from ottla.wire.records.builder import build_batch

CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
A_ID = bytes(range(16))


def kafka_directory(home: Path, *records: bytes, node_id: int = 7) -> Path:
    """Create a data directory as Apache Kafka leaves it, with a log of topic `a`."""
    home.mkdir()
    meta = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={node_id}\n"
    (home / "meta.properties").write_text(meta)
    log_directory = home / "a-0"
    log_directory.mkdir()
    (log_directory / "partition.metadata").write_text(
        f"version: 0\ntopic_id: {format_uuid(A_ID)}\n"
    )
    (log_directory / "leader-epoch-checkpoint").write_text("0\n1\n4 0\n")
    batch = build_batch([(b"key", b"value", (), 1_000)], leader_epoch=4)
    (log_directory / f"{0:020d}.log").write_bytes(batch)
    if records:
        metadata = home / "__cluster_metadata-0"
        metadata.mkdir()
        values = [(None, record, (), 0) for record in records]
        (metadata / f"{0:020d}.log").write_bytes(build_batch(values))
    return home


def text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


TOPIC = b"\x01\x02\x00" + text("a") + A_ID + b"\0"
PARTITION = (
    b"\x01\x03\x00" + bytes(4) + A_ID + b"\x02\0\0\0\x07" + b"\x02\0\0\0\x07" + b"\x01\x01"
    + b"\0\0\0\x07" + b"\0\0\0\x05" + bytes(4) + b"\0"
)  # fmt: skip
RETENTION = b"\x01\x04\x00\x02" + text("a") + text("retention.ms") + text("-1") + b"\0"
ADMIN = (
    b"\x01\x0b\x00" + text("admin") + b"\x01" + text("salt") + text("stored") + text("server")
    + (4096).to_bytes(4, "big") + b"\0"
)  # fmt: skip
ACL = (
    b"\x01\x12\x00"
    + A_ID
    + b"\x02"
    + text("orders")
    + b"\x03"
    + text("User:a")
    + text("*")
    + b"\3\3\0"
)
REMOVE_ACL = b"\x01\x13\x00" + A_ID + b"\0"
PRODUCER_IDS = b"\x01\x0f\x00" + bytes(12) + (5_000).to_bytes(8, "big") + b"\0"


def test_a_directory_of_kafkas_is_taken_over(tmp_path: Path) -> None:
    home = kafka_directory(tmp_path / "data", TOPIC, PARTITION, RETENTION, PRODUCER_IDS)

    async def scenario() -> None:
        async with EmbeddedBroker(home) as embedded:
            broker = embedded.broker
            assert (broker.node_id, broker.cluster_id) == (7, CLUSTER_ID)
            topic = broker.image.topics["a"]
            assert topic.topic_id == A_ID
            assert topic.configs == {"retention.ms": "-1"}
            partition = broker.partitions["a", 0]
            assert partition.log.log_end_offset == 1
            assert partition.leader_epoch == 6
            assert await broker.controller.allocate_producer_ids() == range(5_000, 6_000)

    asyncio.run(scenario())


def test_users_are_taken_over_also_without_any_topic(tmp_path: Path) -> None:
    home = kafka_directory(tmp_path / "data", TOPIC, ADMIN)
    shutil.rmtree(home / "a-0")

    async def scenario() -> None:
        for _ in range(2):
            async with EmbeddedBroker(home) as embedded:
                image = embedded.broker.image
                credential = image.scram_credential(ScramMechanism.SHA_256, "admin")
                assert credential == ScramCredential(b"salt", b"stored", b"server", 4096)
                assert not image.topics

    asyncio.run(scenario())


AUTHORIZER = {"authorizer.class.name": "ottla", "super.users": "User:admin"}
BINDING = AclBinding(
    AclResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:a",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


def test_acls_are_taken_over_once(tmp_path: Path) -> None:
    home = kafka_directory(tmp_path / "data", TOPIC, PARTITION, ADMIN, ACL)

    async def first_start() -> None:
        async with EmbeddedBroker(home, overrides=AUTHORIZER) as embedded:
            broker = embedded.broker
            assert list(broker.image.acls.bindings) == [BINDING]
            assert broker.authorization is not None
            asked = "127.0.0.1", AclOperation.READ, Resource(AclResourceType.TOPIC, "orders")
            assert broker.authorization.authorizer.is_allowed("User:a", *asked)
            assert not broker.authorization.authorizer.is_allowed("User:b", *asked)
            ops, checks = broker.image.acls.ops_to_remove([BINDING])
            await broker.controller.commit(ops, checks)

    async def start_again() -> None:  # Kafka's metadata still lists the ACL
        async with EmbeddedBroker(home, overrides=AUTHORIZER) as embedded:
            assert not embedded.broker.image.acls.bindings

    asyncio.run(first_start())
    asyncio.run(start_again())


def test_acls_in_a_snapshot_are_taken_over(tmp_path: Path) -> None:
    other_id = bytes(16)
    later = ACL.replace(A_ID, other_id).replace(text("orders"), text("refunds"))
    removal = REMOVE_ACL.replace(A_ID, other_id)
    home = kafka_directory(tmp_path / "data", TOPIC, PARTITION, later)
    log = home / "__cluster_metadata-0" / f"{0:020d}.log"
    values = [(None, record, (), 0) for record in (TOPIC, PARTITION, later, removal)]
    log.write_bytes(build_batch(values))
    snapshot = log.with_name(f"{3:020d}-{1:010d}.checkpoint")
    values = [(None, record, (), 0) for record in (TOPIC, PARTITION, ACL, later)]
    snapshot.write_bytes(build_batch(values))

    async def scenario() -> None:
        async with EmbeddedBroker(home, overrides=AUTHORIZER) as embedded:
            assert list(embedded.broker.image.acls.bindings) == [BINDING]

    asyncio.run(scenario())


def quota(key: str) -> bytes:
    entity = b"\x02" + text("user") + text("alice") + b"\0"
    return b"\x01\x0e\x00" + entity + text(key) + struct.pack(">d?", 1024.0, False) + b"\0"


def test_quotas_are_taken_over_once(tmp_path: Path) -> None:
    home = kafka_directory(tmp_path / "data", TOPIC, PARTITION, quota("producer_byte_rate"))
    alice = QuotaEntity("alice")

    async def first_start() -> None:
        async with EmbeddedBroker(home) as embedded:
            broker = embedded.broker
            assert broker.image.quotas == {alice: {QuotaKey.PRODUCER_BYTE_RATE: 1024.0}}
            await broker.controller.commit(tree.quota_ops(broker.image.quotas, {alice: {}}))

    async def start_again() -> None:
        async with EmbeddedBroker(home) as embedded:
            assert not embedded.broker.image.quotas

    asyncio.run(first_start())
    asyncio.run(start_again())


UNKNOWN_QUOTA = quota("disk_byte_rate")


@pytest.mark.parametrize(
    ("protection", "removal", "reason"),
    [
        (ACL, REMOVE_ACL, "1 ACL of Apache Kafka, but authorizer.class.name is not set"),
        (UNKNOWN_QUOTA, UNKNOWN_QUOTA[:-2] + b"\x01\0", "1 client quota of Apache Kafka"),
    ],
    ids=["ACL", "quota"],
)
def test_a_protected_directory_is_refused_and_left_unchanged(
    tmp_path: Path, protection: bytes, removal: bytes, reason: str
) -> None:
    home = kafka_directory(tmp_path / "data", TOPIC, PARTITION, ADMIN, protection)
    before = {path: path.read_bytes() for path in home.rglob("*.log")}

    async def start() -> None:
        async with EmbeddedBroker(home):
            pass

    for _ in range(2):
        with pytest.raises(UserError, match=reason):
            asyncio.run(start())
    assert before.items() <= {path: path.read_bytes() for path in home.rglob("*.log")}.items()
    findings = [each.text for each in check(BrokerConfig({"log.dirs": str(home)}))]
    assert any(reason in text for text in findings)

    log = home / "__cluster_metadata-0" / f"{0:020d}.log"
    records = TOPIC, PARTITION, ADMIN, protection, removal
    log.write_bytes(build_batch([(None, record, (), 0) for record in records]))
    asyncio.run(start())


def test_topics_that_were_adopted_and_deleted_stay_deleted(tmp_path: Path) -> None:
    home = kafka_directory(tmp_path / "data", TOPIC, PARTITION)

    async def delete() -> None:
        async with EmbeddedBroker(home) as embedded:
            topic = embedded.broker.image.topics["a"]
            revision = await embedded.broker.controller.commit(tree.delete_topic_ops(topic))
            assert revision > 0
        # Kafka's metadata still lists the topic, and an operator copies its log back.
        kafka_directory(tmp_path / "again")
        shutil.rmtree(home / "a-0", ignore_errors=True)
        shutil.copytree(tmp_path / "again" / "a-0", home / "a-0")

    async def start_again() -> None:
        async with EmbeddedBroker(home) as embedded:
            assert not embedded.broker.image.topics
        assert any(path.name.endswith("-stray") for path in home.iterdir())

    asyncio.run(delete())
    asyncio.run(start_again())


def test_a_start_that_failed_half_way_adopts_at_the_next(tmp_path: Path) -> None:
    home = kafka_directory(tmp_path / "data", TOPIC, PARTITION, RETENTION)
    taken = asyncio.run(_port_in_use(home))
    assert "in use" in taken
    assert (home / "ottla-metadata").exists()

    async def scenario() -> None:
        async with EmbeddedBroker(home) as embedded:
            assert embedded.broker.image.topics["a"].configs == {"retention.ms": "-1"}

    asyncio.run(scenario())


async def _port_in_use(home: Path) -> str:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    overrides = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    async with server:
        with pytest.raises(UserError) as caught:
            await EmbeddedBroker(home, overrides=overrides).__aenter__()
    return str(caught.value)


def test_an_ottla_that_lost_its_metadata_keeps_every_record(tmp_path: Path) -> None:
    home = kafka_directory(tmp_path / "data", node_id=1)

    async def scenario() -> None:
        async with EmbeddedBroker(home) as embedded:
            topic = embedded.broker.image.topics["a"]
            assert topic.topic_id == A_ID
            assert topic.configs == {"retention.ms": "-1", "retention.bytes": "-1"}
            assert embedded.broker.partitions["a", 0].leader_epoch == 5

    asyncio.run(scenario())


def test_a_node_id_that_is_not_the_directorys_is_refused(tmp_path: Path) -> None:
    home = kafka_directory(tmp_path / "data", TOPIC, PARTITION)

    async def scenario() -> None:
        with pytest.raises(UserError, match=r"belongs to node\.id 7, not 3"):
            await EmbeddedBroker(home, overrides={"node.id": "3"}).__aenter__()

    asyncio.run(scenario())

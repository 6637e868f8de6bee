from __future__ import annotations

import json

import pytest

from ottla.base.acl import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.base.config.broker import BrokerConfig
from ottla.base.metadata import Create
from ottla.base.quota import DEFAULT, QuotaEntity, QuotaKey
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.base.types import ZERO_UUID, TopicPartition
from ottla.broker.adoption import (
    FIRST_SAFE_PRODUCER_ID,
    RETAIN_FOREVER,
    Adoption,
    decide_adoption,
    protection_problem,
    with_node_id,
)
from ottla.broker.kraft_log import KraftMetadata
from ottla.metadata import tree
from ottla.metadata.kraft import KraftImage, KraftQuota, KraftTopic
from ottla.storage.log_dirs import DirectoryOwner, FoundLog

A_ID, B_ID = bytes(15) + b"a", bytes(15) + b"b"


def found_log(topic: str, partition: int, topic_id: bytes | None = None) -> FoundLog:
    return FoundLog(TopicPartition(topic, partition), topic_id, f"/data/{topic}-{partition}")


def kraft(*, is_certain: bool = True, **topics: tuple[bytes, dict[int, int]]) -> KraftMetadata:
    image = KraftImage()
    for name, (topic_id, epochs) in topics.items():
        image.topics[topic_id] = KraftTopic(name, epochs)
    return KraftMetadata(image, is_certain)


def decide(
    found: list[FoundLog],
    metadata: KraftMetadata | None,
    epochs: dict[str, int] | None = None,
    config: BrokerConfig | None = None,
) -> Adoption:
    latest = {log.path: -1 for log in found} | (epochs or {})
    return decide_adoption(found, latest, metadata, config or BrokerConfig())


def created(adoption: Adoption) -> dict[str, object]:
    creates = [op for op in adoption.ops if isinstance(op, Create)]
    assert len(creates) == len(adoption.ops)
    return {op.path: json.loads(op.value) for op in creates}


def test_a_topic_keeps_its_id_configs_and_partitions() -> None:
    metadata = kraft(a=(A_ID, {0: 3, 1: 0}))
    metadata.image.topic_configs["a"] = {"retention.ms": "77", "cleanup.policy": "compact,delete"}
    adoption = decide([found_log("a", 0, A_ID), found_log("a", 1, A_ID)], metadata)
    (topic,) = adoption.topics
    assert (topic.name, topic.topic_id, topic.partition_count) == ("a", A_ID, 2)
    assert topic.configs == {"retention.ms": "77", "cleanup.policy": "compact,delete"}
    assert adoption.notes == []


def test_leader_epochs_continue_after_the_latest_known_one() -> None:
    adoption = decide(
        [found_log("a", index, A_ID) for index in range(3)],
        kraft(a=(A_ID, {0: 3, 1: 0, 2: 5})),
        {"/data/a-0": 2, "/data/a-1": 9, "/data/a-2": 5},
    )
    assert adoption.topics[0].leader_epochs == (4, 10, 6)


def test_a_log_that_the_metadata_does_not_have_is_not_claimed() -> None:
    found = [
        found_log("deleted", 0, A_ID),
        found_log("recreated", 0, A_ID),
        found_log("b", 0, B_ID),
        found_log("b", 1, B_ID),
    ]
    metadata = kraft(recreated=(bytes(15) + b"c", {0: 0}), b=(B_ID, {0: 0}))
    adoption = decide(found, metadata)
    assert [(topic.name, topic.partition_count) for topic in adoption.topics] == [("b", 1)]


def test_a_log_without_an_id_is_known_by_its_name() -> None:
    adoption = decide([found_log("a", 0)], kraft(a=(A_ID, {0: 0})))
    assert adoption.topics[0].topic_id == A_ID


def test_partitions_that_are_elsewhere_begin_empty_and_are_named() -> None:
    adoption = decide([found_log("a", 1, A_ID)], kraft(a=(A_ID, {0: 4, 1: 0, 2: 0})))
    assert adoption.topics[0].leader_epochs == (5, 1, 1)
    (note,) = adoption.notes
    assert "[0, 2]" in note


def test_configs_that_we_do_not_have_are_named_and_left() -> None:
    metadata = kraft(a=(A_ID, {0: 0}))
    metadata.image.topic_configs["a"] = {
        "message.format.version": "2.8",
        "remote.storage.enable": "true",
        "segment.ms": "5000",
        "min.insync.replicas": "2",
    }
    adoption = decide([found_log("a", 0, A_ID)], metadata)
    assert adoption.topics[0].configs == {"segment.ms": "5000"}
    assert len(adoption.notes) == 3


def test_retention_that_cannot_be_read_deletes_nothing() -> None:
    metadata = kraft(a=(A_ID, {0: 0}))
    metadata.image.topic_configs["a"] = {"retention.ms": "soon", "segment.ms": "5000"}
    adoption = decide([found_log("a", 0, A_ID)], metadata)
    assert adoption.topics[0].configs == {**RETAIN_FOREVER, "segment.ms": "5000"}


def test_uncertain_metadata_deletes_nothing_that_is_not_known() -> None:
    metadata = kraft(is_certain=False, a=(A_ID, {0: 0}), b=(B_ID, {0: 0}))
    metadata.image.topic_configs["b"] = {"retention.ms": "5", "retention.bytes": "6"}
    adoption = decide([found_log("a", 0, A_ID), found_log("b", 0, B_ID)], metadata)
    assert [dict(topic.configs) for topic in adoption.topics] == [
        RETAIN_FOREVER,
        {"retention.ms": "5", "retention.bytes": "6"},
    ]
    assert any("cannot be read" in note for note in adoption.notes)


def test_without_metadata_nothing_is_deleted_and_no_producer_id_met_again() -> None:
    found = [found_log("a", 0, A_ID), found_log("a", 2, A_ID), found_log("old", 0)]
    adoption = decide(found, None, {"/data/a-0": 7})
    assert [(topic.name, topic.topic_id) for topic in adoption.topics] == [
        ("a", A_ID),
        ("old", ZERO_UUID),
    ]
    assert adoption.topics[0].leader_epochs == (8, 0, 0)
    assert all(topic.configs == RETAIN_FOREVER for topic in adoption.topics)
    assert created(adoption) == {tree.PRODUCER_IDS: {"next": FIRST_SAFE_PRODUCER_ID}}
    assert any("retention.ms" in note for note in adoption.notes)


def test_without_metadata_internal_topics_are_compacted_as_ever() -> None:
    adoption = decide([found_log("__consumer_offsets", 0, A_ID)], None)
    assert adoption.topics[0].configs["cleanup.policy"] == "compact"


def test_producer_ids_and_broker_configs_are_taken_over() -> None:
    metadata = kraft(a=(A_ID, {0: 0}))
    metadata.image.next_producer_id = 4000
    metadata.image.broker_configs.update(
        {
            "": {"log.retention.ms": "99", "min.insync.replicas": "2"},
            "1": {"log.cleaner.threads": "2", "listener.name.x.ssl.key": "y"},
            "8": {"log.retention.ms": "1"},
        }
    )
    adoption = decide([found_log("a", 0, A_ID)], metadata)
    assert created(adoption) == {
        tree.PRODUCER_IDS: {"next": 4000},
        tree.broker_config_path(""): {"log.retention.ms": "99"},
        tree.broker_config_path("1"): {"log.cleaner.threads": "2"},
    }
    assert len(adoption.notes) == 2


def test_what_is_left_behind_is_named() -> None:
    metadata = kraft(a=(A_ID, {0: 0}))
    metadata.image.other_records[10] += 1
    adoption = decide([found_log("a", 0, A_ID)], metadata)
    assert "delegation tokens" in adoption.notes[0]


def test_users_are_taken_over_unless_they_exist() -> None:
    metadata = kraft(a=(A_ID, {0: 0}))
    credentials = {ScramMechanism.SHA_512: ScramCredential(b"salt", b"stored", b"server", 4096)}
    metadata.image.scram.update({"admin": credentials, "al/ice": credentials})
    adoption = decide([found_log("a", 0, A_ID)], metadata)
    assert {tree.scram_path("admin"), tree.scram_path("al/ice")} <= created(adoption).keys()
    adoption = decide_adoption([], {}, metadata, BrokerConfig(), existing_users={"admin"})
    paths = [op.path for op in adoption.ops if op.path.startswith(tree.SCRAM)]
    assert paths == [tree.scram_path("al/ice")]


def acl(name: str) -> AclBinding:
    return AclBinding(
        AclResourceType.TOPIC,
        PatternType.LITERAL,
        name,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )


WITH_AUTHORIZER = BrokerConfig.from_properties({"authorizer.class.name": "ottla"})


def test_acls_are_taken_over_each_once() -> None:
    metadata = kraft()
    metadata.image.acls.update({b"1": acl("a"), b"2": acl("b"), b"3": acl("a")})
    assert protection_problem(metadata, WITH_AUTHORIZER) is None
    assert decide([], metadata, config=WITH_AUTHORIZER).acls == [acl("a"), acl("b")]


def test_a_directory_with_acls_needs_an_authorizer() -> None:
    metadata = kraft(a=(A_ID, {0: 0}))
    assert protection_problem(None, BrokerConfig()) is None
    assert protection_problem(metadata, BrokerConfig()) is None
    metadata.image.acls.update({b"1": acl("a"), b"2": acl("b")})
    problem = protection_problem(metadata, BrokerConfig())
    assert problem is not None
    assert "2 ACLs" in problem
    assert "authorizer.class.name is not set" in problem


def test_acls_that_cannot_be_read_are_refused_also_with_an_authorizer() -> None:
    metadata = kraft()
    metadata.image.acls.update({b"1": acl("a"), b"2": None})
    problem = protection_problem(metadata, WITH_AUTHORIZER)
    assert problem is not None
    assert "1 ACL of Apache Kafka that this version of Ottla cannot read" in problem
    assert "kafka-acls --remove" in problem


ALICE = (("user", "alice"),)


def test_quotas_are_taken_over_by_entity() -> None:
    metadata = kraft()
    metadata.image.quotas = {
        KraftQuota(ALICE, "producer_byte_rate"): 1024.0,
        KraftQuota(ALICE, "request_percentage"): 12.5,
        KraftQuota((("client-id", None), ("user", "alice")), "consumer_byte_rate"): 10.0,
        KraftQuota((("ip", None),), "connection_creation_rate"): 5.0,
    }
    assert protection_problem(metadata, BrokerConfig()) is None
    assert decide([], metadata).quotas == {
        QuotaEntity("alice"): {
            QuotaKey.PRODUCER_BYTE_RATE: 1024.0,
            QuotaKey.REQUEST_PERCENTAGE: 12.5,
        },
        QuotaEntity("alice", DEFAULT): {QuotaKey.CONSUMER_BYTE_RATE: 10.0},
        QuotaEntity(ip=DEFAULT): {QuotaKey.CONNECTION_CREATION_RATE: 5.0},
    }


@pytest.mark.parametrize(
    "quota",
    [
        KraftQuota(ALICE, "disk_byte_rate"),
        KraftQuota((("tenant", "a"),), "producer_byte_rate"),
        KraftQuota((("tenant", "a"), *ALICE), "producer_byte_rate"),
    ],
)
def test_quotas_that_are_not_known_are_refused(quota: KraftQuota) -> None:
    metadata = kraft()
    metadata.image.quotas[quota] = 1.0
    problem = protection_problem(metadata, WITH_AUTHORIZER)
    assert problem is not None
    assert "1 client quota of Apache Kafka that this version of Ottla does not know" in problem
    assert "kafka-configs --alter --delete-config" in problem


def test_uncertain_metadata_may_miss_acls() -> None:
    adoption = decide([found_log("a", 0, A_ID)], kraft(is_certain=False, a=(A_ID, {0: 0})))
    assert any("ACLs and quotas may be missing" in note for note in adoption.notes)


def test_a_broker_without_a_configured_id_takes_its_directorys() -> None:
    owner = DirectoryOwner("cluster", 7, "")
    assert with_node_id(BrokerConfig({"log.dirs": "/x"}), owner).node_id == 7
    assert with_node_id(BrokerConfig({"node.id": "3"}), owner).node_id == 3
    assert with_node_id(BrokerConfig({"broker.id": "3"}), owner).node_id == 3
    assert with_node_id(BrokerConfig(), None).node_id == BrokerConfig().node_id

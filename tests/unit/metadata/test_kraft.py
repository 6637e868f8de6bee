"""Tests of reading Apache Kafka's metadata records, as written by Kafka 4.3.1."""

from __future__ import annotations

import pytest

from ottla.base.acl import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.base.scram import ScramMechanism, derive_credential, salt_password
from ottla.metadata.kraft import UNREADABLE, KraftImage

CODECS_ID = bytes.fromhex("e10da77129aa452c9fbf61565dd1bbad")
TOPIC = bytes.fromhex("01020007636f64656373e10da77129aa452c9fbf61565dd1bbad00")
TOPIC_CONFIG = bytes.fromhex("0104000207636f646563730d726574656e74696f6e2e6d73032d3100")
BROKER_CONFIG = bytes.fromhex("0104000401146d696e2e696e73796e632e7265706c69636173023100")
PARTITIONS = [
    bytes.fromhex(
        f"0103020000000{index}e10da77129aa452c9fbf61565dd1bbad02000000070200000007010100000007"
        "00000000000000000228be867a7c914d85ae790fc0483872df00"
    )
    for index in range(2)
]
NO_LEADER_OF_1 = bytes.fromhex(
    "01050200000001e10da77129aa452c9fbf61565dd1bbad040001010104ffffffff0605020000000707050200000007"
)
PRODUCER_IDS = bytes.fromhex("010f0000000007000000000000000d00000000000003e800")
REMOVE_TOPIC = bytes.fromhex("010900e10da77129aa452c9fbf61565dd1bbad00")
ADMIN = bytes.fromhex(  # the password is admin-secret
    "010b000661646d696e021b3165776b7430616238726f37373862763530756a3733366633384178702793dc4bdbf836"
    "163bda6a85e68b789e38041fc85c0f17597a9727a85ab5f3cc0852312d2ce93ebea03bfa670f68955ddcd031aa0574"
    "606af00bd9e160c24172cd515ecac6026d6a1d52dad38b969eae3cc5f474800a17ab286183c55b6d58ea80f750c231"
    "a5084c40d55b7664be18452f42abad3e7b95bbe1134f1e01e1da0000100000"
)
BOB = bytes.fromhex(
    "010b0004626f6201193bef6aac42bdd7447a29770ac616aaf5c37a7475d0920696218eea55110fc063022bd02bb6397"
    "bd85d2109584d3e747277a31f63ef103d7dc52144c646c55c7b3400efb8e8219651290be2220ca15d2ae4125499848"
    "856d39b110000100000"
)
REMOVE_BOB = bytes.fromhex("01160004626f620100")
ACL_ID = bytes.fromhex("6d1837782966479f861ac275d39c7c1f")
ACL = bytes.fromhex(
    "0112006d1837782966479f861ac275d39c7c1f02076f7264657273030b557365723a616c696365022a030300"
)
REMOVE_ACL = bytes.fromhex("0113006d1837782966479f861ac275d39c7c1f00")
PREFIXED_DENIAL = bytes.fromhex(
    "01120007fb71f56d8d4489832644c43d43eaaa02047061790407557365723a2a0a3132372e302e302e31080200"
)
OF_GROUP = bytes.fromhex(
    "01120062ec030f2f144105aa6fbd75ff8c2b7a0305672fc3bc0309557365723a626f62022a030300"
)
OF_CLUSTER = bytes.fromhex(
    "0112007dba1cdce5a04af5b67130708c1ddfa3040e6b61666b612d636c7573746572030b557365723a6361726f6c"
    "022a050300"
)
QUOTAS = [
    bytes.fromhex(
        "010e0002057573657206616c6963650013726571756573745f70657263656e7461676540290000000000000000"
    ),
    bytes.fromhex(
        "010e0002057573657206616c696365001370726f64756365725f627974655f7261746541300000000000000000"
    ),
    bytes.fromhex(
        "010e00030a636c69656e742d69640000057573657206616c6963650013636f6e73756d65725f627974655f72"
        "617465409f4000000000000000"
    ),
    bytes.fromhex(
        "010e00020369700931302e302e302e310019636f6e6e656374696f6e5f6372656174696f6e5f7261746540140000"
        "000000000000"
    ),
]
ALICE = (("user", "alice"),)
REMOVE_QUOTA = bytes.fromhex(
    "010e0002057573657206616c6963650013726571756573745f70657263656e7461676500000000000000000100"
)
NO_OP = bytes.fromhex("01140000")
BEGIN, END, ABORT = (bytes([1, key, 0, 0]) for key in (23, 24, 25))


def image_of(*records: bytes) -> KraftImage:
    image = KraftImage()
    for record in records:
        image.apply(record)
    return image


def test_topics_partitions_and_configs_are_read() -> None:
    image = image_of(TOPIC, TOPIC_CONFIG, *PARTITIONS, BROKER_CONFIG, PRODUCER_IDS)
    assert image.topics[CODECS_ID].name == "codecs"
    assert image.topics[CODECS_ID].leader_epochs == {0: 0, 1: 0}
    assert image.topic_configs == {"codecs": {"retention.ms": "-1"}}
    assert image.broker_configs == {"": {"min.insync.replicas": "1"}}
    assert image.next_producer_id == 1000
    assert not image.broken_records


def test_a_change_of_the_leader_is_a_new_epoch() -> None:
    image = image_of(TOPIC, *PARTITIONS, NO_LEADER_OF_1)
    assert image.topics[CODECS_ID].leader_epochs == {0: 0, 1: 1}


def test_a_change_that_leaves_the_leader_is_no_new_epoch() -> None:
    isr_only = NO_LEADER_OF_1[:23] + bytes.fromhex("01000101")
    unchanged = NO_LEADER_OF_1[:23] + bytes.fromhex("010104fffffffe")
    image = image_of(TOPIC, *PARTITIONS, isr_only, unchanged)
    assert image.topics[CODECS_ID].leader_epochs == {0: 0, 1: 0}
    assert not image.broken_records


def test_a_removed_topic_leaves_no_configs_to_the_next_of_its_name() -> None:
    image = image_of(TOPIC, TOPIC_CONFIG, *PARTITIONS, REMOVE_TOPIC)
    assert not image.topics
    assert not image.topic_configs


def test_a_config_without_a_value_is_removed() -> None:
    removal = TOPIC_CONFIG[: TOPIC_CONFIG.index(b"\x03-1")] + bytes(2)
    image = image_of(TOPIC, TOPIC_CONFIG, removal)
    assert image.topic_configs == {"codecs": {}}
    assert not image.broken_records


def test_records_of_a_transaction_count_when_it_ends() -> None:
    assert CODECS_ID in image_of(BEGIN, TOPIC, END).topics
    assert not image_of(BEGIN, TOPIC).topics
    assert not image_of(BEGIN, TOPIC, ABORT).topics
    assert CODECS_ID in image_of(BEGIN, ABORT, TOPIC).topics


def test_the_password_of_a_user_still_matches() -> None:
    image = image_of(ADMIN, BOB)
    assert set(image.scram) == {"admin", "bob"}
    found = image.scram["admin"][ScramMechanism.SHA_512]
    salted = salt_password(ScramMechanism.SHA_512, "admin-secret", found.salt, 4096)
    assert found == derive_credential(ScramMechanism.SHA_512, salted, found.salt, 4096)
    assert set(image.scram["bob"]) == {ScramMechanism.SHA_256}
    assert not image.broken_records


def test_a_removed_user_is_gone() -> None:
    image = image_of(ADMIN, BOB, REMOVE_BOB, REMOVE_BOB)
    assert set(image.scram) == {"admin"}
    assert not image.broken_records


def test_a_user_with_an_unknown_mechanism_is_broken() -> None:
    unknown = ADMIN.replace(b"admin\x02", b"admin\x07")
    image = image_of(unknown, BOB)
    assert set(image.scram) == {"bob"}
    assert image.broken_records == 1


def test_acls_are_read_until_they_are_removed() -> None:
    binding = AclBinding(
        AclResourceType.TOPIC,
        PatternType.LITERAL,
        "orders",
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )
    assert image_of(ACL).acls == {ACL_ID: binding}
    assert not image_of(ACL, REMOVE_ACL).acls
    assert not image_of(BEGIN, ACL, ABORT).acls


def test_acls_of_every_kind_are_read() -> None:
    image = image_of(PREFIXED_DENIAL, OF_GROUP, OF_CLUSTER)
    assert list(image.acls.values()) == [
        AclBinding(
            *(AclResourceType.TOPIC, PatternType.PREFIXED, "pay", "User:*", "127.0.0.1"),
            *(AclOperation.DESCRIBE, AclPermission.DENY),
        ),
        AclBinding(
            *(AclResourceType.GROUP, PatternType.LITERAL, "g/ü", "User:bob", "*"),
            *(AclOperation.READ, AclPermission.ALLOW),
        ),
        AclBinding(
            *(AclResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster", "User:carol", "*"),
            *(AclOperation.CREATE, AclPermission.ALLOW),
        ),
    ]


def test_fields_of_a_later_version_of_acls_are_skipped() -> None:
    later = ACL[:2] + b"\x01" + ACL[3:-1] + b"\x01\x05\x02ab"
    assert image_of(later).acls == image_of(ACL).acls


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param((99, 3, 3, 3), id="unknown resource type"),
        pytest.param((1, 3, 3, 3), id="resource type ANY"),
        pytest.param((2, 2, 3, 3), id="pattern type MATCH"),
        pytest.param((2, 3, 77, 3), id="unknown operation"),
        pytest.param((2, 3, 1, 3), id="operation ANY"),
        pytest.param((2, 3, 3, 1), id="permission ANY"),
    ],
)
def test_an_acl_with_codes_that_are_not_known_is_remembered_until_it_is_removed(
    codes: tuple[int, int, int, int],
) -> None:
    kind, pattern, operation, permission = codes
    changed = bytearray(ACL)
    changed[19], changed[27], changed[41], changed[42] = kind, pattern, operation, permission
    image = image_of(bytes(changed))
    assert image.acls == {ACL_ID: None}
    assert image.broken_records == 1
    assert not image_of(bytes(changed), REMOVE_ACL).acls


@pytest.mark.parametrize("length", range(3, len(ACL) - 1))
def test_an_acl_that_cannot_be_read_is_still_an_acl(length: int) -> None:
    image = image_of(ACL[:length])
    assert image.acls == {ACL_ID if length >= 19 else UNREADABLE: None}
    assert image.broken_records == 1


def test_a_removal_that_cannot_be_read_leaves_the_acls_unknown() -> None:
    assert UNREADABLE in image_of(ACL, REMOVE_ACL[:9]).acls


def test_quotas_are_read_until_they_are_removed() -> None:
    image = image_of(*QUOTAS)
    assert image.quotas == {
        (ALICE, "request_percentage"): 12.5,
        (ALICE, "producer_byte_rate"): 1048576.0,
        ((("client-id", None), *ALICE), "consumer_byte_rate"): 2000.0,
        ((("ip", "10.0.0.1"),), "connection_creation_rate"): 5.0,
    }
    assert not image.broken_records
    assert (ALICE, "request_percentage") not in image_of(*QUOTAS, REMOVE_QUOTA).quotas
    assert not image_of(QUOTAS[0], REMOVE_QUOTA, REMOVE_QUOTA).quotas


def test_unknown_records_are_counted_and_do_no_harm() -> None:
    image = image_of(NO_OP, TOPIC, NO_OP, bytes([1, 99, 5]) + b"whatever")
    assert CODECS_ID in image.topics
    assert image.other_records == {20: 2, 99: 1}
    assert not image.broken_records


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x01",
        b"\x02" + TOPIC[1:],
        TOPIC[:10],
        b"\xff" * 20,
        PARTITIONS[0][:40],
        NO_LEADER_OF_1,  # refers to a topic that has not been created
        b"\x01\x02\x00\x03\xff\xfe" + CODECS_ID + b"\x00",
        bytes.fromhex("0104000200") + b"\x02a\x02b\x00",
        b"\x01\x04\x00\x02\xff\xff\xff\xff\x0f",
    ],
)
def test_a_record_that_does_not_parse_is_counted_and_skipped(record: bytes) -> None:
    image = image_of(record, TOPIC)
    assert image.broken_records == 1
    assert image.topics[CODECS_ID].name == "codecs"

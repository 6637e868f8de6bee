"""Tests of reading Apache Kafka's metadata records, as written by Kafka 4.3.1."""

from __future__ import annotations

import pytest

from ottla.base.scram import ScramMechanism, derive_credential, salt_password
from ottla.metadata.kraft import KraftImage

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


def test_acls_are_counted_until_they_are_removed() -> None:
    assert image_of(ACL).acls == {ACL_ID}
    assert not image_of(ACL, REMOVE_ACL).acls
    assert not image_of(BEGIN, ACL, ABORT).acls


def test_an_acl_that_cannot_be_read_is_still_an_acl() -> None:
    image = image_of(ACL[:9], REMOVE_ACL)
    assert image.acls
    assert image.broken_records == 1


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

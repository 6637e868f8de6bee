"""Tests that AlterConfigs and IncrementalAlterConfigs fail with Apache Kafka's error codes."""

from __future__ import annotations

import pytest

from ottla.base.config.alter import alter
from ottla.base.config.broker_table import BROKER
from ottla.base.config.definition import ConfigTable
from ottla.base.config.resource import AlterOp
from ottla.base.config.topic_table import TOPIC
from ottla.base.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = AlterOp
Operation = tuple[str, int, str | None]


def refused(
    table: ConfigTable, *operations: Operation, for_all_brokers: bool = False
) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as caught:
        alter(table, {}, operations, for_all_brokers=for_all_brokers)
    return caught.value.code, caught.value.message


def test_set_and_delete_change_only_what_they_name() -> None:
    current = {"retention.ms": "1", "segment.ms": "2"}
    after = alter(TOPIC, current, [("retention.ms", SET, "5"), ("segment.ms", DELETE, None)])
    assert after == {"retention.ms": "5"}
    assert current == {"retention.ms": "1", "segment.ms": "2"}


def test_replacing_all_is_altering_nothing() -> None:
    assert alter(TOPIC, {}, [("flush.ms", SET, "9")]) == {"flush.ms": "9"}


def test_append_adds_to_the_list_once() -> None:
    once = alter(TOPIC, {"cleanup.policy": "delete"}, [("cleanup.policy", APPEND, "compact")])
    assert once == {"cleanup.policy": "delete,compact"}
    assert alter(TOPIC, once, [("cleanup.policy", APPEND, "compact")]) == once


def test_append_and_subtract_start_from_the_default() -> None:
    assert alter(TOPIC, {}, [("cleanup.policy", APPEND, "compact")]) == {
        "cleanup.policy": "delete,compact"
    }
    assert alter(TOPIC, {}, [("cleanup.policy", SUBTRACT, "delete")]) == {"cleanup.policy": ""}


def test_append_takes_several_items() -> None:
    name = "leader.replication.throttled.replicas"
    assert alter(TOPIC, {name: "0:1"}, [(name, APPEND, "1:1,0:1, 2:1")]) == {name: "0:1,1:1,2:1"}


def test_subtract_removes_what_is_there() -> None:
    current = {"cleanup.policy": "compact,delete"}
    assert alter(TOPIC, current, [("cleanup.policy", SUBTRACT, "delete")]) == {
        "cleanup.policy": "compact"
    }


@pytest.mark.parametrize("op", [APPEND, SUBTRACT])
@pytest.mark.parametrize("table", [TOPIC, BROKER], ids=lambda table: table.kind)
def test_only_lists_can_be_appended_to(table: ConfigTable, op: AlterOp) -> None:
    for name in ("compression.type", "unheard.of"):
        code, message = refused(table, (name, op, "5"))
        assert code is ErrorCode.INVALID_CONFIG
        assert name in message
        assert op.name in message


@pytest.mark.parametrize("op", [SET, APPEND, SUBTRACT])
def test_null_is_no_value(op: AlterOp) -> None:
    code, message = refused(TOPIC, ("cleanup.policy", op, None))
    assert code is ErrorCode.INVALID_REQUEST
    assert "cleanup.policy" in message


def test_a_property_may_appear_once() -> None:
    code, _ = refused(TOPIC, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert code is ErrorCode.INVALID_REQUEST


def test_an_unknown_operation_is_refused() -> None:
    assert refused(TOPIC, ("retention.ms", 9, "1"))[0] is ErrorCode.INVALID_REQUEST


def test_an_unknown_topic_property_is_refused_but_may_be_deleted() -> None:
    code, message = refused(TOPIC, ("retention", SET, "1"))
    assert code is ErrorCode.INVALID_CONFIG
    assert message == "Unknown topic config name: retention; did you mean retention.ms?"
    assert alter(TOPIC, {}, [("retention", DELETE, None)]) == {}


def test_a_wrong_value_of_a_topic_is_an_invalid_config() -> None:
    assert refused(TOPIC, ("retention.ms", SET, "x"))[0] is ErrorCode.INVALID_CONFIG


def test_a_wrong_value_of_a_broker_is_an_invalid_request() -> None:
    assert refused(BROKER, ("message.max.bytes", SET, "-4"))[0] is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "name",
    ["num.partitions", "log.retention.hours", "listeners", "process.roles", "sasl.login.class"],
)
def test_what_a_broker_cannot_change_while_it_runs_is_refused(name: str) -> None:
    code, message = refused(BROKER, (name, SET, "5"))
    assert code is ErrorCode.INVALID_REQUEST
    assert message == f"{name} cannot be changed while the broker runs."


def test_a_read_only_property_may_be_deleted_where_it_is_not_set() -> None:
    assert alter(BROKER, {}, [("num.partitions", DELETE, None)]) == {}


def test_a_broker_property_may_change_for_one_and_for_all() -> None:
    operation = ("log.retention.ms", SET, "5")
    assert alter(BROKER, {}, [operation]) == {"log.retention.ms": "5"}
    assert alter(BROKER, {}, [operation], for_all_brokers=True) == {"log.retention.ms": "5"}


@pytest.mark.parametrize(
    "name", ["ssl.keystore.location", "listener.name.external.ssl.keystore.location"]
)
def test_certificates_may_change_for_one_broker_only(name: str) -> None:
    assert alter(BROKER, {}, [(name, SET, "/x")]) == {name: "/x"}
    with pytest.raises(KafkaError, match="only for one broker"):
        alter(BROKER, {}, [(name, SET, "/x")], for_all_brokers=True)


def test_a_broker_keeps_a_property_that_it_does_not_know() -> None:
    assert alter(BROKER, {}, [("unknown.thing", SET, "5")]) == {"unknown.thing": "5"}

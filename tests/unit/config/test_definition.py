"""Tests of parsing property values as Kafka does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.config.broker_table import BROKER
from ottla.base.config.definition import (
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    format_value,
    split_list,
)
from ottla.base.config.topic_table import TOPIC
from ottla.base.config.validator import Value


def parse(kind: ConfigType, text: str) -> Value:
    return ConfigKey("some.property", kind, None, "Doc.").parse(text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, " +5 ", 5),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.STRING, "  a b ", "a b"),
        (ConfigType.LIST, " a , b,a ", ["a", "b"]),
        (ConfigType.LIST, "  ", []),
        (ConfigType.PASSWORD, "secret", "secret"),
    ],
)
def test_text_is_read_as_kafka_reads_it(kind: ConfigType, text: str, value: Value) -> None:
    assert parse(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, ""),
        (ConfigType.INT, "9" * 5000),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "-9223372036854775809"),
        (ConfigType.DOUBLE, "NaN"),
        (ConfigType.DOUBLE, "x"),
        (ConfigType.LIST, "a,,b"),
        (ConfigType.LIST, "a,"),
    ],
)
def test_text_that_kafka_refuses_is_refused(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError):
        parse(kind, text)


def test_a_wrong_value_is_one_sentence_with_the_property_the_value_and_what_is_allowed() -> None:
    with pytest.raises(ConfigError) as caught:
        TOPIC["segment.bytes"].parse("14")
    assert str(caught.value) == (
        "Invalid value 14 for configuration segment.bytes: the value must be at least 1048576."
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("min.cleanable.dirty.ratio", "1.5"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.type", "GZIP"),
        ("message.timestamp.type", "createtime"),
        ("cleanup.policy", "Compact"),
        ("retention.ms", "-2"),
        ("leader.replication.throttled.replicas", "*,0:1"),
        ("leader.replication.throttled.replicas", "none"),
    ],
)
def test_validators_refuse_what_kafka_refuses(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        TOPIC[name].parse(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compression.gzip.level", "-1"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("retention.bytes", "-5"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
    ],
)
def test_validators_take_what_kafka_takes(name: str, text: str) -> None:
    TOPIC[name].parse(text)


def test_migration_policy_may_be_written_in_any_case() -> None:
    key = BROKER["group.consumer.migration.policy"]
    assert key.parse("Upgrade") == "Upgrade"
    with pytest.raises(ConfigError):
        key.parse("sideways")


def test_limits_by_host_are_pairs() -> None:
    key = BROKER["max.connections.per.ip.overrides"]
    for text in ("", "127.0.0.1:200", "a:1, ::1:2"):
        assert key.parse(text) == text
    for text in ("a", "a:", ":1", "a:x", "a:1,"):
        with pytest.raises(ConfigError, match="host:number pairs"):
            key.parse(text)


def test_all_wrong_values_and_unknown_names_are_found_at_once() -> None:
    parsed = TOPIC.parse({"segment.bytes": "x", "retention.ms": "y", "nope": "1", "flush.ms": "9"})
    assert [error.name for error in parsed.errors] == ["segment.bytes", "retention.ms"]
    assert parsed.unknown == ["nope"]
    assert parsed.values == {"flush.ms": 9}


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("log.retension.hours", "log.retention.hours"),
        ("NUM.PARTITIONS", "num.partitions"),
        ("auto.create.topic.enable", "auto.create.topics.enable"),
        ("zzzzzz", None),
    ],
)
def test_the_nearest_known_property_is_what_a_person_meant(typo: str, meant: str | None) -> None:
    assert BROKER.nearest(typo) == meant


def test_a_table_does_not_define_a_property_twice() -> None:
    key = ConfigKey("a", ConfigType.INT, 1, "Doc.")
    with pytest.raises(ValueError, match="defined twice"):
        ConfigTable("broker", [key, key])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (7, "7"),
        (["a", "b"], "a,b"),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (0.001, "0.001"),
        (-0.00025, "-2.5E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_values_are_written_as_java_writes_them(value: Value, text: str | None) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives_its_text_form(value: float) -> None:
    text = format_value(value)
    assert text is not None
    parsed = parse(ConfigType.DOUBLE, text)
    assert parsed == value
    assert math.copysign(1, parsed) == math.copysign(1, value)


@given(st.lists(st.text(st.characters(exclude_characters=",", exclude_categories=["Z", "C"]))))
def test_a_list_is_split_into_each_item_once(items: list[str]) -> None:
    items = [item for item in items if item]
    assert split_list(" , ".join(items)) == list(dict.fromkeys(items))

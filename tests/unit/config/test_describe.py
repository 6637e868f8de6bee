"""Tests that DescribeConfigs returns the values, sources and synonyms of Apache Kafka 4.3.

The broker and topic here were configured identically on Apache Kafka; the expected values are its
responses."""

from __future__ import annotations

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.broker_table import BROKER
from ottla.base.config.definition import ConfigType
from ottla.base.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from ottla.base.config.resource import ConfigSource
from ottla.base.config.topic_table import TOPIC

STATIC = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:29092",
    "log.dirs": "/data",
    "log.retention.hours": "24",
    "num.partitions": "3",
    "foo.bar": "1",
    "log.segment.bytes": "2000000",
    "log.cleanup.policy": " compact,delete",
}
DYNAMIC_DEFAULT = {"log.roll.ms": "3600000", "message.max.bytes": "2000000"}
DYNAMIC_BROKER = {
    "log.cleaner.threads": "2",
    "log.retention.ms": "9999",
    "log.cleanup.policy": "delete",
    "leader.replication.throttled.rate": "1000",
    "unknown.thing": "5",
}
TOPIC_1, BROKER_2, DEFAULT_3, STATIC_4, DEFAULTS_5 = map(ConfigSource, range(1, 6))


def topic(**overrides: str) -> dict[str, ConfigEntry]:
    properties = {name.replace("_", "."): value for name, value in overrides.items()}
    entries = describe_topic(BrokerConfig(STATIC), DYNAMIC_BROKER, DYNAMIC_DEFAULT, properties)
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    return {entry.name: entry for entry in entries}


def broker() -> dict[str, ConfigEntry]:
    entries = describe_broker(BrokerConfig(STATIC), DYNAMIC_BROKER, DYNAMIC_DEFAULT)
    return {entry.name: entry for entry in entries}


def summary(entry: ConfigEntry) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    return entry.value, entry.source, [tuple(synonym) for synonym in entry.synonyms]


def test_a_topics_override_stands_above_every_layer_of_the_broker() -> None:
    assert summary(topic(retention_ms="55")["retention.ms"]) == (
        "55",
        TOPIC_1,
        [
            ("retention.ms", "55", TOPIC_1),
            ("log.retention.ms", "9999", BROKER_2),
            ("log.retention.hours", "24", STATIC_4),
            ("log.retention.hours", "168", DEFAULTS_5),
        ],
    )


def test_a_topic_takes_a_value_from_each_layer() -> None:
    entries = topic()
    assert summary(entries["segment.ms"]) == (
        "3600000",
        DEFAULT_3,
        [("log.roll.ms", "3600000", DEFAULT_3), ("log.roll.hours", "168", DEFAULTS_5)],
    )
    assert summary(entries["segment.bytes"]) == (
        "2000000",
        STATIC_4,
        [
            ("log.segment.bytes", "2000000", STATIC_4),
            ("log.segment.bytes", "1073741824", DEFAULTS_5),
        ],
    )
    assert summary(entries["preallocate"]) == (
        "false",
        DEFAULTS_5,
        [("log.preallocate", "false", DEFAULTS_5)],
    )


def test_an_empty_list_is_reported_as_an_empty_text() -> None:
    assert summary(topic(cleanup_policy="")["cleanup.policy"]) == (
        "",
        TOPIC_1,
        [
            ("cleanup.policy", "", TOPIC_1),
            ("log.cleanup.policy", "delete", BROKER_2),
            ("log.cleanup.policy", "compact,delete", STATIC_4),
            ("log.cleanup.policy", "delete", DEFAULTS_5),
        ],
    )


def test_a_coarser_synonym_alone_is_not_listed_as_in_kafka() -> None:
    entries = describe_topic(BrokerConfig({"log.retention.hours": "24"}), {}, {}, {})
    (retention,) = (entry for entry in entries if entry.name == "retention.ms")
    assert summary(retention) == ("86400000", DEFAULTS_5, [])


def test_a_topic_property_without_a_synonym_has_only_its_default() -> None:
    assert summary(topic()["remote.storage.enable"]) == ("false", DEFAULTS_5, [])


def test_all_topic_properties_are_reported_and_none_is_read_only() -> None:
    entries = topic()
    assert entries.keys() == {key.name for key in TOPIC if not key.internal}
    assert not any(entry.read_only or entry.is_sensitive for entry in entries.values())


def test_an_internal_property_is_reported_where_it_is_set() -> None:
    assert summary(topic(internal_segment_bytes="1000")["internal.segment.bytes"]) == (
        "1000",
        TOPIC_1,
        [("internal.segment.bytes", "1000", TOPIC_1)],
    )


def test_a_brokers_own_value_stands_above_the_defaults() -> None:
    entries = broker()
    assert summary(entries["log.cleaner.threads"]) == (
        "2",
        BROKER_2,
        [("log.cleaner.threads", "2", BROKER_2), ("log.cleaner.threads", "1", DEFAULTS_5)],
    )
    assert summary(entries["message.max.bytes"])[:2] == ("2000000", DEFAULT_3)
    assert summary(entries["num.partitions"])[:2] == ("3", STATIC_4)


def test_a_broker_property_without_a_value_is_reported_as_null() -> None:
    entries = broker()
    assert summary(entries["log.retention.minutes"]) == (None, DEFAULTS_5, [])
    assert summary(entries["advertised.listeners"]) == (None, DEFAULTS_5, [])


def test_the_node_id_is_reported_under_both_names() -> None:
    assert summary(broker()["broker.id"]) == (
        "1",
        STATIC_4,
        [("broker.id", "1", STATIC_4), ("broker.id", "-1", DEFAULTS_5)],
    )


def test_only_what_may_change_at_run_time_is_not_read_only() -> None:
    entries = broker()
    assert not entries["log.retention.ms"].read_only
    assert entries["log.retention.hours"].read_only
    assert entries["num.partitions"].read_only
    assert entries["listeners"].read_only


def test_a_property_that_is_in_no_table_is_reported_without_its_value() -> None:
    for name, source in (("foo.bar", STATIC_4), ("unknown.thing", BROKER_2)):
        entry = broker()[name]
        assert summary(entry) == (None, source, [(name, None, source)])
        assert entry.is_sensitive
        assert entry.read_only
        assert entry.type is ConfigType.UNKNOWN


def test_a_property_that_only_exists_at_run_time_is_reported_once_it_is_set() -> None:
    assert summary(broker()["leader.replication.throttled.rate"]) == (
        "1000",
        BROKER_2,
        [("leader.replication.throttled.rate", "1000", BROKER_2)],
    )
    assert "follower.replication.throttled.rate" not in broker()


def test_the_defaults_of_all_brokers_are_what_was_changed_and_nothing_else() -> None:
    entries = describe_broker_default(DYNAMIC_DEFAULT)
    assert {entry.name: summary(entry) for entry in entries} == {
        "log.roll.ms": ("3600000", DEFAULT_3, [("log.roll.ms", "3600000", DEFAULT_3)]),
        "message.max.bytes": ("2000000", DEFAULT_3, [("message.max.bytes", "2000000", DEFAULT_3)]),
    }


def test_is_default_is_true_exactly_for_the_source_default() -> None:
    entries = broker()
    assert entries["delete.topic.enable"].is_default
    assert not entries["num.partitions"].is_default


def test_types_and_documentation_are_those_of_the_table() -> None:
    entry = broker()["log.segment.bytes"]
    assert entry.type is ConfigType.INT
    assert entry.documentation == BROKER["log.segment.bytes"].doc


def test_passwords_are_not_described() -> None:
    secrets = {
        "ssl.key.password": "hunter2",
        "listener.name.external.ssl.key.password": "hunter2",
        "listener.name.external.ssl.keystore.location": "/x",
        "unknown.property": "hunter2",
    }
    config = BrokerConfig({**secrets, "ssl.keystore.location": "/y"})
    entries = {entry.name: entry for entry in describe_broker(config, secrets, {})}
    assert "hunter2" not in repr(entries)
    assert entries["ssl.key.password"].is_sensitive
    assert entries["ssl.keystore.location"].value == "/y"
    assert entries["listener.name.external.ssl.keystore.location"].value == "/x"
    assert entries["listener.name.external.ssl.key.password"].is_sensitive

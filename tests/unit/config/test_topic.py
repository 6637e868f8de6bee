"""Tests of the configuration values in effect for a topic."""

from __future__ import annotations

import dataclasses

import pytest

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.definition import HOUR_MS
from ottla.base.config.topic import TOPIC, TopicConfig, topic_config
from ottla.base.errors import ErrorCode, KafkaError


def refused(overrides: dict[str, str]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        topic_config(BrokerConfig(), overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value


def test_a_topic_without_overrides_on_a_broker_without_configuration_has_the_defaults() -> None:
    assert topic_config(BrokerConfig(), {}) == TopicConfig()


def test_every_property_is_a_field() -> None:
    fields = {field.name for field in dataclasses.fields(TopicConfig)}
    assert fields == {key.attribute for key in TOPIC}


def test_a_topics_override_wins_over_the_broker() -> None:
    broker = BrokerConfig({"log.retention.ms": "5", "compression.type": "gzip"})
    config = topic_config(broker, {"retention.ms": "7"})
    assert config.retention_ms == 7
    assert config.compression_type == "gzip"


def test_a_topics_default_is_converted_from_the_brokers_unit() -> None:
    broker = BrokerConfig(
        {"log.retention.hours": "2", "log.roll.hours": "3", "log.roll.jitter.hours": "1"}
    )
    config = topic_config(broker, {})
    assert config.retention_ms == 2 * HOUR_MS
    assert config.segment_ms == 3 * HOUR_MS
    assert config.segment_jitter_ms == HOUR_MS


def test_a_change_of_the_broker_at_run_time_reaches_its_topics() -> None:
    broker = BrokerConfig({"log.retention.hours": "2"})
    assert topic_config(broker.with_dynamic({"log.retention.ms": "9"}, {}), {}).retention_ms == 9


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact, delete", True, True),
        ("", False, False),
    ],
)
def test_cleanup_policy_is_a_set(policy: str, compact: bool, delete: bool) -> None:
    config = topic_config(BrokerConfig(), {"cleanup.policy": policy})
    assert (config.compact, config.delete) == (compact, delete)


def test_small_segments_are_possible_for_tests_only_by_the_internal_property() -> None:
    assert "1048576" in refused({"segment.bytes": "1000"}).message
    config = topic_config(BrokerConfig(), {"internal.segment.bytes": "1000"})
    assert config.segment_bytes == 1000


def test_a_compacted_segment_rolls_before_its_compaction_is_overdue() -> None:
    overrides = {"max.compaction.lag.ms": "10", "segment.ms": "20"}
    assert topic_config(BrokerConfig(), overrides).max_segment_ms == 20
    overrides["cleanup.policy"] = "compact"
    assert topic_config(BrokerConfig(), overrides).max_segment_ms == 10


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    message = refused({"retention.msec": "5"}).message
    assert message == "Unknown topic config name: retention.msec; did you mean retention.ms?"


def test_a_wrong_value_is_refused() -> None:
    assert "retention.ms" in refused({"retention.ms": "-2"}).message


def test_a_compaction_lag_below_its_minimum_is_refused() -> None:
    message = refused({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}).message
    assert "max.compaction.lag.ms (5)" in message


def test_remote_storage_is_refused() -> None:
    assert "not in this release" in refused({"remote.storage.enable": "true"}).message


def test_log_append_time_is_reported() -> None:
    assert topic_config(BrokerConfig(), {"message.timestamp.type": "LogAppendTime"}).log_append_time
    assert not TopicConfig().log_append_time

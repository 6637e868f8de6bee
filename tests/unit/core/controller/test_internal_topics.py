from __future__ import annotations

import pytest

from ottla.base.cluster import INTERNAL_TOPICS
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.topic import topic_config
from ottla.core.controller.internal_topics import internal_topic

DEFAULTS = BrokerConfig()


def configs_of(name: str, most_replicas: int | None) -> dict[str, str]:
    topic = internal_topic(name, DEFAULTS, most_replicas)
    assert topic is not None
    return {key: value for key, value in topic.configs if value is not None}


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_every_internal_topic_has_settings_that_are_valid(name: str) -> None:
    topic = internal_topic(name, DEFAULTS, None)
    assert topic is not None
    assert topic.replication_factor == 3
    assert topic.num_partitions == 50
    topic_config(DEFAULTS, configs_of(name, None))


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_a_broker_alone_keeps_one_replica_and_asks_for_no_more(name: str) -> None:
    topic = internal_topic(name, DEFAULTS, 1)
    assert topic is not None
    assert topic.replication_factor == 1
    assert configs_of(name, 1).get("min.insync.replicas", "1") == "1"


def test_offsets_and_transactions_are_compacted() -> None:
    assert configs_of("__consumer_offsets", None)["cleanup.policy"] == "compact"
    assert configs_of("__transaction_state", None)["min.insync.replicas"] == "2"
    assert configs_of("__share_group_state", None)["retention.ms"] == "-1"


def test_other_topics_are_not_internal() -> None:
    assert internal_topic("orders", DEFAULTS, 1) is None

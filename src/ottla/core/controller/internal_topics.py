"""How the cluster's own topics are created: Kafka's counts and configs for each of them.

A broker that is alone can hold one replica of a partition only. There the replication factor and
the in-sync replicas asked for are capped, so that a broker with Kafka's defaults works; in a
cluster they are not: the first broker to start must not create topics without replicas."""

from __future__ import annotations

from ottla.base.config.broker import BrokerConfig
from ottla.core.controller.create_topics import NewTopic


def internal_topic(name: str, config: BrokerConfig, most_replicas: int | None) -> NewTopic | None:
    """None if no internal topic has that name."""
    make = _KINDS.get(name)
    return None if make is None else make(name, config, most_replicas or 2**15)


def _consumer_offsets(name: str, config: BrokerConfig, most: int) -> NewTopic:
    return NewTopic(
        name,
        config.offsets_topic_num_partitions,
        min(most, config.offsets_topic_replication_factor),
        configs=[
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.offsets_topic_segment_bytes)),
        ],
    )


def _transaction_state(name: str, config: BrokerConfig, most: int) -> NewTopic:
    return NewTopic(
        name,
        config.transaction_state_log_num_partitions,
        min(most, config.transaction_state_log_replication_factor),
        configs=[
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(min(most, config.transaction_state_log_min_isr))),
            ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
            ("unclean.leader.election.enable", "false"),
        ],
    )


def _share_group_state(name: str, config: BrokerConfig, most: int) -> NewTopic:
    return NewTopic(
        name,
        config.share_coordinator_state_topic_num_partitions,
        min(most, config.share_coordinator_state_topic_replication_factor),
        configs=[
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("min.insync.replicas", str(min(most, config.share_coordinator_state_topic_min_isr))),
            ("retention.ms", "-1"),
            ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
        ],
    )


_KINDS = {
    "__consumer_offsets": _consumer_offsets,
    "__transaction_state": _transaction_state,
    "__share_group_state": _share_group_state,
}

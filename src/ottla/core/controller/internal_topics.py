"""Partition counts and configs of the internal topics, as Kafka creates them.

A single broker can hold only one replica of each partition. There, the replication factor and
`min.insync.replicas` are capped, so that a single broker works with Kafka's defaults. In a cluster
they are not capped: the first broker to start must not create internal topics without replicas.
"""

from __future__ import annotations

from ottla.base.config.broker import BrokerConfig
from ottla.core.controller.create_topics import NewTopic


def internal_topic(name: str, config: BrokerConfig, most_replicas: int | None) -> NewTopic | None:
    """Return the definition of an internal topic.

    Args:
        name: The topic's name.
        config: The broker's config, which has the counts and sizes.
        most_replicas: The cap on replication factor and `min.insync.replicas`, or None for no cap.

    Returns:
        The topic to create, or None if no internal topic has that name.
    """
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

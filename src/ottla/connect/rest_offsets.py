"""Offsets of connectors by REST.

A source's are its own; a sink's are those of its group `connect-NAME`, so that Kafka's tools show
and reset them too. Both change only while the connector is stopped."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.connect.api import SourceConnector
from ottla.connect.offsets import canonical, from_json, merged, to_json
from ottla.connect.running import RunningConnector

ALTERED = "The offsets for this connector have been altered successfully"
RESET = "The offsets for this connector have been reset successfully"


def offsets_of(connector: RunningConnector) -> list[dict[str, Any]]:
    if connector.config.is_source:
        return to_json(connector.source_offsets())
    from ottla.client.admin import Admin
    from ottla.connect.sink_query import group_id

    group = group_id(connector.config)
    with Admin(profile=connector.client("admin")) as admin:
        committed = admin.list_group_offsets(group)[group]
    return [
        {
            "partition": {"kafka_topic": tp.topic, "kafka_partition": tp.partition},
            "offset": {"kafka_offset": found.offset},
        }
        for tp, found in sorted(committed.items())
    ]


def alter_offsets(connector: RunningConnector, told: Any) -> str:
    """Raises ValueError, a sentence, for what cannot be."""
    offsets = from_json(told)
    if not offsets:
        raise ValueError("Partitions / offsets need to be provided for an alter offsets request")
    source = connector.config.connector
    if isinstance(source, SourceConnector):
        for partition, offset in offsets:
            if offset:
                source.check_offset(partition, offset)
        changed = merged(connector.source_offsets(), offsets)
        # Null for an offset: from the beginning.
        gone = {canonical(partition) for partition, offset in offsets if not offset}
        connector.replace_offsets([each for each in changed if canonical(each[0]) not in gone])
        return ALTERED
    _alter_group(connector, [_sink_offset(*each) for each in offsets])
    return ALTERED


def reset_offsets(connector: RunningConnector) -> str:
    if not connector.config.is_source:
        from ottla.client.admin import Admin
        from ottla.connect.sink_query import group_id

        with Admin(profile=connector.client("admin")) as admin:
            group = group_id(connector.config)
            committed = admin.list_group_offsets(group)[group]
            if committed:
                admin.delete_group_offsets(group, list(committed))
    connector.replace_offsets([])
    return RESET


def _sink_offset(partition: dict[str, Any], offset: dict[str, Any]) -> tuple[TopicPartition, int]:
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    position = offset.get("kafka_offset", 0) if offset else 0
    try:
        tp, position = TopicPartition(str(topic), int(str(number))), int(str(position))
    except ValueError:
        tp, position = TopicPartition("", -1), -1
    if topic is None or tp.partition < 0 or position < 0:
        raise ValueError(
            'a sink\'s offsets are {"partition": {"kafka_topic": …, "kafka_partition": …}, '
            '"offset": {"kafka_offset": …}}'
        )
    return tp, position


def _alter_group(connector: RunningConnector, offsets: list[tuple[TopicPartition, int]]) -> None:
    from ottla.client.admin import Admin
    from ottla.connect.sink_query import group_id

    with Admin(profile=connector.client("admin")) as admin:
        try:
            admin.alter_group_offsets(group_id(connector.config), dict(offsets))
        except KafkaError as error:
            raise ValueError(f"the group's offsets were not altered: {error}") from None

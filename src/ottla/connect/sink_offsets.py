"""Offsets of a sink: those of the group `connect-NAME`, so that Kafka's tools work with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.connect.api import Offsets
from ottla.connect.herder import BadRequest


def group_offsets(admin_client: Mapping[str, str], group: str) -> list[dict[str, Any]]:
    from ottla.client.admin import Admin

    with Admin(profile=dict(admin_client)) as admin:
        committed = admin.list_group_offsets(group)[group]
    return [
        {
            "partition": {"kafka_topic": tp.topic, "kafka_partition": tp.partition},
            "offset": {"kafka_offset": found.offset},
        }
        for tp, found in sorted(committed.items())
    ]


def alter_group_offsets(admin_client: Mapping[str, str], group: str, offsets: Offsets) -> None:
    from ottla.client.admin import Admin

    wanted = dict(_sink_offset(*each) for each in offsets)
    with Admin(profile=dict(admin_client)) as admin:
        try:
            admin.alter_group_offsets(group, wanted)
        except KafkaError as error:
            raise BadRequest(
                f"the offsets of the consumer group could not be altered: {error}"
            ) from None


def reset_group_offsets(admin_client: Mapping[str, str], group: str) -> None:
    from ottla.client.admin import Admin

    with Admin(profile=dict(admin_client)) as admin:
        committed = admin.list_group_offsets(group)[group]
        if committed:
            admin.delete_group_offsets(group, list(committed))


def _sink_offset(partition: dict[str, Any], offset: dict[str, Any]) -> tuple[TopicPartition, int]:
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    position = offset.get("kafka_offset", 0) if offset else 0
    try:
        tp, position = TopicPartition(str(topic), int(str(number))), int(str(position))
    except ValueError:
        tp, position = TopicPartition("", -1), -1
    if topic is None or tp.partition < 0 or position < 0:
        raise BadRequest(
            'offsets of a sink must have the form {"partition": {"kafka_topic": …, '
            '"kafka_partition": …}, "offset": {"kafka_offset": …}}'
        )
    return tp, position

"""Creation of the topics that Connect needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.errors import ErrorCode, KafkaError, UserError

BROKERS_DEFAULT = -1


def make_topics(
    client: Mapping[str, str],
    topics: Iterable[str],
    partitions: int = BROKERS_DEFAULT,
    replication: int = BROKERS_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create the topics that do not exist; raise UserError if one cannot be created."""
    from ottla.client.admin import Admin, NewTopic

    with Admin(profile=dict(client)) as admin:
        there = set(admin.list_topics(include_internal=True))
        for topic in topics:
            if topic in there:
                continue
            try:
                admin.create_topics(NewTopic(topic, partitions, replication, configs or {}))
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise UserError(f"Topic {topic} cannot be created: {error}") from error

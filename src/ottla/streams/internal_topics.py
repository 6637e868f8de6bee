"""Internal topics, between two queries of an application.

They are created when the application starts, with as many partitions as the topic from which their
keys come. A reset recognizes them, and those of Kafka Streams, by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.base.errors import ErrorCode
from ottla.streams.application import Application
from ottla.streams.operators.topics import source_topic_of

INTERNAL_SUFFIXES = ("-changes", "-subscriptions")
"""Suffixes of the internal topics that `ottla.streams` creates."""
_INTERNAL = re.compile(
    r".+-(?:changelog|repartition|subscription-registration-topic|subscription-response-topic"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-\d+-topic)"
)


def internal_topics(app: Application) -> dict[str, str]:
    """Return the internal topics, each with the topic from which its keys come."""
    return {sink.topic: source_topic_of(sink) for sink in app.sinks if sink.is_internal}


def create_internal_topics(app: Application) -> None:
    wanted = internal_topics(app)
    if not wanted:
        return
    from ottla.client.admin import Admin, NewTopic

    with Admin(app.bootstrap, profile=app.client) as admin:
        existing = admin.list_topics()
        for topic, origin in wanted.items():
            if topic in existing:
                continue
            partitions = (
                len(admin.describe_topics(origin)[origin].partitions) if origin in existing else 1
            )
            made = admin.create_topics(NewTopic(topic, partitions), return_errors=True)
            for error in made.errors.values():
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise error


def internal_topics_of(
    app_name: str, topics: Iterable[str], excluded: Iterable[str] = (), written: Iterable[str] = ()
) -> list[str]:
    """Return the internal topics of an application, by their names.

    Args:
        app_name: Name of the application.
        topics: Topics of the cluster.
        excluded: Topics of the user, which are left out.
        written: Topics that the application is known to write. Only among these do Ottla's own
            suffixes mark an internal topic.
    """
    kept, known = set(excluded), set(written)
    return sorted(
        topic
        for topic in topics
        if topic.startswith(f"{app_name}-")
        and (_INTERNAL.fullmatch(topic) or (topic in known and topic.endswith(INTERNAL_SUFFIXES)))
        and topic not in kept
    )

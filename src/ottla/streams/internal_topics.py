"""Internal topics, between two queries of an application.

They are created when the application starts, with as many partitions as the topic from which their
keys come.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.streams.application import Application
from ottla.streams.plan.nodes import Sink, Source, ancestors


def internal_topics(app: Application) -> dict[str, str]:
    """Return the internal topics, each with the topic from which its keys come."""
    return {sink.topic: _first_topic(sink) for sink in app.sinks if sink.is_internal}


def create_internal_topics(app: Application) -> None:
    wanted = internal_topics(app)
    if not wanted:
        return
    from ottla.client.admin import Admin, NewTopic

    with Admin(app.bootstrap, **_settings(app)) as admin:
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


def _first_topic(sink: Sink) -> str:
    return next(each.topic for each in ancestors(sink) if isinstance(each, Source))


def _settings(app: Application) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in app.client.items()}

"""The group coordinator's view of topics, which `ClusterImage` implements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from ottla.base.cluster import TopicImage

TopicFilter: TypeAlias = Callable[[Iterable[str]], Iterable[str]]
"""Function that returns those of many topics that a client may see."""


def every_topic(names: Iterable[str]) -> Iterable[str]:
    """Return all topics: the filter for clients that may see everything."""
    return names


class TopicsView(Protocol):
    @property
    def revision(self) -> int:
        """Revision of the metadata; it grows with every change."""

    @property
    def names_revision(self) -> int:
        """Revision of the last creation or deletion of a topic."""

    @property
    def topics(self) -> Mapping[str, TopicImage]: ...

    @property
    def topics_by_id(self) -> Mapping[bytes, TopicImage]: ...


class NoTopics:
    """A view without topics."""

    revision = 0
    names_revision = 0
    topics: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[bytes, TopicImage] = {}

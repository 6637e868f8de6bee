"""What groups know of topics: the image of the metadata store is such a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ottla.base.cluster import TopicImage


class TopicsView(Protocol):
    @property
    def revision(self) -> int:
        """Grows with every change."""

    @property
    def topics(self) -> Mapping[str, TopicImage]: ...

    @property
    def topics_by_id(self) -> Mapping[bytes, TopicImage]: ...


class NoTopics:
    """Of a cluster without topics."""

    revision = 0
    topics: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[bytes, TopicImage] = {}

"""Log messages for topics that brokers create automatically (`auto.create.topics.enable`).

A mistyped name creates a topic, too, so a client logs each topic that did not exist when it first
asked for it. The log level is INFO; command-line tools print these records."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ottla.client.metadata import TopicMetadata

logger = logging.getLogger(__name__)


class TopicCreation:
    """Requested topics that did not exist and that no broker has reported as created yet."""

    def __init__(self) -> None:
        self._requested: set[str] = set()

    def requested(self, names: Iterable[str]) -> None:
        """Record topics that do not exist and that a broker is asked to create."""
        self._requested.update(names)

    def updated(self, topics: Mapping[str, TopicMetadata]) -> None:
        """Log the requested topics that now exist."""
        for name in sorted(self._requested & topics.keys()):
            count = topics[name].partition_count
            if count:
                self._requested.remove(name)
                plural = "" if count == 1 else "s"
                logger.info(
                    "topic '%s' did not exist and was created with %d partition%s",
                    *(name, count, plural),
                )

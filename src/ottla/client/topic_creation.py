"""Topics that brokers create because a client uses them (`auto.create.topics.enable`).

A mistyped name creates a topic, too. So a client logs each topic that did not exist when it asked
first. Programs see these records with the level INFO; tools print them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ottla.client.metadata import TopicMetadata

logger = logging.getLogger(__name__)


class TopicCreation:
    """The topics that did not exist, until brokers report them as created."""

    def __init__(self) -> None:
        self._requested: set[str] = set()

    def requested(self, names: Iterable[str]) -> None:
        """Note that these topics do not exist, and that a broker is asked to create them."""
        self._requested.update(names)

    def updated(self, topics: Mapping[str, TopicMetadata]) -> None:
        """Log the requested topics that exist now."""
        for name in sorted(self._requested & topics.keys()):
            count = topics[name].partition_count
            if count:
                self._requested.remove(name)
                plural = "" if count == 1 else "s"
                logger.info(
                    "topic '%s' did not exist and was created with %d partition%s",
                    *(name, count, plural),
                )

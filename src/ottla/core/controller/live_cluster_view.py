"""Cluster view that treats brokers with an expired lease as fenced, even before their session ends.

Used for placement: new partitions are not placed on, or led by, a broker known to be gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ottla.base.cluster import BrokerRegistration, ClusterView, TopicImage


class LiveClusterView:
    """A `ClusterView` in which the dead brokers are fenced."""

    def __init__(self, view: ClusterView, dead: Collection[int]) -> None:
        self._view = view
        self.brokers: Mapping[int, BrokerRegistration] = {
            broker_id: replace(broker, fenced=True) if broker_id in dead else broker
            for broker_id, broker in view.brokers.items()
        }

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._view.topics

    @property
    def topics_by_id(self) -> Mapping[bytes, TopicImage]:
        return self._view.topics_by_id

    def colliding_topic(self, name: str) -> str | None:
        return self._view.colliding_topic(name)

    @property
    def live_brokers(self) -> Sequence[BrokerRegistration]:
        return [
            self.brokers[each] for each in sorted(self.brokers) if not self.brokers[each].fenced
        ]

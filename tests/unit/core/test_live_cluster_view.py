"""Tests that no new partition is placed on a broker known to be dead."""

from __future__ import annotations

from ottla.base.cluster import BrokerRegistration, Endpoint
from ottla.core.controller.elections import new_partition
from ottla.core.controller.live_cluster_view import LiveClusterView
from ottla.metadata.image import ClusterImage


def image_of(*ids: int) -> ClusterImage:
    image = ClusterImage()
    image.brokers = {
        id: BrokerRegistration(id, 0, {"PLAINTEXT": Endpoint("h", 9092)}) for id in ids
    }
    return image


def test_a_dead_broker_is_not_among_the_living_and_leads_no_new_partition() -> None:
    image = image_of(1, 2, 3)
    view = LiveClusterView(image, {1})
    assert [broker.id for broker in view.live_brokers] == [2, 3]
    assert new_partition([1, 2, 3], view.brokers).leader == 2
    assert new_partition([1, 2, 3], view.brokers).isr == (2, 3)
    assert [broker.id for broker in image.live_brokers] == [1, 2, 3]

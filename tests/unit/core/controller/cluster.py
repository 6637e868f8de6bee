"""Hand-made cluster state for testing the controller's decisions."""

from __future__ import annotations

from ottla.base.cluster import BrokerRegistration, PartitionState, TopicImage, metric_name


class Cluster:
    def __init__(self, *brokers: BrokerRegistration) -> None:
        self.brokers = {broker.id: broker for broker in brokers}
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}

    @property
    def live_brokers(self) -> list[BrokerRegistration]:
        return [self.brokers[id] for id in sorted(self.brokers) if not self.brokers[id].fenced]

    def colliding_topic(self, name: str) -> str | None:
        same = [each for each in self.topics if metric_name(each) == metric_name(name)]
        return next((each for each in same if each != name), None)

    def add(self, name: str, *replicas: tuple[int, ...]) -> TopicImage:
        topic_id = (len(self.topics) + 1).to_bytes(16, "big")
        states = tuple(
            PartitionState(each[0], 0, each, each, isr_incarnations=(0,) * len(each))
            for each in replicas or ((1,),)
        )
        topic = TopicImage(name, topic_id, {}, states)
        self.topics[name] = self.topics_by_id[topic_id] = topic
        return topic


def broker(id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(id, 0, {}, rack, fenced)


def brokers(count: int) -> list[BrokerRegistration]:
    return [broker(id) for id in range(1, count + 1)]

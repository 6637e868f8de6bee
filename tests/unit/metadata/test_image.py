"""Tests of applying changes of the metadata tree to the cluster image, and of its deltas."""

from __future__ import annotations

from ottla.base.cluster import BrokerRegistration, Endpoint, PartitionState, TopicImage
from ottla.base.metadata import Change, Create, Delete, Node, Op
from ottla.base.types import new_uuid
from ottla.metadata import tree
from ottla.metadata.image import ClusterImage

LED_BY_1 = PartitionState(1, 0, (1,), (1,), isr_incarnations=(4,))


class Tree:
    """Tree that applies operations to its nodes as a store does, and keeps an image current."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.image = ClusterImage()

    def changes(self, ops: list[Op]) -> list[Change]:
        for op in ops:
            if isinstance(op, Delete):
                del self.nodes[op.path]
            else:
                version = 0 if isinstance(op, Create) else self.nodes[op.path].version + 1
                self.nodes[op.path] = Node(op.value, version)
        return [(op.path, self.nodes.get(op.path)) for op in ops]

    def commit(self, ops: list[Op]):
        return self.image.apply(self.image.revision + 1, self.changes(ops))


def topic(name: str, partitions: int = 2, **configs: str) -> TopicImage:
    return TopicImage(name, new_uuid(), configs, (LED_BY_1,) * partitions)


def test_a_topic_is_found_by_name_and_by_id() -> None:
    cluster, orders = Tree(), topic("orders", 3, retention="5")
    delta = cluster.commit(tree.create_topic_ops(orders))
    assert delta.topics_created == [orders]
    assert cluster.image.topics["orders"] == cluster.image.topics_by_id[orders.topic_id] == orders
    assert not delta.partitions_changed


def test_a_deleted_topic_is_gone_and_its_partitions_forgotten() -> None:
    cluster, orders = Tree(), topic("orders")
    cluster.commit(tree.create_topic_ops(orders))
    delta = cluster.commit(tree.delete_topic_ops(orders))
    assert delta.topics_deleted == [orders]
    assert not cluster.image.topics
    assert not cluster.image.topics_by_id
    assert not cluster.image._partition_states


def test_a_topic_appears_only_when_all_of_its_partitions_are_known() -> None:
    cluster, orders = Tree(), topic("orders")
    changes = cluster.changes(tree.create_topic_ops(orders))
    for number, change in enumerate(changes, 1):
        delta = cluster.image.apply(number, [change])
        assert bool(delta) == (number == len(changes))
        assert ("orders" in cluster.image.topics) == (number == len(changes))


def test_added_partitions_appear_together() -> None:
    cluster, orders = Tree(), topic("orders")
    cluster.commit(tree.create_topic_ops(orders))
    changes = cluster.changes(tree.add_partitions_ops(orders, [LED_BY_1, LED_BY_1]))
    for number, change in enumerate(changes[:-1], 2):
        assert not cluster.image.apply(number, [change]).partitions_changed
        assert len(cluster.image.topics["orders"].partitions) == 2
    delta = cluster.image.apply(9, changes[-1:])
    assert [(c.partition, c.old, c.new) for c in delta.partitions_changed] == [
        (2, None, LED_BY_1),
        (3, None, LED_BY_1),
    ]


def test_a_changed_partition_is_reported_with_before_and_after() -> None:
    cluster, orders = Tree(), topic("orders")
    cluster.commit(tree.create_topic_ops(orders))
    led_by_2 = LED_BY_1._replace(leader=2, leader_epoch=1, isr=(2,), replicas=(1, 2), adding=(2,))
    value = tree.encode_partition(led_by_2)
    delta = cluster.commit([tree.Replace(tree.partition_path(orders.topic_id, 1), value)])
    (change,) = delta.partitions_changed
    assert (change.partition, change.old) == (1, LED_BY_1)
    assert change.new == led_by_2._replace(partition_epoch=1)
    assert change.topic is cluster.image.topics["orders"]


def test_changed_configs_of_a_topic_are_reported() -> None:
    cluster, orders = Tree(), topic("orders")
    cluster.commit(tree.create_topic_ops(orders))
    value = tree.encode_topic("orders", {"retention.ms": "5"}, 2)
    delta = cluster.commit([tree.Replace(tree.topic_path(orders.topic_id), value)])
    (changed,) = delta.topic_configs_changed
    assert (changed.configs, changed.version) == ({"retention.ms": "5"}, 1)
    assert not delta.partitions_changed


def test_a_topic_made_anew_in_the_same_commit_replaces_the_old_one() -> None:
    cluster, old, new = Tree(), topic("orders"), topic("orders")
    cluster.commit(tree.create_topic_ops(old))
    delta = cluster.commit(tree.create_topic_ops(new) + tree.delete_topic_ops(old))
    assert (delta.topics_deleted, delta.topics_created) == ([old], [new])
    assert cluster.image.topics["orders"] == new
    assert list(cluster.image.topics_by_id) == [new.topic_id]


def test_the_last_creation_or_deletion_of_a_topic_is_known() -> None:
    cluster, orders = Tree(), topic("orders")
    cluster.commit(tree.create_topic_ops(orders))
    created = cluster.image.revision
    assert cluster.image.names_revision == created
    cluster.commit([Create("/live/1", b"{}", ephemeral=True)])
    assert cluster.image.names_revision == created < cluster.image.revision
    cluster.commit(tree.delete_topic_ops(orders))
    assert cluster.image.names_revision == cluster.image.revision


def test_a_broker_is_fenced_until_it_is_live() -> None:
    cluster = Tree()
    broker = BrokerRegistration(1, 0, {"PLAINTEXT": Endpoint("host", 9092)}, "a")
    delta = cluster.commit([Create("/registrations/1", tree.encode_registration(broker))])
    assert delta.brokers_changed
    assert cluster.image.brokers[1].fenced
    assert not cluster.image.live_brokers
    cluster.commit([Create("/live/1", b"{}", ephemeral=True)])
    assert cluster.image.live_brokers == [broker]
    assert cluster.image.brokers_revision == 2
    assert cluster.commit([Delete("/live/1")]).brokers_changed
    assert not cluster.image.is_alive(1)


def test_cluster_controller_and_broker_configs_are_read() -> None:
    cluster = Tree()
    delta = cluster.commit(
        [
            Create(tree.CLUSTER, tree.encode({"cluster_id": "abc"})),
            Create(tree.CONTROLLER_EPOCH, b"{}"),
            Create(tree.CONTROLLER_LEADER, tree.encode({"id": 7}), ephemeral=True),
            Create(tree.broker_config_path(""), tree.encode({"a": "1"})),
            Create(tree.broker_config_path("7"), tree.encode({"b": "2"})),
            Create("/acls/x", b"not json"),
        ]
    )
    image = cluster.image
    assert (image.cluster_id, image.controller_id, image.controller_epoch) == ("abc", 7, 0)
    assert image.dynamic_configs(7) == ({"b": "2"}, {"a": "1"})
    assert image.dynamic_configs(8) == ({}, {"a": "1"})
    assert delta.controller_changed
    assert delta.broker_configs_changed


def test_names_that_differ_by_dot_and_underscore_collide() -> None:
    cluster, first = Tree(), topic("a.b_c")
    cluster.commit(tree.create_topic_ops(first))
    assert cluster.image.colliding_topic("a_b.c") == "a.b_c"
    assert cluster.image.colliding_topic("a.b_c") is None
    assert cluster.image.colliding_topic("a-b_c") is None
    cluster.commit(tree.delete_topic_ops(first))
    assert cluster.image.colliding_topic("a_b.c") is None


def test_views_of_the_image_are_dropped_with_every_change() -> None:
    cluster = Tree()
    cluster.image.views["all"] = 1
    cluster.commit(tree.create_topic_ops(topic("orders")))
    assert not cluster.image.views

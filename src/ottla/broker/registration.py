"""Registration of a broker: it registers, becomes the controller if there is none, and leads again.

    1. /cluster: the cluster ID, created at the first start
    2. /registrations/<id>: endpoints and rack; the new node version is the new broker epoch
       (incarnation)
       /live/<id>: ephemeral, deleted when the session ends
       /controller/epoch, /controller/leader: a standalone broker is always the controller
    3. the partitions that only this broker can lead (`core.controller.elections`)

Topics in the log directories of a broker without any metadata (`adoption.py`) are added to the
metadata under the topic IDs they already have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.cluster import BrokerRegistration, Endpoint, TopicImage
from ottla.base.errors import UserError
from ottla.base.metadata import Check, Create, Delete, Node, Op, Replace, TxnConflict
from ottla.base.types import ZERO_UUID, format_uuid, new_uuid
from ottla.broker.controller import Controller, ControllerPorts
from ottla.core.controller.elections import (
    LeadershipChange,
    decide_broker_returned,
    new_partition,
)
from ottla.metadata import tree
from ottla.metadata.follower import ImageFollower

CLUSTER_ID_RETRY_S = 0.1
MAX_OPS_PER_TXN = 20_000
"""Maximum number of elections in one transaction of the embedded store, to bound memory."""


class FoundTopic(NamedTuple):
    """A topic found in the log directories."""

    name: str
    topic_id: bytes
    """ZERO_UUID if the directories do not contain a topic ID."""
    partition_count: int
    configs: Mapping[str, str] = MappingProxyType({})
    leader_epochs: Sequence[int] = ()
    """Initial leader epoch of each partition; empty for all 0."""


async def ensure_cluster_id(
    broker: ControllerPorts, known: str | None = None, *, zookeeper: str | None = None
) -> str:
    """Return the cluster ID, and create it at the first start.

    A standalone broker whose metadata is missing adopts its directories under the ID that they
    have. A broker of a cluster does not: it would keep all its partitions as strays, because
    ZooKeeper knows none of their topics.

    Args:
        broker: The broker that starts.
        known: ID in meta.properties of the data directories; None if they are new.
        zookeeper: Address of ZooKeeper; None for a standalone broker.

    Raises:
        UserError: The directories belong to a cluster, but ZooKeeper knows no cluster.
    """
    nodes, _ = await broker.store.load(tree.CLUSTER)
    node = nodes.get(tree.CLUSTER)
    if node is not None:
        existing: str = tree.decode(node)["cluster_id"]
        return existing
    if known is not None and zookeeper is not None:
        raise UserError(
            f"The data directories belong to cluster {known}, but ZooKeeper at {zookeeper} knows "
            "no cluster. Correct zookeeper.connect, or restore ZooKeeper from a backup; to join a "
            "new cluster without this data, use other directories or remove meta.properties."
        )
    cluster_id = known or format_uuid(new_uuid())
    value = tree.encode({"cluster_id": cluster_id})
    try:
        await broker.store.txn([], [Create(tree.CLUSTER, value)])
    except TxnConflict:  # another broker of a new cluster has created it first
        await asyncio.sleep(CLUSTER_ID_RETRY_S)
        return await ensure_cluster_id(broker, known, zookeeper=zookeeper)
    return cluster_id


async def join_cluster(
    broker: ControllerPorts,
    controller: Controller,
    follower: ImageFollower,
    *,
    endpoints: Mapping[str, tuple[str, int]],
    clean_shutdown: bool,
    found_topics: Sequence[FoundTopic] = (),
    first_ops: Sequence[Op] = (),
) -> BrokerRegistration:
    """Register a standalone broker and elect it leader of its partitions.

    Returns when the image shows the registration and the elections.

    Args:
        broker: The broker to register.
        controller: Commits the elections, and accepts changes from then on.
        follower: Applies the commits to the image.
        endpoints: Listener name to advertised host and port.
        clean_shutdown: Whether the previous run closed all its logs.
        found_topics: Topics to adopt; ignored if the cluster ever had a controller.
        first_ops: Further metadata to create with them.
    """
    registration, _ = await register(broker, endpoints, clean_shutdown)
    adopted = [*first_ops, *_adopt_ops(registration, found_topics)]
    await follower.applied(await _become_controller(broker, adopted))
    changes = decide_broker_returned(broker.image.topics.values(), registration)
    for batch in _batches(changes):
        await follower.applied(await controller.commit(*_leadership_ops(batch)))
    controller.begin()
    return registration


async def register(
    broker: ControllerPorts,
    endpoints: Mapping[str, tuple[str, int]],
    clean_shutdown: bool,
    replacing: Sequence[Check] | None = None,
    owner: str = "",
) -> tuple[BrokerRegistration, int]:
    """Register a new incarnation of this broker.

    Args:
        broker: The broker to register.
        endpoints: Listener name to host and port.
        clean_shutdown: Whether the last incarnation lost nothing that it had written.
        replacing: None, or checks which ensure that the process of a former session is dead; the
            new incarnation then replaces the nodes of that session.
        owner: Name of the data directories that this process has locked (`Broker.data_owner`).

    Returns:
        The registration, and the revision that contains it.

    Raises:
        TxnConflict: A check failed, or a former session of the broker still exists.
    """
    path = tree.registration_path(broker.node_id)
    nodes, _ = await broker.store.load(path)
    node = nodes.get(path)
    incarnation = 0 if node is None else node.version + 1
    registration = BrokerRegistration(
        id=broker.node_id,
        incarnation=incarnation,
        endpoints={name: Endpoint(*at) for name, at in endpoints.items()},
        rack=broker.config.broker_rack,
        clean_from=_clean_from(broker.node_id, node, clean_shutdown),
    )
    value = tree.encode_registration(registration)
    op: Op = Create(path, value) if node is None else Replace(path, value)
    live_value = tree.encode({"owner": owner} if owner else {})
    live = Create(tree.live_path(broker.node_id), live_value, ephemeral=True)
    checks = [Check(path, None if node is None else node.version)]
    ops: list[Op] = [op, live]
    if replacing is not None:
        held_checks, held_ops = await _held_by_former_session(broker)
        checks += [*replacing, *held_checks]
        ops = [Delete(live.path), *held_ops, *ops]
    return registration, await broker.store.txn(checks, ops)


async def _held_by_former_session(broker: ControllerPorts) -> tuple[list[Check], list[Op]]:
    """Return checks and operations that delete the other nodes of a session whose process is dead.

    They would last until ZooKeeper ends the session. Until then elections would skip the new
    incarnation as one that is shutting down, and it could act as the controller on a node that is
    about to disappear."""
    checks: list[Check] = []
    ops: list[Op] = []
    draining = tree.draining_path(broker.node_id)
    nodes, _ = await broker.store.load(draining)
    if draining in nodes:
        ops.append(Delete(draining))
    nodes, _ = await broker.store.load(tree.CONTROLLER)
    leader, epoch = nodes.get(tree.CONTROLLER_LEADER), nodes.get(tree.CONTROLLER_EPOCH)
    if leader is not None and epoch is not None and tree.decode(leader)["id"] == broker.node_id:
        # Every election changes the epoch, so this never deletes the node of another controller.
        checks.append(Check(tree.CONTROLLER_EPOCH, epoch.version))
        ops.append(Delete(tree.CONTROLLER_LEADER))
    return checks, ops


def _clean_from(node_id: int, node: Node | None, clean_shutdown: bool) -> int:
    if node is None:
        return 0
    if not clean_shutdown:
        return node.version + 1
    return tree.decode_registration(node_id, node, fenced=True).clean_from


async def _become_controller(broker: ControllerPorts, adopted: Iterable[Op]) -> int:
    nodes, _ = await broker.store.load(tree.CONTROLLER_EPOCH)
    node = nodes.get(tree.CONTROLLER_EPOCH)
    value = tree.encode({"controller_id": broker.node_id})
    leader = Create(tree.CONTROLLER_LEADER, tree.encode({"id": broker.node_id}), ephemeral=True)
    if node is not None:
        check = Check(tree.CONTROLLER_EPOCH, node.version)
        return await broker.store.txn([check], [leader, Replace(tree.CONTROLLER_EPOCH, value)])
    # The first controller of the cluster. The adopted topics are in the same transaction: a crash
    # in between loses none, and topics that are deleted later are not adopted again.
    first: list[Op] = [leader, Create(tree.CONTROLLER_EPOCH, value)]
    return await broker.store.txn([], [*first, *adopted])


def _adopt_ops(registration: BrokerRegistration, found: Iterable[FoundTopic]) -> list[Op]:
    state = new_partition([registration.id], {registration.id: registration})
    ops: list[Op] = []
    for topic in found:
        topic_id = new_uuid() if topic.topic_id == ZERO_UUID else topic.topic_id
        epochs = topic.leader_epochs or (0,) * topic.partition_count
        partitions = tuple(state._replace(leader_epoch=epoch) for epoch in epochs)
        ops += tree.create_topic_ops(TopicImage(topic.name, topic_id, topic.configs, partitions))
    return ops


def _batches(changes: Sequence[LeadershipChange]) -> Iterator[Sequence[LeadershipChange]]:
    for first in range(0, len(changes), MAX_OPS_PER_TXN):
        yield changes[first : first + MAX_OPS_PER_TXN]


def _leadership_ops(changes: Iterable[LeadershipChange]) -> tuple[list[Op], list[Check]]:
    ops: list[Op] = []
    checks = []
    for topic, partition, state in changes:
        path = tree.partition_path(topic.topic_id, partition)
        ops.append(Replace(path, tree.encode_partition(state)))
        checks.append(Check(path, state.partition_epoch))
    return ops, checks

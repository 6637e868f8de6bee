"""How a broker joins its cluster: it registers, becomes controller if there is none, leads again.

    1. /cluster: the cluster's id, created at the first start ever
    2. /registrations/<id>: endpoints and rack; its new version is the broker's new incarnation
       /live/<id>: gone with the session
       /controller/epoch, /controller/leader: a broker alone is always the controller
    3. the partitions that only this broker can lead (`core.controller.elections`)

Topics that lie in the log directories of a broker without any metadata (`adoption.py`) get their
nodes, with the ids they have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.cluster import BrokerRegistration, Endpoint, TopicImage
from ottla.base.metadata import Check, Create, Delete, Node, Op, Replace, TxnConflict
from ottla.base.types import ZERO_UUID, format_uuid, new_uuid
from ottla.broker.controller import ControlledBroker, Controller
from ottla.core.controller.elections import (
    LeadershipChange,
    decide_broker_returned,
    new_partition,
)
from ottla.metadata import tree
from ottla.metadata.follower import ImageFollower

CLUSTER_ID_RETRY_S = 0.1
MAX_OPS_PER_TXN = 20_000
"""Of one transaction of elections; the embedded store takes any number, memory is the limit."""


class FoundTopic(NamedTuple):
    """A topic that lies in the log directories."""

    name: str
    topic_id: bytes
    """ZERO_UUID if the directories do not tell."""
    partition_count: int
    configs: Mapping[str, str] = MappingProxyType({})
    leader_epochs: Sequence[int] = ()
    """Of each partition, to begin with; without any, 0."""


async def ensure_cluster_id(broker: ControlledBroker, known: str | None = None) -> str:
    """The cluster's id. At the first start it is `known` (from meta.properties), or a new one."""
    nodes, _ = await broker.store.load(tree.CLUSTER)
    node = nodes.get(tree.CLUSTER)
    if node is not None:
        existing: str = tree.decode(node)["cluster_id"]
        return existing
    cluster_id = known or format_uuid(new_uuid())
    value = tree.encode({"cluster_id": cluster_id})
    try:
        await broker.store.txn([], [Create(tree.CLUSTER, value)])
    except TxnConflict:  # another broker of a new cluster was faster
        await asyncio.sleep(CLUSTER_ID_RETRY_S)
        return await ensure_cluster_id(broker, known)
    return cluster_id


async def join_cluster(
    broker: ControlledBroker,
    controller: Controller,
    follower: ImageFollower,
    *,
    endpoints: Mapping[str, tuple[str, int]],
    clean_shutdown: bool,
    found_topics: Sequence[FoundTopic] = (),
    first_ops: Sequence[Op] = (),
) -> BrokerRegistration:
    """Returns when the image shows the broker registered and leading what it can lead.

    `found_topics` and `first_ops` are what a cluster without a past begins with; where there ever
    was a controller they are ignored."""
    registration, _ = await register(broker, endpoints, clean_shutdown)
    adopted = [*first_ops, *_adopt_ops(registration, found_topics)]
    await follower.applied(await _become_controller(broker, adopted))
    changes = decide_broker_returned(broker.image.topics.values(), registration)
    for batch in _batches(changes):
        await follower.applied(await controller.commit(*_leadership_ops(batch)))
    controller.begin()
    return registration


async def register(
    broker: ControlledBroker,
    endpoints: Mapping[str, tuple[str, int]],
    clean_shutdown: bool,
    replacing: Sequence[Check] | None = None,
    owner: str = "",
) -> tuple[BrokerRegistration, int]:
    """Register a new incarnation of this broker, and return the revision at which it is known.

    Args:
        broker: The broker to register.
        endpoints: Listener name to host and port.
        clean_shutdown: Whether the last incarnation lost nothing that it had written.
        replacing: None, or what makes it certain that the process of a former session is dead:
            the new incarnation takes the place of that session if these checks hold.
        owner: Name of the data directories that this process has locked (`Broker.data_owner`).
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


async def _held_by_former_session(broker: ControlledBroker) -> tuple[list[Check], list[Op]]:
    """Return how to delete the other nodes of a session whose process is dead.

    They would last until ZooKeeper ends the session: the new incarnation would be passed over as
    one that is shutting down, and would act as the controller on a node that soon disappears."""
    checks: list[Check] = []
    ops: list[Op] = []
    draining = tree.draining_path(broker.node_id)
    nodes, _ = await broker.store.load(draining)
    if draining in nodes:
        ops.append(Delete(draining))
    nodes, _ = await broker.store.load(tree.CONTROLLER)
    leader, epoch = nodes.get(tree.CONTROLLER_LEADER), nodes.get(tree.CONTROLLER_EPOCH)
    if leader is not None and epoch is not None and tree.decode(leader)["id"] == broker.node_id:
        # Every election moves the epoch, so the node of another controller is never deleted.
        checks.append(Check(tree.CONTROLLER_EPOCH, epoch.version))
        ops.append(Delete(tree.CONTROLLER_LEADER))
    return checks, ops


def _clean_from(node_id: int, node: Node | None, clean_shutdown: bool) -> int:
    if node is None:
        return 0
    if not clean_shutdown:
        return node.version + 1
    return tree.decode_registration(node_id, node, fenced=True).clean_from


async def _become_controller(broker: ControlledBroker, adopted: Iterable[Op]) -> int:
    nodes, _ = await broker.store.load(tree.CONTROLLER_EPOCH)
    node = nodes.get(tree.CONTROLLER_EPOCH)
    value = tree.encode({"controller_id": broker.node_id})
    leader = Create(tree.CONTROLLER_LEADER, tree.encode({"id": broker.node_id}), ephemeral=True)
    if node is not None:
        check = Check(tree.CONTROLLER_EPOCH, node.version)
        return await broker.store.txn([check], [leader, Replace(tree.CONTROLLER_EPOCH, value)])
    # The first controller ever. What it adopts is in the same transaction, so that topics which
    # are deleted later are not adopted again, and a crash in between forgets none.
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

"""In-memory image of the metadata tree: a broker's view of the cluster at one revision.

Each broker has one `ClusterImage`. It is changed only by `apply` and, for everything below
`/access/`, by `apply_access`, on the event loop; look-ups are plain dict accesses. The values in it
(`ottla.base.cluster`) are immutable.

Changes may arrive node by node. A topic appears once its node and all its partitions are known, and
keeps its previous partitions until all added ones are known. Readers never see an incomplete topic.

`apply` returns an `ImageDelta`: the changes that the broker has to react to. `apply_access` returns
an `AccessDelta`. A user whose node cannot be read has no credentials.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.base.acl import AclBinding
from ottla.base.cluster import (
    INTERNAL_TOPICS,
    NO_LEADER,
    BrokerRegistration,
    Endpoint,
    PartitionState,
    TopicImage,
    has_collision_characters,
    metric_name,
)
from ottla.base.delegation_token import DelegationToken
from ottla.base.metadata import Change, Node
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.base.types import parse_uuid
from ottla.metadata import tree
from ottla.metadata.acl_tree import ACLS, AclTree

logger = logging.getLogger(__name__)

NO_CONTROLLER = -1
NO_CONTROLLER_EPOCH = -1
"""Controller epoch of a new cluster, which has not had a controller yet."""


class PartitionChange(NamedTuple):
    topic: TopicImage
    partition: int
    old: PartitionState | None
    """The previous state, or None for a partition that was added to an existing topic."""
    new: PartitionState


@dataclass(slots=True)
class ImageDelta:
    """The difference between two revisions of an image. Empty deltas are false."""

    revision: int
    topics_deleted: list[TopicImage] = field(default_factory=list)
    topics_created: list[TopicImage] = field(default_factory=list)
    partitions_changed: list[PartitionChange] = field(default_factory=list)
    """Changed and added partitions of topics that existed before."""
    topic_configs_changed: list[TopicImage] = field(default_factory=list)
    broker_configs_changed: bool = False
    brokers_changed: bool = False
    controller_changed: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.topics_deleted
            or self.topics_created
            or self.partitions_changed
            or self.topic_configs_changed
            or self.broker_configs_changed
            or self.brokers_changed
            or self.controller_changed
        )


@dataclass(slots=True)
class AccessDelta:
    """Changes of who may use the cluster. Empty deltas are false."""

    users: set[str] = field(default_factory=set)
    """Users whose SCRAM credentials were added, changed or removed."""

    tokens: set[str] = field(default_factory=set)
    """IDs of delegation tokens that were created, changed or removed."""

    acls_added: list[AclBinding] = field(default_factory=list)
    acls_removed: list[AclBinding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.users or self.tokens or self.acls_added or self.acls_removed)


class ClusterImage:
    """A broker's view of the cluster's metadata. It implements `ClusterView`."""

    def __init__(self) -> None:
        self.revision = 0
        self.names_revision = 0
        """The revision of the last creation or deletion of a topic."""
        self.cluster_id: str | None = None
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = NO_CONTROLLER_EPOCH
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.draining: set[int] = set()
        """Brokers that are in a controlled shutdown."""
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        """Dynamic configs by resource name: a broker id, or '' for the cluster-wide default."""
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.scram: dict[str, Mapping[ScramMechanism, ScramCredential]] = {}
        """SCRAM credentials by user."""
        self.tokens: dict[str, DelegationToken] = {}
        """Delegation tokens by ID, including expired ones that have not been removed yet."""
        self.acls = AclTree()
        self.views: dict[Any, Any] = {}
        """Cache for cluster descriptions. Every `apply` clears it."""
        self.brokers_revision = 0
        """The revision of the last change of any broker."""
        self.presumed_dead: frozenset[int] = frozenset()
        """Brokers considered dead although their session has not ended. They are not in the tree;
        responses to clients report them as fenced, or leave them out."""
        self._scram_examples: dict[ScramMechanism, ScramCredential | None] = {}
        self._topic_nodes: dict[str, tree.TopicNode] = {}
        self._partition_states: dict[str, dict[int, PartitionState]] = {}
        self._registrations: dict[int, Node] = {}
        self._live: set[int] = set()
        self._names_by_metric_name: dict[str, str] = {}

    @property
    def live_brokers(self) -> Sequence[BrokerRegistration]:
        return [self.brokers[id] for id in sorted(self.brokers) if not self.brokers[id].fenced]

    def is_alive(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def set_presumed_dead(self, brokers: Iterable[int]) -> None:
        """Set the brokers that are considered dead although their session has not ended."""
        presumed_dead = frozenset(brokers)
        if presumed_dead != self.presumed_dead:
            self.presumed_dead = presumed_dead
            self.views.clear()

    def dynamic_configs(self, broker_id: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the dynamic configs of the broker, and the cluster-wide defaults."""
        return self.broker_configs.get(str(broker_id), {}), self.broker_configs.get("", {})

    def scram_credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return the credential of a user for a mechanism, or None if the user has none."""
        credentials = self.scram.get(user)
        return None if credentials is None else credentials.get(mechanism)

    def scram_example(self, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return the credential of the first user by name who has one for a mechanism, or None.

        It is the same on all brokers.
        """
        if mechanism not in self._scram_examples:
            users = (user for user, found in self.scram.items() if mechanism in found)
            first = min(users, default=None)
            self._scram_examples[mechanism] = (
                None if first is None else self.scram_credential(mechanism, first)
            )
        return self._scram_examples[mechanism]

    def colliding_topic(self, name: str) -> str | None:
        """Return another topic whose name differs only in `.` and `_`, or None."""
        found = self._names_by_metric_name.get(metric_name(name))
        return None if found == name else found

    # ----------------------------------------------------------------------------- applying changes

    def apply(self, revision: int, changes: Iterable[Change]) -> ImageDelta:
        """Apply a commit. Changes of paths outside of the image are ignored.

        Args:
            revision: The revision of the commit.
            changes: The changed nodes.

        Returns:
            The changes that the broker has to react to.
        """
        delta = ImageDelta(revision)
        touched_topics: dict[str, None] = {}
        touched_brokers: dict[int, None] = {}
        for path, node in changes:
            if path.startswith(tree.TOPICS):
                touched_topics[self._apply_topic_node(path, node)] = None
            elif path.startswith((tree.REGISTRATIONS, tree.LIVE)):
                touched_brokers[self._apply_broker_node(path, node)] = None
            elif path.startswith(tree.DRAINING):
                self._apply_draining(path, node, delta)
            elif path.startswith(tree.BROKER_CONFIGS):
                self._apply_broker_config(path, node, delta)
            elif path.startswith(tree.GROUP_CONFIGS):
                self._apply_group_config(path, node)
            elif path in self._SINGLE_NODES:
                self._SINGLE_NODES[path](self, node, delta)
        self._rebuild_topics(touched_topics, delta)
        self._rebuild_brokers(touched_brokers, delta)
        self.revision = revision
        self.views.clear()
        if delta.topics_created or delta.topics_deleted:
            self.names_revision = revision
        if delta.brokers_changed:
            self.brokers_revision = revision
        return delta

    def apply_access(self, changes: Iterable[Change]) -> AccessDelta:
        """Apply changes of paths below `/access/`. Other paths are ignored.

        Returns:
            The users, delegation tokens and ACLs that have changed.
        """
        delta = AccessDelta()
        of_acls: list[Change] = []
        for path, node in changes:
            if path.startswith(tree.SCRAM):
                self._apply_scram(path, node, delta)
            elif path.startswith(tree.TOKENS):
                self._apply_token(path, node, delta)
            elif path.startswith(ACLS):
                of_acls.append((path, node))
        if of_acls:
            delta.acls_added, delta.acls_removed = self.acls.apply(of_acls)
        return delta

    def _apply_token(self, path: str, node: Node | None, delta: AccessDelta) -> None:
        token_id = path[len(tree.TOKENS) :]
        token = None
        if node is not None:
            try:
                token = tree.decode_token(token_id, node)
            except (ValueError, LookupError, TypeError, AttributeError):
                logger.error("The node %s is malformed; the token cannot be used", path)
        if token is None:
            self.tokens.pop(token_id, None)
        else:
            self.tokens[token_id] = token
        delta.tokens.add(token_id)

    def _apply_scram(self, path: str, node: Node | None, delta: AccessDelta) -> None:
        user = tree.user_of_path(path)
        credentials: Mapping[ScramMechanism, ScramCredential] = {}
        if node is not None:
            try:
                credentials = tree.decode_scram(node)
            except (ValueError, LookupError, TypeError, AttributeError):  # no details: secret
                logger.error("The node %s is malformed; user '%s' cannot log in", path, user)
        if credentials:
            self.scram[user] = credentials
        else:
            self.scram.pop(user, None)
        self._scram_examples.clear()
        delta.users.add(user)

    def _apply_topic_node(self, path: str, node: Node | None) -> str:
        topic_id, _, partition = path[len(tree.TOPICS) :].partition("/")
        if not partition:
            if node is None:
                self._topic_nodes.pop(topic_id, None)
            else:
                self._topic_nodes[topic_id] = tree.decode_topic(node)
            return topic_id
        states = self._partition_states.setdefault(topic_id, {})
        if node is not None:
            states[int(partition)] = tree.decode_partition(node)
        else:
            states.pop(int(partition), None)
            if not states:
                del self._partition_states[topic_id]
        return topic_id

    def _apply_broker_node(self, path: str, node: Node | None) -> int:
        broker_id = int(path.rpartition("/")[2])
        if path.startswith(tree.LIVE):
            if node is None:
                self._live.discard(broker_id)
            else:
                self._live.add(broker_id)
        elif node is None:
            self._registrations.pop(broker_id, None)
        else:
            self._registrations[broker_id] = node
        return broker_id

    def _apply_draining(self, path: str, node: Node | None, delta: ImageDelta) -> None:
        broker_id = int(path[len(tree.DRAINING) :])
        if node is None:
            self.draining.discard(broker_id)
        else:
            self.draining.add(broker_id)
        delta.brokers_changed = True

    def _apply_group_config(self, path: str, node: Node | None) -> None:
        group_id = tree.group_of_path(path)
        if node is None:
            self.group_configs.pop(group_id, None)
        else:
            self.group_configs[group_id] = tree.decode(node)

    def _apply_broker_config(self, path: str, node: Node | None, delta: ImageDelta) -> None:
        name = path[len(tree.BROKER_CONFIGS) :]
        name = "" if name == tree.DEFAULT else name
        if node is None:
            self.broker_configs.pop(name, None)
        else:
            self.broker_configs[name] = tree.decode(node)
        delta.broker_configs_changed = True

    def _apply_cluster(self, node: Node | None, delta: ImageDelta) -> None:
        self.cluster_id = None if node is None else tree.decode(node)["cluster_id"]

    def _apply_controller_leader(self, node: Node | None, delta: ImageDelta) -> None:
        self.controller_id = NO_CONTROLLER if node is None else tree.decode(node)["id"]
        delta.controller_changed = True

    def _apply_controller_epoch(self, node: Node | None, delta: ImageDelta) -> None:
        self.controller_epoch = NO_CONTROLLER_EPOCH if node is None else node.version
        delta.controller_changed = True

    _SINGLE_NODES: dict[str, Callable[[ClusterImage, Node | None, ImageDelta], None]] = {  # noqa: RUF012
        tree.CLUSTER: _apply_cluster,
        tree.CONTROLLER_LEADER: _apply_controller_leader,
        tree.CONTROLLER_EPOCH: _apply_controller_epoch,
    }

    def _rebuild_brokers(self, touched: Iterable[int], delta: ImageDelta) -> None:
        for broker_id in touched:
            node = self._registrations.get(broker_id)
            new = node and tree.decode_registration(
                broker_id, node, fenced=broker_id not in self._live
            )
            if new == self.brokers.get(broker_id):
                continue
            delta.brokers_changed = True
            if new is None:
                del self.brokers[broker_id]
            else:
                self.brokers[broker_id] = new

    def _rebuild_topics(self, touched: Iterable[str], delta: ImageDelta) -> None:
        remaining = []
        for id_text in touched:  # deletions first: a new topic may reuse the name of a deleted one
            topic_id = parse_uuid(id_text)
            if id_text in self._topic_nodes:
                remaining.append((id_text, topic_id))
            elif (old := self.topics_by_id.pop(topic_id, None)) is not None:
                self._forget_name(old)
                delta.topics_deleted.append(old)
        for id_text, topic_id in remaining:
            self._rebuild_topic(id_text, topic_id, delta)

    def _rebuild_topic(self, id_text: str, topic_id: bytes, delta: ImageDelta) -> None:
        node = self._topic_nodes[id_text]
        old = self.topics_by_id.get(topic_id)
        partitions = self._known_partitions(id_text, node.partition_count, old)
        if partitions is None:
            return
        new = TopicImage(node.name, topic_id, node.configs, partitions, node.version)
        self.topics_by_id[topic_id] = new
        self.topics[new.name] = new
        if old is None:
            if has_collision_characters(new.name):
                self._names_by_metric_name[metric_name(new.name)] = new.name
            delta.topics_created.append(new)
            return
        if new.configs != old.configs:
            delta.topic_configs_changed.append(new)
        delta.partitions_changed += _partition_changes(old, new)

    def _known_partitions(
        self, id_text: str, count: int, old: TopicImage | None
    ) -> tuple[PartitionState, ...] | None:
        states = self._partition_states.get(id_text, {})
        if all(map(states.__contains__, range(count))):
            return tuple(map(states.__getitem__, range(count)))
        if old is None:
            return None
        return tuple(states.get(index, state) for index, state in enumerate(old.partitions))

    def _forget_name(self, topic: TopicImage) -> None:
        if self.topics.get(topic.name, topic).topic_id == topic.topic_id:
            self.topics.pop(topic.name, None)
        unified = metric_name(topic.name)
        if self._names_by_metric_name.get(unified) == topic.name:
            del self._names_by_metric_name[unified]


def _partition_changes(old: TopicImage, new: TopicImage) -> Iterable[PartitionChange]:
    known = len(old.partitions)
    for index, state in enumerate(new.partitions):
        before = old.partitions[index] if index < known else None
        if state != before:
            yield PartitionChange(new, index, before, state)


__all__ = [
    "INTERNAL_TOPICS",
    "NO_CONTROLLER",
    "NO_CONTROLLER_EPOCH",
    "NO_LEADER",
    "AccessDelta",
    "BrokerRegistration",
    "ClusterImage",
    "Endpoint",
    "ImageDelta",
    "PartitionChange",
    "PartitionState",
    "TopicImage",
]

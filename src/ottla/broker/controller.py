"""The admin side of the controller: decides on topics, partitions, configs and users, and commits.

    request ──► decide (core.controller, pure) ──► MetadataStore.txn, one per topic ──► image
                                                                                          │
    response ◄── ImageFollower.applied: image and broker are up to date ◄─────────────────┘

Invariants
1. One change at a time: a decision reads an image that no other admin change is about to alter. The
   lock is held until the outcome is known, even if the client has stopped waiting.
2. Every commit checks the controller epoch: once another broker is the controller, ours fail.
3. A change is answered after this broker has reacted to it. A client that creates a topic and then
   produces to it finds the log in place.
4. Nothing is decided until the broker has joined its cluster: changes wait for `begin`. A broker
   listens before it registers, because its ports are part of the registration.
5. Changes of who may use the cluster have a lock of their own, and are answered as soon as the
   image shows them. They depend on nothing else, so they do not wait while thousands of logs are
   opened (`ottla.metadata.follower`)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, TypeVar

from ottla.base.cluster import ClusterView, ElectionType, TopicImage
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.resource import ResourceType
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.metadata import Check, Create, Op, Replace, TxnConflict
from ottla.base.types import TopicPartition, new_uuid
from ottla.broker.forwarding import Sender
from ottla.broker.ports import Configuration, Metadata, NodeId, Store
from ottla.broker.quotas import MutationQuota
from ottla.core.controller.acls import (
    AclFields,
    DeletedAcls,
    NewAcls,
    decide_create_acls,
    decide_delete_acls,
)
from ottla.core.controller.alter_configs import (
    ConfigDecision,
    ConfigRequest,
    Configs,
    canonical_broker_name,
    decide_alter_configs,
)
from ottla.core.controller.create_partitions import (
    PartitionIncrease,
    PartitionsDecision,
    decide_create_partitions,
)
from ottla.core.controller.create_topics import (
    Inputs,
    NewTopic,
    TopicDecision,
    decide_create_topics,
)
from ottla.core.controller.delete_topics import (
    DeleteDecision,
    TopicReference,
    decide_delete_topics,
)
from ottla.core.controller.elect_leaders import (
    ElectionDecision,
    decide_elections,
)
from ottla.core.controller.elections import Brokers
from ottla.core.controller.internal_topics import internal_topic
from ottla.core.controller.live_cluster_view import LiveClusterView
from ottla.core.controller.quotas import (
    QuotaAlteration,
    QuotaDecision,
    decide_alter_quotas,
)
from ottla.core.controller.reassignment import (
    ReassignmentDecision,
    ReassignmentRequest,
    decide_reassignments,
)
from ottla.core.controller.scram import (
    ScramDecision,
    ScramDeletion,
    ScramUpsertion,
    decide_alter_scram,
)
from ottla.metadata import tree
from ottla.metadata.follower import ImageFollower

logger = logging.getLogger(__name__)

ALLOCATION_TRIES = 50
ALLOCATION_RETRY_S = 0.05
STATE_TRIES = 50
STATE_RETRY_S = 0.05
PRODUCER_ID_BLOCK = 1000
MAX_TXN_BYTES = 768 * 1024
"""Size limit of a transaction on users. ZooKeeper closes connections that send more than 1 MiB."""

T = TypeVar("T")
Decision = TypeVar(
    "Decision",
    TopicDecision,
    DeleteDecision,
    PartitionsDecision,
    ConfigDecision,
    ElectionDecision,
    ReassignmentDecision,
)


StateDecision = TypeVar("StateDecision", ElectionDecision, ReassignmentDecision)


CheckSettings: TypeAlias = Callable[[BrokerConfig], Awaitable[None]]
"""Function that raises KafkaError if the broker cannot use a configuration."""


class Overtaken(KafkaError):
    """A state changed between the decision and the commit."""


class ControllerPorts(Configuration, Metadata, NodeId, Store, Protocol):
    """The parts of a broker that the controller uses."""


class ControllerCluster(Protocol):
    """The cluster's view of the controller and of the live brokers."""

    @property
    def is_controller(self) -> bool: ...

    @property
    def brokers(self) -> Brokers:
        """The brokers as elections see them."""

    def dead_brokers(self) -> Collection[int]:
        """Return the brokers whose lease has expired."""

    async def forward_create_topics(
        self, requested: Sequence[NewTopic], sender: Sender | None
    ) -> list[TopicDecision]:
        """Have the controller create topics. Raises KafkaError."""


class Controller:
    """The part of the controller that serves admin requests."""

    def __init__(
        self,
        broker: ControllerPorts,
        follower: ImageFollower,
        *,
        new_id: Callable[[], bytes] = new_uuid,
        draw: Callable[[int], int] = random.randrange,
        cluster: ControllerCluster | None = None,
        check_settings: CheckSettings | None = None,
    ) -> None:
        """Create a controller that waits for `begin`.

        Args:
            broker: The broker it runs in.
            follower: Applies commits to the image.
            new_id: Generates topic IDs.
            draw: Returns a random number below its argument, for replica placement.
            cluster: None if the store is embedded, so that there is no other broker.
            check_settings: Checks the properties that are about to apply to this broker.
        """
        self._broker = broker
        self._follower = follower
        self._new_id = new_id
        self._draw = draw
        self._cluster = cluster
        self._check_settings = check_settings
        self._lock = asyncio.Lock()
        self._access_lock = asyncio.Lock()
        self._begun = asyncio.Event()
        self._running: set[asyncio.Task[object]] = set()

    def begin(self) -> None:
        """Accept changes: the broker has joined its cluster, and the image shows it."""
        self._begun.set()

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    async def wait_until_begun(self) -> None:
        await self._begun.wait()

    # ------------------------------------------------------------------------- admin changes

    async def create_topics(
        self,
        requested: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int = 0,
        quota: MutationQuota | None = None,
    ) -> list[TopicDecision]:
        """Create topics.

        Args:
            requested: The topics to create.
            validate_only: Check the requests without creating anything.
            timeout_ms: How long to wait for the change; 0 waits without a limit.
            quota: The client's quota, from which a token is taken for each partition.

        Returns:
            One decision per topic, with an error if it was refused.

        Raises:
            KafkaError: NOT_CONTROLLER, or REQUEST_TIMED_OUT while the change continues.
        """

        async def change() -> list[TopicDecision]:
            decisions = decide_create_topics(self._live_view(), requested, self._inputs())
            decisions = _within_quota(decisions, quota, _created_partitions)
            if validate_only:
                return decisions
            return await self._commit_all(decisions, _create_topic_ops)

        return await self._serialised(change, timeout_ms)

    async def auto_create_topics(
        self,
        names: Iterable[str],
        sender: Sender | None = None,
        quota: MutationQuota | None = None,
    ) -> list[TopicDecision]:
        """Create topics with the broker's defaults; internal topics have their own.

        A broker that is not the controller asks the controller.

        Args:
            names: The topics to create.
            sender: The client that needs them, whose permissions have been checked here and are
                checked again by another controller; None if this broker needs them.
            quota: The quota of the client. Another controller applies its own.

        Returns:
            One decision per topic, with an error if it was refused.

        Raises:
            KafkaError: NOT_CONTROLLER.
        """
        config = self._broker.config
        most_replicas = 1 if self._cluster is None else None
        requested = [
            internal_topic(name, config, most_replicas) or NewTopic(name) for name in names
        ]
        if self._cluster is not None and not self._cluster.is_controller:
            return await self._cluster.forward_create_topics(requested, sender)
        return await self.create_topics(requested, quota=quota)

    async def delete_topics(
        self,
        references: Sequence[TopicReference],
        *,
        timeout_ms: int = 0,
        quota: MutationQuota | None = None,
    ) -> list[DeleteDecision]:
        async def change() -> list[DeleteDecision]:
            enabled = self._broker.config.delete_topic_enable
            decisions = decide_delete_topics(self._broker.image, references, enabled=enabled)
            decisions = _within_quota(decisions, quota, _deleted_partitions)
            return await self._commit_all(decisions, _delete_topic_ops)

        return await self._serialised(change, timeout_ms)

    async def create_partitions(
        self,
        requested: Sequence[PartitionIncrease],
        *,
        validate_only: bool = False,
        timeout_ms: int = 0,
        quota: MutationQuota | None = None,
    ) -> list[PartitionsDecision]:
        async def change() -> list[PartitionsDecision]:
            decisions = decide_create_partitions(self._live_view(), requested)
            decisions = _within_quota(decisions, quota, _added_partitions)
            if validate_only:
                return decisions
            return await self._commit_all(decisions, _add_partitions_ops)

        return await self._serialised(change, timeout_ms)

    async def alter_configs(
        self, requested: Sequence[ConfigRequest], *, validate_only: bool = False
    ) -> list[ConfigDecision]:
        async def change() -> list[ConfigDecision]:
            broker = self._broker
            image = broker.image
            present = Configs(
                image.broker_configs, broker.config, broker.node_id, image.group_configs
            )
            decisions = [
                await self._usable(each)
                for each in decide_alter_configs(broker.image, present, requested)
            ]
            if validate_only:
                return decisions
            return await self._commit_all(decisions, self._config_ops)

        return await self._serialised(change)

    async def unusable_configs(self, requested: Sequence[ConfigRequest]) -> list[ConfigDecision]:
        """Return the rejections of changes of this broker's configs that it cannot use."""
        broker, image = self._broker, self._broker.image
        present = Configs(image.broker_configs, broker.config, broker.node_id, image.group_configs)
        decisions = decide_alter_configs(image, present, requested)
        checked = [await self._usable(each) for each in decisions if each.error is None]
        return [each for each in checked if each.error is not None]

    async def _usable(self, decision: ConfigDecision) -> ConfigDecision:
        """Return the decision, or a rejection if this broker cannot use the new properties."""
        broker, kind = self._broker, decision.resource_type
        if self._check_settings is None or kind != ResourceType.BROKER or decision.configs is None:
            return decision
        name, own = canonical_broker_name(decision.resource_name), str(broker.node_id)
        after = {**broker.image.broker_configs, name: decision.configs}
        try:
            config = broker.config.with_dynamic(after.get("", {}), after.get(own, {}))
            await self._check_settings(config)
        except KafkaError as error:
            return ConfigDecision(kind, decision.resource_name, error=error)
        return decision

    async def elect_leaders(
        self,
        kind: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int = 0,
    ) -> list[ElectionDecision]:
        async def change() -> list[ElectionDecision]:
            return await self._commit_states(
                lambda: decide_elections(self._broker.image, self._brokers(), kind, partitions)
            )

        return await self._serialised(change, timeout_ms)

    async def alter_reassignments(
        self,
        requested: Sequence[ReassignmentRequest],
        *,
        may_change_factor: bool = True,
        timeout_ms: int = 0,
    ) -> list[ReassignmentDecision]:
        async def change() -> list[ReassignmentDecision]:
            return await self._commit_states(
                lambda: decide_reassignments(
                    self._broker.image,
                    self._brokers(),
                    requested,
                    may_change_factor=may_change_factor,
                )
            )

        return await self._serialised(change, timeout_ms)

    async def alter_scram_credentials(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> list[ScramDecision]:
        """Change the SCRAM credentials of users, in one transaction.

        Returns:
            One decision per user, with an error if it was refused.

        Raises:
            KafkaError: NOT_CONTROLLER, or the change could not be committed.
        """

        async def change() -> list[ScramDecision]:
            current = self._broker.image.scram
            decisions = decide_alter_scram(current, deletions, upsertions)
            new = {
                each.user: each.credentials for each in decisions if each.credentials is not None
            }
            ops = tree.scram_ops(current, new)
            if _size_of(ops) > MAX_TXN_BYTES:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    "The request alters too many credentials at once. Send several smaller ones.",
                )
            if ops:
                await self._follower.access_applied(await self.commit(ops))
            return decisions

        return await self._serialised(change, lock=self._access_lock)

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[QuotaDecision]:
        """Change client quotas, in one transaction.

        Args:
            alterations: The changes of entities.
            validate_only: Check the changes without making them.

        Returns:
            One decision per alteration, with an error if it was refused.

        Raises:
            KafkaError: NOT_CONTROLLER, or the change could not be committed.
        """

        async def change() -> list[QuotaDecision]:
            current = self._broker.image.quotas
            decisions = decide_alter_quotas(current, alterations)
            new = {
                each.entity: each.values
                for each in decisions
                if each.entity is not None and each.values is not None
            }
            ops = tree.quota_ops(current, new)
            if _size_of(ops) > MAX_TXN_BYTES:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    "The request alters too many quotas at once. Send several smaller ones.",
                )
            if ops and not validate_only:
                await self._follower.access_applied(await self.commit(ops))
            return decisions

        return await self._serialised(change, lock=self._access_lock)

    async def create_acls(self, requested: Sequence[AclFields]) -> NewAcls:
        """Create ACLs, in one transaction.

        Raises:
            KafkaError: NOT_CONTROLLER, or the change could not be committed.
        """

        async def change() -> NewAcls:
            acls = self._broker.image.acls
            decision = decide_create_acls(acls.bindings, requested)
            await self._commit_acls(*acls.ops_to_add(decision.added))
            return decision

        return await self._serialised(change, lock=self._access_lock)

    async def delete_acls(self, filters: Sequence[AclFields]) -> DeletedAcls:
        """Delete ACLs, in one transaction.

        Raises:
            KafkaError: NOT_CONTROLLER, or the change could not be committed.
        """

        async def change() -> DeletedAcls:
            acls = self._broker.image.acls
            decision = decide_delete_acls(acls.bindings, filters)
            await self._commit_acls(*acls.ops_to_remove(decision.removed))
            return decision

        return await self._serialised(change, lock=self._access_lock)

    async def _commit_acls(self, ops: Sequence[Op], checks: Sequence[Check]) -> None:
        if not ops:
            return
        if _size_of(ops) > MAX_TXN_BYTES:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "The request changes too many ACLs at once. Send several smaller ones.",
            )
        await self._follower.access_applied(await self.commit(ops, checks))

    async def change_access(self, decide: Callable[[], tuple[T, Sequence[Op]]]) -> T:
        """Change who may use the cluster, in one transaction.

        Args:
            decide: Returns a result and the operations to commit. It is called when the changes
                before this one are in the image, and may raise KafkaError.

        Returns:
            The result of `decide`, once the image shows the change.

        Raises:
            KafkaError: NOT_CONTROLLER, or the change could not be committed.
        """

        async def change() -> T:
            result, ops = decide()
            if ops:
                await self._follower.access_applied(await self.commit(ops))
            return result

        return await self._serialised(change, lock=self._access_lock)

    def _brokers(self) -> Brokers:
        if self._cluster is not None:
            return self._cluster.brokers
        known = self._broker.image.brokers
        alive = {each.id for each in self._broker.image.live_brokers}
        return Brokers(known, alive, alive)

    def _leader_ops(
        self, decision: ElectionDecision | ReassignmentDecision
    ) -> tuple[list[Op], list[Check]]:
        state = decision.state
        if state is None:
            return [], []
        path = tree.partition_path(_required(decision.topic).topic_id, decision.partition.partition)
        checks = [Check(path, state.partition_epoch)]
        leader = self._broker.image.brokers.get(state.leader)
        if leader is not None:
            checks.append(Check(tree.registration_path(leader.id), leader.incarnation))
        return [Replace(path, tree.encode_partition(state))], checks

    async def allocate_producer_ids(self, count: int = PRODUCER_ID_BLOCK) -> range:
        """Reserve a block of producer IDs that no broker has used or will use again."""

        async def change() -> range:
            store, path = self._broker.store, tree.PRODUCER_IDS
            for _ in range(ALLOCATION_TRIES):
                nodes, _ = await store.load(path)
                node = nodes.get(path)
                first = 0 if node is None else tree.decode(node)["next"]
                value = tree.encode({"next": first + count})
                op: Op = Create(path, value) if node is None else Replace(path, value)
                try:
                    await store.txn([Check(path, None if node is None else node.version)], [op])
                except TxnConflict:
                    # Another broker was faster; its write will be visible soon.
                    await asyncio.sleep(ALLOCATION_RETRY_S)
                else:
                    return range(first, first + count)
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "Another broker allocated producer IDs at the same time.",
            )

        return await self._serialised(change, any_broker=True)

    # ---------------------------------------------------------------------------- committing

    async def commit(self, ops: Sequence[Op], checks: Sequence[Check] = ()) -> int:
        """Commit as the controller.

        Args:
            ops: The changes to make.
            checks: Versions that the decision was based on.

        Returns:
            The revision of the commit.

        Raises:
            Overtaken: What the decision was based on has changed.
            KafkaError: NOT_CONTROLLER if this is not the controller any more.
        """
        controller_checks = tree.controller_checks(self._broker.image.controller_epoch)
        try:
            return await self._broker.store.txn([*controller_checks, *checks], ops)
        except TxnConflict as conflict:
            is_overtaken = conflict.path in {each.path for each in (*checks, *ops)}
            kind = Overtaken if is_overtaken else KafkaError
            raise kind(
                ErrorCode.NOT_CONTROLLER, f"The cluster changed during the request: {conflict}."
            ) from None

    async def close(self, grace_s: float | None = None) -> None:
        """Wait up to `grace_s` seconds for the changes in progress, and drop those that have not
        begun."""
        if not self._begun.is_set():
            for task in self._running:
                task.cancel()
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            logger.warning("Cancelled %d changes whose outcome is unknown", len(late))
            await asyncio.wait(late)

    async def _commit_all(
        self,
        decisions: list[Decision],
        ops_of: Callable[[Decision], tuple[list[Op], list[Check]]],
    ) -> list[Decision]:
        """Commit every decision without an error. A commit that fails turns its decision into an
        error."""
        accepted = [index for index, each in enumerate(decisions) if each.error is None]
        outcomes = await asyncio.gather(
            *(self._commit_one(*ops_of(decisions[index])) for index in accepted),
            return_exceptions=True,
        )
        latest = max((each for each in outcomes if isinstance(each, int)), default=0)
        await self._follower.applied(latest)
        results = list(decisions)
        for index, outcome in zip(accepted, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                results[index] = replace(decisions[index], error=_as_kafka_error(outcome))
        return results

    async def _commit_states(
        self, decide: Callable[[], list[StateDecision]]
    ) -> list[StateDecision]:
        """Commit decisions on the states of partitions.

        Elections and changes of the ISR alter the same states and do not wait for admin changes.
        Partitions that they have altered meanwhile are decided again, as soon as the image shows
        the alteration."""
        decisions = await self._commit_all(decide(), self._leader_ops)
        for _ in range(STATE_TRIES):
            overtaken = {each.partition for each in decisions if isinstance(each.error, Overtaken)}
            if not overtaken:
                break
            await asyncio.sleep(STATE_RETRY_S)
            again = [each for each in decide() if each.partition in overtaken]
            results = {
                each.partition: each for each in await self._commit_all(again, self._leader_ops)
            }
            decisions = [
                results.get(each.partition, each)
                for each in decisions
                # `decide` leaves out elections that are not needed any more.
                if each.partition in results or each.partition not in overtaken
            ]
        return decisions

    async def _commit_one(self, ops: list[Op], checks: list[Check]) -> int:
        """Return the revision of the commit; 0 if there is nothing to change."""
        return await self.commit(ops, checks) if ops else 0

    def _config_ops(self, decision: ConfigDecision) -> tuple[list[Op], list[Check]]:
        configs = decision.configs or {}
        if decision.topic is not None:
            topic = decision.topic
            value = tree.encode_topic(topic.name, configs, len(topic.partitions))
            return [Replace(tree.topic_path(topic.topic_id), value)], [tree.topic_unchanged(topic)]
        if decision.resource_type == ResourceType.GROUP:
            path, value = tree.group_config_path(decision.resource_name), tree.encode(configs)
            if decision.resource_name in self._broker.image.group_configs:
                return [Replace(path, value)], []
            return [Create(path, value)], []
        name = canonical_broker_name(decision.resource_name)
        path, value = tree.broker_config_path(name), tree.encode(configs)
        if name in self._broker.image.broker_configs:
            return [Replace(path, value)], []
        return [Create(path, value)], []

    def _live_view(self) -> ClusterView:
        """Return the image with dead brokers shown as fenced."""
        image = self._broker.image
        return (
            image if self._cluster is None else LiveClusterView(image, self._cluster.dead_brokers())
        )

    def _inputs(self) -> Inputs:
        return Inputs(self._broker.config, self._new_id, self._draw)

    async def _serialised(
        self,
        change: Callable[[], Awaitable[T]],
        timeout_ms: int = 0,
        *,
        any_broker: bool = False,
        lock: asyncio.Lock | None = None,
    ) -> T:
        """Run one change, which continues if the caller stops waiting (invariant 1).

        Only the controller may do this, except for changes by `any_broker` (producer IDs)."""

        async def locked() -> T:
            await self._begun.wait()
            async with lock or self._lock:
                if not any_broker and self._cluster is not None and not self._cluster.is_controller:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
                return await change()

        task = asyncio.create_task(locked(), name="controller-change")
        self._running.add(task)
        task.add_done_callback(self._finished)
        timeout = timeout_ms / 1000 if timeout_ms > 0 else None
        await asyncio.wait([task], timeout=timeout)
        if not task.done():
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The change did not complete within {timeout_ms} ms; it continues in the "
                "background.",
            )
        if task.cancelled():
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping.")
        return task.result()

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("A change by the controller failed: %s", error)


def _size_of(ops: Sequence[Op]) -> int:
    return sum(len(op.path) + len(getattr(op, "value", b"")) for op in ops)


TopicChange = TypeVar("TopicChange", TopicDecision, DeleteDecision, PartitionsDecision)


def _within_quota(
    decisions: list[TopicChange],
    quota: MutationQuota | None,
    partitions_of: Callable[[TopicChange], int],
) -> list[TopicChange]:
    """Return the decisions, with an error for each that the client's quota does not admit."""
    if quota is None:
        return decisions
    return [
        each
        if each.error is not None or quota.admits(partitions_of(each))
        else replace(each, error=quota.error())
        for each in decisions
    ]


def _created_partitions(decision: TopicDecision) -> int:
    return len(_required(decision.topic).partitions)


def _deleted_partitions(decision: DeleteDecision) -> int:
    return len(_required(decision.topic).partitions)


def _added_partitions(decision: PartitionsDecision) -> int:
    return len(decision.added)


def _create_topic_ops(decision: TopicDecision) -> tuple[list[Op], list[Check]]:
    return tree.create_topic_ops(_required(decision.topic)), []


def _delete_topic_ops(decision: DeleteDecision) -> tuple[list[Op], list[Check]]:
    topic = _required(decision.topic)
    return tree.delete_topic_ops(topic), [tree.topic_unchanged(topic)]


def _add_partitions_ops(decision: PartitionsDecision) -> tuple[list[Op], list[Check]]:
    topic = _required(decision.topic)
    return tree.add_partitions_ops(topic, decision.added), [tree.topic_unchanged(topic)]


def _required(topic: TopicImage | None) -> TopicImage:
    assert topic is not None, "a decision without an error has a topic"
    return topic


def _as_kafka_error(error: BaseException) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    if not isinstance(error, Exception):
        raise error
    logger.error("A change by the controller failed", exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The change failed: {error}")

"""Member of a classic group.

It runs two tasks. One joins and syncs, then waits for a reason to rejoin. The other sends
heartbeats, whatever the user is doing, and checks that the user still polls. After
`max.poll.interval.ms` without a poll it leaves the group, so that other members get the partitions;
the next poll rejoins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.backoff import Backoff
from ottla.client.cluster import Cluster, CoordinatorType
from ottla.client.consumer import protocol
from ottla.client.consumer.assignors import ASSIGNORS, Assignor
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.membership import PollProgress, Reaction, plan, reaction_to
from ottla.client.consumer.rebalance import Rebalances
from ottla.client.consumer.record import GroupMetadata
from ottla.client.consumer.subscription import Subscription
from ottla.client.errors import ClientError, ConnectionLost, KafkaTimeout, error_for
from ottla.wire import rpc
from ottla.wire.api import Api
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.join_group import JoinGroupResponse
    from ottla.wire.messages.sync_group import SyncGroupRequestAssignmentDict

T = TypeVar("T")

logger = logging.getLogger(__name__)

PROTOCOL_TYPE = "consumer"
JOIN_SLACK_MS = 5_000
"""Time that a JoinGroup response may take beyond the rebalance timeout."""
LEAVE_TIMEOUT_MS = 5_000


class _StartOver(Exception):
    """The group no longer knows this member."""


class ClassicMember:
    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: Subscription,
        rebalances: Rebalances,
        progress: PollProgress,
        on_failure: Callable[[ClientError], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._subscription = subscription
        self._rebalances = rebalances
        self._progress = progress
        self._on_failure = on_failure
        self._assignors: list[Assignor] = [ASSIGNORS[name] for name in config.assignors]
        self._is_cooperative = all(each.is_cooperative for each in self._assignors)
        self._member_id = ""
        self._generation = protocol.NO_GENERATION
        self._last_owned: tuple[TopicPartition, ...] = ()
        """Partitions owned in the last generation, for the sticky assignor."""
        self._last_generation = protocol.NO_GENERATION
        self._is_joining = False
        self._is_leader = False
        self._counts: dict[str, int] = {}
        """Partition counts at the last assignment, by topic, if this member is the leader."""
        self._reason = ""
        self._rejoin_needed = asyncio.Event()
        self._polled = asyncio.Event()
        self._must_start_over = False
        self._tasks = [
            asyncio.create_task(self._run()),
            asyncio.create_task(self._heartbeat_loop()),
        ]

    # ------------------------------------------------------------------- called by the consumer

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(
            self._config.group_id, self._generation, self._member_id, self._instance_id
        )

    @property
    def _instance_id(self) -> str | None:
        return self._config.group_instance_id or None

    def subscription_changed(self) -> None:
        self._rejoin("the subscription changed")

    def metadata_changed(self) -> None:
        """Trigger a rebalance if this member is the leader and partition counts have changed."""
        if (
            self._is_leader
            and self._counts
            and self._partition_counts(self._counts) != self._counts
        ):
            self._rejoin("the partitions of a subscribed topic changed")

    def polled(self) -> None:
        self._polled.set()

    async def close(self, *, leave: bool = True) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if leave and self._member_id and self._instance_id is None:
            await self._leave("the consumer is being closed")

    # ----------------------------------------------------------------------------------- joining

    async def _run(self) -> None:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        while True:
            try:
                await self._join_and_sync()
                backoff.reset()
                await self._rejoin_needed.wait()
                if self._must_start_over:
                    raise _StartOver
            except _StartOver:
                await self._start_over()
            except (ConnectionLost, KafkaTimeout) as error:
                logger.debug("group %s: %s", self._config.group_id, error)
                await asyncio.sleep(backoff.next_s())
            except KafkaError as error:
                if not error.retriable:
                    self._fail(error)
                    return
                logger.debug("group %s: %s", self._config.group_id, error)
                await asyncio.sleep(backoff.next_s())
            except ValueError as error:  # another member's metadata is malformed
                self._fail(ClientError(str(error), code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
                return

    async def _join_and_sync(self) -> None:
        """Join, sync, and apply the assignment."""
        owned = tuple(sorted(self._subscription.assignment))
        if not self._is_cooperative and owned:
            await self._rebalances.revoked(owned)
            owned = ()
        self._rejoin_needed.clear()
        reason, self._reason = self._reason, ""
        self._is_joining = True
        try:
            joined = await self._join(owned, reason)
            assigned = await self._sync(joined)
        finally:
            self._is_joining = False
        self._last_owned, self._last_generation = assigned, self._generation
        await self._apply_assignment(owned, assigned)

    async def _apply_assignment(
        self, owned: Sequence[TopicPartition], assigned: Sequence[TopicPartition]
    ) -> None:
        change = plan(owned, assigned)
        logger.info("group %s, generation %d: %d partitions, %d new, %d revoked",
                    self._config.group_id, self._generation, len(assigned), len(change.add),
                    len(change.revoke))  # fmt: skip
        await self._rebalances.revoked(change.revoke)
        await self._rebalances.assigned(change.add)
        if change.needs_another_round:
            self._rejoin("other members wait for the revoked partitions")

    async def _join(self, owned: Sequence[TopicPartition], reason: str) -> JoinGroupResponse:
        while True:
            config = self._config
            request = rpc.join_group(
                group_id=config.group_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    {"name": each.name, "metadata": self._subscription_of(each, owned)}
                    for each in self._assignors
                ],
                reason=reason[:255],
            )
            response = await self._call(
                request, timeout_ms=config.max_poll_interval_ms + JOIN_SLACK_MS
            )
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
                continue
            self._check(Api.JOIN_GROUP, response.error_code)
            self._member_id = response.member_id
            self._generation = response.generation_id
            self._is_leader = response.leader == response.member_id
            return response

    def _subscription_of(self, assignor: Assignor, owned: Sequence[TopicPartition]) -> bytes:
        return protocol.encode_subscription(
            self._subscription.topics,
            owned,
            self._last_generation if owned else protocol.NO_GENERATION,
            assignor.user_data(self._last_owned, self._last_generation),
            self._config.client_rack or None,
        )

    async def _sync(self, joined: JoinGroupResponse) -> tuple[TopicPartition, ...]:
        assignments: list[SyncGroupRequestAssignmentDict] = []
        if self._is_leader:
            shares = await self._compute_assignment(joined)
            if not joined.skip_assignment:
                assignments = [
                    {"member_id": member, "assignment": protocol.encode_assignment(partitions)}
                    for member, partitions in shares.items()
                ]
        request = rpc.sync_group(
            group_id=self._config.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        timeout_ms = self._config.max_poll_interval_ms + JOIN_SLACK_MS
        response = await self._call(request, timeout_ms=timeout_ms)
        self._check(Api.SYNC_GROUP, response.error_code)
        return protocol.decode_assignment(response.assignment)

    async def _compute_assignment(
        self, joined: JoinGroupResponse
    ) -> dict[str, list[TopicPartition]]:
        """Compute the assignment, as the leader."""
        assignor = ASSIGNORS[joined.protocol_name or ""]
        members = {
            member.member_id: protocol.decode_subscription(
                member.metadata, member.group_instance_id
            )
            for member in joined.members
        }
        topics = {topic for subscription in members.values() for topic in subscription.topics}
        if self._cluster.topics_of_interest is not None:
            self._cluster.topics_of_interest |= topics
        await self._cluster.refresh(topics)
        self._counts = self._partition_counts(topics)
        known = {topic: count for topic, count in self._counts.items() if count}
        return assignor.assign(known, members)

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._cluster.metadata.topics
        return {
            name: known[name].partition_count if name in known else 0 for name in sorted(topics)
        }

    def _rejoin(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._rejoin_needed.set()

    async def _start_over(self) -> None:
        """Reset the membership after the group removed this member; its partitions are lost."""
        logger.info(
            "group %s no longer contains member %s, joining again",
            self._config.group_id,
            self._member_id,
        )
        self._must_start_over = False
        self._generation = protocol.NO_GENERATION
        if self._instance_id is None:
            self._member_id = ""
        self._last_owned, self._last_generation = (), protocol.NO_GENERATION
        await self._rebalances.lost(sorted(self._subscription.assignment))

    # -------------------------------------------------------------------------------- heartbeats

    async def _heartbeat_loop(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._config.heartbeat_interval_ms / 1000
        max_idle_s = self._config.max_poll_interval_ms / 1000
        pause_s = min(interval_s, max_idle_s / 2)
        last_sent = loop.time()
        while True:
            await asyncio.sleep(pause_s)
            if self._progress.idle_s(loop.time()) > max_idle_s and self._member_id:
                await self._leave_overdue()
                continue
            if self._generation < 0 or self._is_joining or self._must_start_over:
                continue
            if loop.time() - last_sent + 0.001 >= interval_s:
                last_sent = loop.time()
                await self._heartbeat()

    async def _heartbeat(self) -> None:
        request = rpc.heartbeat(
            group_id=self._config.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        generation = self._generation
        try:
            response = await self._call(request, timeout_ms=self._config.session_timeout_ms)
        except KafkaError as error:
            logger.debug("a heartbeat failed: %s", error)
            return
        if generation != self._generation or self._is_joining:
            return  # a new round has started meanwhile
        try:
            self._check(Api.HEARTBEAT, response.error_code)
        except _StartOver:
            self._must_start_over = True
            self._rebalances.convert_revoked_to_lost()
            self._rejoin_needed.set()
        except KafkaError as error:
            if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin("the group is rebalancing")
            elif not error.retriable:
                self._fail(error)

    async def _leave_overdue(self) -> None:
        """Leave the group because the user does not poll, and rejoin at the next poll."""
        logger.warning(
            "group %s: no poll for more than max.poll.interval.ms (%d): leaving the group",
            self._config.group_id,
            self._config.max_poll_interval_ms,
        )
        runner = self._tasks[0]
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)
        if self._instance_id is None:  # a static member stays until its session times out
            await self._leave("max.poll.interval.ms was exceeded")
        self._rebalances.convert_revoked_to_lost()
        self._polled.clear()
        self._tasks[0] = asyncio.create_task(self._rejoin_on_poll())

    async def _rejoin_on_poll(self) -> None:
        losing = asyncio.create_task(self._start_over())
        await self._polled.wait()
        await losing
        await self._run()

    async def _leave(self, reason: str) -> None:
        request = rpc.leave_group(
            group_id=self._config.group_id,
            member_id=self._member_id,
            members=[
                {
                    "member_id": self._member_id,
                    "group_instance_id": self._instance_id,
                    "reason": reason,
                }
            ],
        )
        self._generation = protocol.NO_GENERATION
        try:
            await self._call(request, timeout_ms=LEAVE_TIMEOUT_MS)
        except KafkaError as error:
            logger.debug("leaving group %s failed: %s", self._config.group_id, error)

    # ---------------------------------------------------------------------------------- requests

    async def _call(self, request: Request[T], *, timeout_ms: int) -> T:
        return await self._cluster.call_coordinator(
            CoordinatorType.GROUP, self._config.group_id, request, timeout_ms=timeout_ms
        )

    def _check(self, api: Api, code: int) -> None:
        """Raise the error that the code calls for, if any."""
        match reaction_to(api, code):
            case Reaction.CONTINUE:
                return
            case Reaction.START_OVER:
                raise _StartOver
            case Reaction.FIND_COORDINATOR:
                self._cluster.forget_coordinator(CoordinatorType.GROUP, self._config.group_id)
            case Reaction.REJOIN | Reaction.RETRY:
                raise _RetriableError(ErrorCode(code))
        raise error_for(code)

    def _fail(self, error: KafkaError) -> None:
        if not isinstance(error, ClientError):
            error = error_for(error.code, str(error))
        group_error = type(error)(
            f"group {self._config.group_id}: {error.message}", code=error.code
        )
        self._on_failure(group_error)


class _RetriableError(ClientError):
    """Retriable error: repeat the request, or rejoin, after a pause."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code=code)

    @property
    def retriable(self) -> bool:
        return True

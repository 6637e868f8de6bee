"""Member of a group of the consumer protocol (KIP-848).

One task sends heartbeats at the interval that the coordinator sets, and whenever there is something
to report, whatever the user is doing. When the coordinator sends a new target assignment, a second
task reconciles with it: it revokes and adds partitions while the user polls. After
`max.poll.interval.ms` without a poll the member leaves; the next poll rejoins."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.backoff import Backoff
from ottla.client.cluster import Cluster, CoordinatorType
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.consumer_protocol_state import (
    ConsumerProtocolState,
    SubscribedTopics,
    resolve,
)
from ottla.client.consumer.membership import PollProgress, Reaction, plan, reaction_to
from ottla.client.consumer.rebalance import Rebalances
from ottla.client.consumer.record import GroupMetadata
from ottla.client.consumer.subscription import Subscription
from ottla.client.errors import (
    ClientError,
    ConnectionLost,
    KafkaTimeout,
    UnsupportedVersion,
    error_for,
)
from ottla.wire import rpc
from ottla.wire.api import Api

if TYPE_CHECKING:
    from ottla.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequestDict,
        ConsumerGroupHeartbeatResponse,
    )

logger = logging.getLogger(__name__)

LEAVE_TIMEOUT_MS = 5_000
FIRST_INTERVAL_S = 0.5
NO_SUCH_PROTOCOL = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND})
"""The broker has not enabled the consumer protocol, or the group is a classic one."""


class ConsumerProtocolMember:
    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: Subscription,
        rebalances: Rebalances,
        progress: PollProgress,
        on_failure: Callable[[ClientError], None],
        on_unsupported: Callable[[ClientError], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._subscription = subscription
        self._rebalances = rebalances
        self._progress = progress
        self._on_failure = on_failure
        self._on_unsupported = on_unsupported
        self._state = ConsumerProtocolState(
            config.group_id,
            str(uuid.uuid4()),
            instance_id=config.group_instance_id or None,
            rack_id=config.client_rack or None,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            assignor=config.group_remote_assignor or None,
        )
        self._has_left = False
        """Whether it left because the user does not poll."""
        self._wake = asyncio.Event()
        self._polled = asyncio.Event()
        self._reconciling: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run())

    # ------------------------------------------------------------------- called by the consumer

    @property
    def metadata(self) -> GroupMetadata:
        is_in = self._state.is_member and not self._has_left
        return GroupMetadata(
            self._config.group_id,
            self._state.epoch if is_in else -1,
            self._state.member_id,
            self._config.group_instance_id or None,
        )

    def subscription_changed(self) -> None:
        self._wake.set()

    def metadata_changed(self) -> None:
        """Retry the reconciliation, because an unknown topic ID may be known now."""
        self._reconcile()

    def polled(self) -> None:
        self._polled.set()

    async def close(self, *, leave: bool = True) -> None:
        await self._stop(self._task)
        await self._stop(self._reconciling)
        if leave and self._state.is_member and not self._has_left:
            await self._leave()

    # -------------------------------------------------------------------------------- heartbeats

    async def _run(self) -> None:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        while True:
            try:
                is_over = await self._heartbeat()
                if is_over:
                    return
                backoff.reset()
                await self._wait_for_next_heartbeat()
            except UnsupportedVersion as error:
                self._on_unsupported(error)
                return
            except (ConnectionLost, KafkaTimeout) as error:
                logger.debug("a heartbeat failed: %s", error)
                self._state.on_failure()
                await asyncio.sleep(backoff.next_s())
            except KafkaError as error:
                if not error.retriable:
                    self._fail(error, str(error))
                    return
                self._state.on_failure()
                await asyncio.sleep(backoff.next_s())

    async def _heartbeat(self) -> bool:
        """Send one heartbeat and handle the response; return True if the membership ends."""
        self._wake.clear()
        state = self._state
        wanted = SubscribedTopics(
            tuple(sorted(self._subscription.topics)), self._subscription.remote_pattern
        )
        min_version = 1 if wanted.regex is not None else 0
        response = await self._call(state.request(wanted), min_version=min_version)
        code = response.error_code
        if code in NO_SUCH_PROTOCOL and not state.is_member:
            self._on_unsupported(error_for(code, response.error_message))
            return True
        match reaction_to(Api.CONSUMER_GROUP_HEARTBEAT, code):
            case Reaction.CONTINUE:
                state.on_response(response)
                self._reconcile()
            case Reaction.START_OVER:
                await self._start_over()
                self._wake.set()
            case Reaction.FAIL:
                self._fail(error_for(code), response.error_message)
                return True
            case Reaction.FIND_COORDINATOR:
                self._cluster.forget_coordinator(CoordinatorType.GROUP, self._config.group_id)
                raise ConnectionLost(f"the coordinator has moved: {ErrorCode(code).name}")
            case _:
                raise KafkaTimeout(f"the coordinator is not ready: {ErrorCode(code).name}")
        return False

    async def _wait_for_next_heartbeat(self) -> None:
        """Wait until the next heartbeat is due or there is something to report."""
        loop = asyncio.get_running_loop()
        interval_s = self._state.heartbeat_interval_ms / 1000 or FIRST_INTERVAL_S
        max_idle_s = self._config.max_poll_interval_ms / 1000
        due = loop.time() + interval_s
        while not self._wake.is_set() and loop.time() < due:
            if self._progress.idle_s(loop.time()) > max_idle_s:
                await self._leave_overdue()
                return
            try:
                async with asyncio.timeout_at(min(due, loop.time() + max_idle_s / 2)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _leave_overdue(self) -> None:
        logger.warning(
            "group %s: no poll for more than max.poll.interval.ms (%d): leaving the group",
            self._config.group_id,
            self._config.max_poll_interval_ms,
        )
        await self._stop(self._reconciling)
        self._has_left = True
        await self._leave()
        self._polled.clear()
        losing = asyncio.create_task(self._start_over())
        await self._polled.wait()
        await losing
        self._has_left = False
        self._wake.set()

    async def _leave(self) -> None:
        try:
            await self._call(self._state.leave_request(), timeout_ms=LEAVE_TIMEOUT_MS)
        except KafkaError as error:
            logger.debug("leaving group %s failed: %s", self._config.group_id, error)

    async def _start_over(self) -> None:
        """Reset the membership after the group removed this member; its partitions are lost."""
        await self._stop(self._reconciling)
        self._reconciling = None
        self._state.start_over()
        self._rebalances.convert_revoked_to_lost()
        await self._rebalances.lost(sorted(self._subscription.assignment))

    # --------------------------------------------------------------------------- reconciliation

    def _reconcile(self) -> None:
        if self._state.is_reconciled:
            return
        if self._reconciling is None or self._reconciling.done():
            self._reconciling = asyncio.create_task(self._apply_target())

    async def _apply_target(self) -> None:
        """Revoke and add partitions until the assignment matches the target."""
        state = self._state
        while not state.is_reconciled:
            assert state.target is not None
            found, unknown = resolve(state.target, self._cluster.metadata.names_by_id)
            if unknown:
                try:
                    await self._cluster.refresh(self._subscription.topics or None)
                except KafkaError as error:
                    logger.debug("could not resolve topic IDs: %s", error)
                found, unknown = resolve(state.target, self._cluster.metadata.names_by_id)
            change = plan(self._subscription.assignment, found)
            await self._rebalances.revoked(change.revoke)
            await self._rebalances.assigned(change.add)
            logger.info("group %s, epoch %d: %d partitions, %d new, %d revoked",
                        self._config.group_id, state.epoch, len(found), len(change.add),
                        len(change.revoke))  # fmt: skip
            state.owned = frozenset(found.values())
            self._wake.set()
            if unknown:
                await asyncio.sleep(self._config.retry_backoff_max_ms / 1000)

    # ---------------------------------------------------------------------------------- requests

    async def _call(
        self,
        body: ConsumerGroupHeartbeatRequestDict,
        *,
        min_version: int = 0,
        timeout_ms: int | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        return await self._cluster.call_coordinator(
            CoordinatorType.GROUP,
            self._config.group_id,
            rpc.consumer_group_heartbeat(**body),
            min_version=min_version,
            timeout_ms=timeout_ms,
        )

    def _fail(self, error: KafkaError, message: str | None) -> None:
        kind = type(error) if isinstance(error, ClientError) else ClientError
        text = f"group {self._config.group_id}: {message or error.message}"
        self._on_failure(kind(text, code=error.code))

    async def _stop(self, task: asyncio.Task[None] | None) -> None:
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

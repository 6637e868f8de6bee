"""Membership of a worker in its group: join, sync, heartbeat and leave.

The group uses the classic protocol with the protocol type `connect`, so consumers cannot join it.
An event loop in a thread of its own maintains the membership, independently of tasks:

    JoinGroup (owned units) ─► leader assigns ─► SyncGroup ─► assignment ─► heartbeats …
        ▲                                                                       │
        └── the group rebalances, or this worker requests it: `request_rejoin` ─┘

If the group no longer knows this member, its assignment is lost and runs elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.backoff import Backoff
from ottla.client.blocking import LoopThread
from ottla.client.cluster import LOST_COORDINATOR, Cluster
from ottla.client.config import CommonConfig
from ottla.client.errors import ConnectionLost, KafkaTimeout, error_for
from ottla.client.group_requests import GroupRequests, JoinedGroup
from ottla.connect.distributed.protocol import (
    PROTOCOL_TYPE,
    VERSIONS,
    Assignment,
    WorkerMetadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
)
from ottla.connect.worker_config import WorkerConfig

logger = logging.getLogger(__name__)

JOIN_SLACK_MS = 5_000
LEAVE_TIMEOUT_MS = 5_000
CLOSE_TIMEOUT_S = 15.0
_GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


class WorkerRebalanceListener(ABC):
    """Callbacks from the member to the worker, called on the member's own threads."""

    @abstractmethod
    def metadata(self) -> WorkerMetadata:
        """Return the units that this worker owns, and the config offset that it has read up to."""

    @abstractmethod
    def compute_assignments(
        self, leader: str, members: Mapping[str, WorkerMetadata]
    ) -> Mapping[str, Assignment]:
        """Compute the assignment of all members, as the leader."""

    @abstractmethod
    def on_assigned(self, assignment: Assignment, *, generation: int, is_leader: bool) -> None: ...

    @abstractmethod
    def on_lost(self) -> None: ...


class _UnknownMember(Exception):
    """The coordinator does not know this member of the group."""


class WorkerGroupMember:
    def __init__(self, config: WorkerConfig, membership: WorkerRebalanceListener) -> None:
        settings = config.settings
        self._group_id: str = settings["group.id"]
        self._session_ms: int = settings["session.timeout.ms"]
        self._rebalance_ms: int = settings["rebalance.timeout.ms"]
        self._heartbeat_s: float = settings["heartbeat.interval.ms"] / 1000
        self._membership = membership
        self._cluster = Cluster(CommonConfig.of(None, config.client("admin"), {}))
        self._group = GroupRequests(self._cluster, self._group_id)
        self._thread = LoopThread("connect-member")
        self._rejoin = asyncio.Event()
        self._member_id = ""
        self._generation = -1
        self._heard_at = float("-inf")
        """Time of the last successful response from the coordinator."""
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ from other threads

    def start(self) -> None:
        """Join the group in the background; raise KafkaError if no broker can be reached."""
        self._thread.run(self._start)

    def request_rejoin(self) -> None:
        self._thread.call_soon(self._rejoin.set)

    @property
    def is_alive(self) -> bool:
        """Whether this worker is a live member of the group, to its own knowledge."""
        return self._generation >= 0 and time.monotonic() - self._heard_at < self._session_ms / 1000

    def close(self) -> None:
        if self._thread.is_alive:
            with contextlib.suppress(TimeoutError, KafkaError):
                self._thread.start(self._close).result(CLOSE_TIMEOUT_S)
            self._thread.close()

    # ------------------------------------------------------------------------- on the loop

    async def _start(self) -> None:
        await self._cluster.start()
        self._task = asyncio.create_task(self._run())

    async def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._member_id:
            reason = "the worker is stopping"
            with contextlib.suppress(KafkaError):
                await self._group.leave(self._member_id, reason, timeout_ms=LEAVE_TIMEOUT_MS)
        await self._cluster.close()

    async def _run(self) -> None:
        backoff = Backoff(100, 2_000)
        while True:
            try:
                delay_ms = await self._join_and_stay()
                backoff.reset()
                await self._stay(delay_ms)
            except _UnknownMember:
                logger.warning("this worker is no longer a member of group %s", self._group_id)
                self._member_id, self._generation = "", -1
                await asyncio.to_thread(self._membership.on_lost)
            except (ConnectionLost, KafkaTimeout) as error:
                logger.info("group %s: %s", self._group_id, error)
                await asyncio.sleep(backoff.next_s())
            except KafkaError as error:
                is_passing = error.retriable or error.code is ErrorCode.REBALANCE_IN_PROGRESS
                log = logger.info if is_passing else logger.error
                log("group %s: %s", self._group_id, error)
                await asyncio.sleep(backoff.next_s())
            except Exception:
                # A bug must not end the membership silently.
                logger.exception("group %s", self._group_id)
                await asyncio.sleep(backoff.next_s())

    async def _join_and_stay(self) -> int:
        """Join and sync; return the delay that the leader requests."""
        self._rejoin.clear()
        joined = await self._join()
        assignments: dict[str, bytes] = {}
        is_leader = joined.leader == joined.member_id
        version = VERSIONS.get(joined.protocol_name or "", 1)
        if is_leader:
            members = {
                each.member_id: decode_metadata(each.metadata or b"") for each in joined.members
            }
            shares = await asyncio.to_thread(
                self._membership.compute_assignments, joined.member_id, members
            )
            assignments = {
                member: encode_assignment(each, version) for member, each in shares.items()
            }
        response = await self._group.sync(
            self._member_id,
            self._generation,
            PROTOCOL_TYPE,
            joined.protocol_name,
            assignments,
            timeout_ms=self._rebalance_ms + JOIN_SLACK_MS,
        )
        self._check(response.error_code)
        self._heard_at = time.monotonic()
        assignment = decode_assignment(response.assignment) if response.assignment else Assignment()
        await asyncio.to_thread(
            self._membership.on_assigned,
            assignment,
            generation=self._generation,
            is_leader=is_leader,
        )
        return assignment.delay_ms

    async def _join(self) -> JoinedGroup:
        while True:
            data = await asyncio.to_thread(self._membership.metadata)
            response = await self._group.join(
                self._member_id,
                PROTOCOL_TYPE,
                {name: encode_metadata(data, version) for name, version in VERSIONS.items()},
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._rebalance_ms,
                timeout_ms=self._rebalance_ms + JOIN_SLACK_MS,
            )
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
                continue
            self._check(response.error_code)
            self._member_id, self._generation = response.member_id, response.generation_id
            self._heard_at = time.monotonic()
            return response

    async def _stay(self, delay_ms: int) -> None:
        """Send heartbeats until it is time to rejoin."""
        loop = asyncio.get_running_loop()
        rejoin_at = loop.time() + delay_ms / 1000 if delay_ms else None
        while not self._rejoin.is_set():
            pause_s = self._heartbeat_s
            if rejoin_at is not None:
                pause_s = min(pause_s, rejoin_at - loop.time())
                if pause_s <= 0:
                    return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rejoin.wait(), pause_s)
                return
            if not await self._heartbeat():
                return

    async def _heartbeat(self) -> bool:
        """Send a heartbeat; return False if the group is rebalancing."""
        try:
            response = await self._group.heartbeat(
                self._member_id, self._generation, timeout_ms=self._session_ms
            )
        except (ConnectionLost, KafkaTimeout) as error:
            logger.info("a heartbeat failed: %s", error)
            return True
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._heard_at = time.monotonic()
            return False
        try:
            self._check(response.error_code)
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.info("a heartbeat failed: %s", error)
            return True
        self._heard_at = time.monotonic()
        return True

    def _check(self, code: int) -> None:
        if not code:
            return
        if code in _GONE:
            raise _UnknownMember
        if code in LOST_COORDINATOR:
            self._group.forget_coordinator()
        raise error_for(code)

"""The cluster as a client sees it: brokers, connections, metadata and coordinators.

    start        contact the bootstrap servers, one after another, until one answers
    call         send one request to one broker, or to any
    retrying     repeat a call until it succeeds, fails permanently or times out
    topic        return a topic's metadata, fetching it if necessary
    coordinator  find the coordinator of a group or transactional ID

Connections are opened on first use, one per broker and purpose: requests to coordinators have their
own, so that a heartbeat never waits behind a fetch. A Cluster belongs to one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client import security
from ottla.client.backoff import Backoff
from ottla.client.config import CommonConfig, parse_server
from ottla.client.errors import (
    BrokersUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    KafkaTimeout,
    UnknownTopic,
    UnsupportedVersion,
    error_for,
    timed_out,
    unfinished,
)
from ottla.client.metadata import ClusterMetadata, Node, TopicMetadata
from ottla.client.reachability import SLOW_S, Reachability
from ottla.client.tls import ClientTls, tls_settings
from ottla.client.topic_creation import TopicCreation
from ottla.net.connection import Connection
from ottla.wire import rpc
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
    from ottla.wire.messages.metadata import MetadataResponse

logger = logging.getLogger(__name__)

T = TypeVar("T")
ANY_NODE = -1
IDLE_CHECK_S = 10.0

STALE_METADATA: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which the leader may have changed: refresh the metadata before retrying."""

LOST_COORDINATOR: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the coordinator may have moved: find it again before retrying."""


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Purpose(IntEnum):
    DATA = 0
    COORDINATION = 1


class Cluster:
    def __init__(self, config: CommonConfig) -> None:
        self.config = config
        self.metadata = ClusterMetadata()
        self.on_metadata: list[Callable[[ClusterMetadata], None]] = []
        """Called with each new version of the metadata."""
        self.topics_of_interest: set[str] | None = set()
        """Topics that a refresh asks for, or None for all. Grows as topics are used."""
        settings = tls_settings(config)
        self._tls = None if settings is None else ClientTls(settings)
        self._authenticate = security.authenticator(config)
        self._connections: dict[tuple[int, Purpose], asyncio.Task[Connection]] = {}
        self._reachability = Reachability()
        self._backoffs: dict[int, tuple[Backoff, float, str]] = {}
        """Unreachable brokers: (backoff, earliest time of the next attempt, reason)."""
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._bootstrapping: Connection | None = None
        self._refreshed_at = float("-inf")
        self._maintenance: asyncio.Task[None] | None = None
        self._closed = False
        self._allow_auto_create = False
        self._creation = TopicCreation()

    # ------------------------------------------------------------------------ start and close

    async def start(self, *, timeout_ms: int | None = None) -> None:
        """Connect to one of the bootstrap servers and fetch metadata.

        Raises:
            BrokersUnreachable: No server answered in time. No task or connection is left behind,
                and `start` may be called again.
        """
        try:
            await self.refresh(timeout_ms=timeout_ms, what="connecting to the cluster")
        except BaseException as error:
            await self.release()
            if isinstance(error, KafkaTimeout) and not isinstance(error, BrokersUnreachable):
                raise BrokersUnreachable(str(error)) from None
            raise
        self._maintenance = asyncio.create_task(self._maintain())

    async def close(self) -> None:
        self._closed = True
        await self.release()

    async def release(self) -> None:
        """Stop every task and connection. Unless the cluster is closed, it can be started again."""
        tasks = [task for task in (self._maintenance, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        connecting = list(self._connections.values())
        self._connections.clear()
        for opening in connecting:
            if not opening.cancel() and _is_usable(opening):
                opening.result().close()
        await asyncio.gather(*tasks, *connecting, return_exceptions=True)

    # ---------------------------------------------------------------------------- connections

    async def connection(self, node_id: int, purpose: Purpose = Purpose.DATA) -> Connection:
        """Return an open connection to a broker.

        Raises:
            ConnectionLost: The broker cannot be reached. During the reconnect backoff this is
                raised at once, without another attempt.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        key = (node_id, purpose)
        task = self._connections.get(key)
        if task is not None and task.done() and not _is_usable(task):
            del self._connections[key]
            task = None
        if task is None:
            node = self.metadata.nodes.get(node_id)
            if node is None:
                raise ConnectionLost(f"broker {node_id} is not in the cluster's metadata")
            task = asyncio.create_task(self._connect(node))
            self._connections[key] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as cancelled:
            cancelled.add_note(f"{self.metadata.nodes.get(node_id)} did not respond")
            raise

    def open_connection(self, node_id: int) -> Connection | None:
        """Return the data connection to a broker if it is open already."""
        task = self._connections.get((node_id, Purpose.DATA))
        if task is not None and task.done() and _is_usable(task):
            return task.result()
        return None

    async def _connect(self, node: Node) -> Connection:
        backoff, not_before, reason = self._backoffs.get(node.id, (None, 0.0, ""))
        now = asyncio.get_running_loop().time()
        if now < not_before:
            raise ConnectionLost(reason)
        try:
            connection = await self._open(node.host, node.port)
        except ClientError as error:
            if backoff is None:
                config = self.config
                backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
            self._backoffs[node.id] = (backoff, now + backoff.next_s(), str(error))
            raise
        self._backoffs.pop(node.id, None)
        self._reachability.reached(connection.name)
        return connection

    async def _open(self, host: str, port: int) -> Connection:
        with self._reporting_reachability(f"{host}:{port}"):
            return await Connection.open(
                host,
                port,
                client_id=self.config.client_id,
                timeout_s=self.config.socket_connection_setup_timeout_ms / 1000,
                tls=None if self._tls is None else await self._tls.context(),
                authenticate=self._authenticate,
            )

    @contextmanager
    def _reporting_reachability(self, address: str) -> Iterator[None]:
        """Log when a broker cannot be reached or is slow to respond."""
        loop, reachability = asyncio.get_running_loop(), self._reachability
        slow = loop.call_later(SLOW_S, lambda: reachability.is_slow(address, loop.time()))
        try:
            yield
        except (ConnectionLost, KafkaTimeout) as error:
            reachability.failed(address, str(error), loop.time())
            raise
        finally:
            slow.cancel()

    @property
    def unreachable_reason(self) -> str | None:
        """The reason why brokers cannot be reached, or None if no problem is known."""
        return self._reachability.reason

    async def _maintain(self) -> None:
        """Refresh metadata that is too old, and close idle connections, periodically."""
        loop = asyncio.get_running_loop()
        max_age_s = self.config.metadata_max_age_ms / 1000
        max_idle_s = self.config.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(min(IDLE_CHECK_S, max_age_s))
            now = loop.time()
            for key, task in list(self._connections.items()):
                if task.done() and _is_usable(task):
                    connection = task.result()
                    if not connection.in_flight and now - connection.last_used > max_idle_s:
                        connection.close()
                        del self._connections[key]
            if now - self._refreshed_at > max_age_s:
                try:
                    await self.refresh()
                except ClientError as error:
                    logger.warning("could not refresh metadata: %s", error)

    # ------------------------------------------------------------------------------- requests

    async def call(
        self,
        request: Request[T],
        *,
        node: int = ANY_NODE,
        purpose: Purpose = Purpose.DATA,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> T:
        """Send one request, once, and return the response. The caller handles its error codes.

        Args:
            request: The request, created with `ottla.wire.rpc`.
            node: ID of the broker, or ANY_NODE.
            purpose: The connection to use, if `node` is given.
            timeout_ms: Time limit; `request.timeout.ms` by default.
            min_version: The oldest version that can express the request.
            max_version: The newest version to use, or None for any.

        Raises:
            ConnectionLost: The connection failed.
            KafkaTimeout: The broker did not answer in time.
            UnsupportedVersion: The broker supports no version of the API within the bounds.
        """
        timeout_s = (self.config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        if node == ANY_NODE:
            connection = await self._any_connection()
        else:
            connection = await self.connection(node, purpose)
        return await connection.request(
            request, timeout_s, min_version=min_version, max_version=max_version
        )

    async def call_controller(self, request: Request[T], *, min_version: int = 0) -> T:
        """Send a request to the controller. In KRaft mode, any broker forwards it."""
        return await self.call(request, node=self.controller, min_version=min_version)

    @property
    def controller(self) -> int:
        known = self.metadata.controller_id
        return known if known in self.metadata.nodes else ANY_NODE

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: int | None = None,
        what: str = "the request",
    ) -> T:
        """Repeat `attempt` while it raises retriable errors, and refresh stale metadata in between.

        Raises:
            ClientError: `attempt` failed permanently, or its last error before the timeout.
            KafkaTimeout: The brokers could not be reached or did not answer in time.
        """
        timeout_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        last: KafkaError | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except KafkaError as error:
                if not error.retriable and not isinstance(error, ConnectionLost | KafkaTimeout):
                    raise
                last = error
            except TimeoutError as error:
                cause = last or unfinished(error)
                raise timed_out(what, timeout_ms, cause) from _quoted_cause(last)
            pause_s = backoff.next_s()
            if loop.time() + pause_s >= deadline:
                raise timed_out(what, timeout_ms, last) from _quoted_cause(last)
            await asyncio.sleep(pause_s)
            if last.code in STALE_METADATA:
                self.request_refresh()

    async def _any_connection(self) -> Connection:
        """Return the least busy open data connection, or open one to any known broker."""
        if self._closed:
            raise ClientClosed("the client is closed")
        usable = [
            task.result()
            for (_, purpose), task in self._connections.items()
            if purpose is Purpose.DATA and task.done() and _is_usable(task)
        ]
        if usable:
            return min(usable, key=lambda connection: connection.in_flight)
        failures: list[str] = []
        for node in self.metadata.nodes.values():
            try:
                return await self.connection(node.id)
            except (ConnectionLost, KafkaTimeout) as error:
                failures.append(str(error))
        raise ConnectionLost("no broker can be reached: " + "; ".join(failures))

    # ------------------------------------------------------------------------------- metadata

    async def refresh(
        self,
        topics: Iterable[str] | None = (),
        *,
        timeout_ms: int | None = None,
        what: str = "fetching metadata",
    ) -> ClusterMetadata:
        """Fetch metadata now.

        Args:
            topics: Topics to ask for in addition to `topics_of_interest`, or None for all topics.
            timeout_ms: Time limit; `default.api.timeout.ms` by default.
            what: Description of the operation for the error message.
        """
        await self.retrying(
            lambda: self._refresh_once(None if topics is None else list(topics)),
            timeout_ms=timeout_ms,
            what=what,
        )
        return self.metadata

    def request_refresh(self) -> asyncio.Task[None]:
        """Refresh metadata in the background, unless a refresh is in progress. Never raises."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_quietly())
        return self._refreshing

    async def _refresh_quietly(self) -> None:
        try:
            await self._refresh_once([])
        except ClientError as error:
            logger.debug("could not refresh metadata: %s", error)
            await asyncio.sleep(self.config.retry_backoff_ms / 1000)

    async def _refresh_once(self, more: list[str] | None) -> None:
        interest = self.topics_of_interest
        wanted = None if more is None or interest is None else sorted({*interest, *more})
        connection = await self._metadata_connection()
        try:
            response = await self._fetch_metadata(connection, wanted, create=False)
            missing = [
                topic.name
                for topic in response.topics
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name
            ]
            if missing and self._allow_auto_create:
                # A second request, because the response does not show which topics are new.
                self._creation.requested(missing)
                response = await self._fetch_metadata(connection, wanted, create=True)
        finally:
            if connection is self._bootstrapping:
                self._bootstrapping = None
                connection.close()
        self._reachability.reached(connection.name)
        self._reachability.is_starting = False
        self._refreshed_at = asyncio.get_running_loop().time()
        self.metadata = self.metadata.updated(response, is_complete=wanted is None)
        self._creation.updated(self.metadata.topics)
        for listener in self.on_metadata:
            listener(self.metadata)

    async def _fetch_metadata(
        self, connection: Connection, topics: list[str] | None, *, create: bool
    ) -> MetadataResponse:
        request = rpc.metadata(
            topics=None if topics is None else [{"name": name} for name in topics],
            allow_auto_topic_creation=create,
        )
        timeout_s = self.config.request_timeout_ms / 1000
        with self._reporting_reachability(connection.name):
            # In version 0 an empty list of topics means all topics.
            return await connection.request(request, timeout_s, min_version=1)

    async def _metadata_connection(self) -> Connection:
        if self.metadata.nodes:
            try:
                return await self._any_connection()
            except ConnectionLost:
                pass
        self._bootstrapping = await self._bootstrap()
        return self._bootstrapping

    async def _bootstrap(self) -> Connection:
        """Connect to the first bootstrap server that answers.

        The connection is only used to learn the advertised addresses of the brokers."""
        failures: list[ClientError] = []
        for server in self.config.bootstrap_servers:
            try:
                return await self._open(*parse_server(server))
            except (ConnectionLost, KafkaTimeout) as error:
                failures.append(error)
        raise BrokersUnreachable(
            "; ".join(map(str, failures)), code=ErrorCode.NETWORK_EXCEPTION
        ) from _quoted_cause(failures[-1])

    def set_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        self.metadata = self.metadata.with_leader(topic, partition, leader, leader_epoch)

    def allow_auto_create(self) -> None:
        """Let metadata requests create missing topics, if `auto.create.topics.enable` is set."""
        self._allow_auto_create = True

    async def topic(self, name: str, *, timeout_ms: int | None = None) -> TopicMetadata:
        """Return the metadata of a topic, waiting until at least one partition has a leader.

        Raises:
            UnknownTopic: The topic did not exist within the timeout.
        """
        known = self.metadata.topics.get(name)
        if known is not None and known.available:
            return known
        if self.topics_of_interest is not None:
            self.topics_of_interest.add(name)
        return await self.retrying(
            lambda: self._fetch_topic(name), timeout_ms=timeout_ms, what=f"finding topic {name}"
        )

    async def _fetch_topic(self, name: str) -> TopicMetadata:
        await self._refresh_once([name])
        known = self.metadata.topics.get(name)
        if known is not None and known.available:
            return known
        code = self.metadata.errors.get(name)
        if code is None and known is not None:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, "no partition has a leader", topic=name)
        if code in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise UnknownTopic(f"topic {name!r} does not exist", topic=name)
        assert code is not None
        raise error_for(code, topic=name)

    # --------------------------------------------------------------------------- coordinators

    async def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """Return the broker that coordinates a group or transactional ID. The result is cached.

        Raises retriable errors while there is no coordinator, so call it within `retrying`."""
        known = self._coordinators.get((kind, key))
        if known is not None and known in self.metadata.nodes:
            return known
        response = await self.call(
            rpc.find_coordinator(key=key, key_type=int(kind), coordinator_keys=[key])
        )
        found: Coordinator | FindCoordinatorResponse = (
            response.coordinators[0] if response.coordinators else response
        )
        if found.error_code:
            raise error_for(found.error_code, found.error_message)
        node = Node(found.node_id, found.host, found.port)
        if node.id not in self.metadata.nodes:
            await self._refresh_once([])
            if node.id not in self.metadata.nodes:
                raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._coordinators[kind, key] = node.id
        return node.id

    async def coordinators(
        self, kind: CoordinatorType, keys: Iterable[str]
    ) -> dict[str, int | ClientError]:
        """Return the coordinators of several keys, or the error for each that was not found.

        Brokers that support FindCoordinator version 4 are asked for all keys in one request."""
        wanted = list(keys)
        found: dict[str, int | ClientError] = {}
        for key in wanted:
            known = self._coordinators.get((kind, key))
            if known is not None and known in self.metadata.nodes:
                found[key] = known
        missing = [key for key in wanted if key not in found]
        if not missing:
            return found
        request = rpc.find_coordinator(key_type=int(kind), coordinator_keys=missing)
        try:
            response = await self.call(request, min_version=4)
        except UnsupportedVersion:
            for key in missing:
                try:
                    found[key] = await self.coordinator(kind, key)
                except ClientError as error:
                    found[key] = error
            return found
        if any(each.node_id not in self.metadata.nodes for each in response.coordinators):
            await self._refresh_once([])
        for each in response.coordinators:
            if each.error_code:
                found[each.key] = error_for(each.error_code, each.error_message)
            elif each.node_id in self.metadata.nodes:
                found[each.key] = self._coordinators[kind, each.key] = each.node_id
            else:
                found[each.key] = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found

    def forget_coordinator(self, kind: CoordinatorType, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def call_coordinator(
        self,
        kind: CoordinatorType,
        key: str,
        request: Request[T],
        *,
        timeout_ms: int | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> T:
        """Send one request to a coordinator, over its separate connection.

        A coordinator that cannot be reached is looked up again by the next call. The caller
        handles the error codes in the response (`LOST_COORDINATOR`)."""
        node = await self.coordinator(kind, key)
        try:
            return await self.call(
                request,
                node=node,
                purpose=Purpose.COORDINATION,
                timeout_ms=timeout_ms,
                min_version=min_version,
                max_version=max_version,
            )
        except (ConnectionLost, KafkaTimeout):
            self.forget_coordinator(kind, key)
            raise


def _is_usable(task: asyncio.Task[Connection]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result().is_open


def _quoted_cause(error: BaseException | None) -> BaseException | None:
    """Return the cause of an error that another error quotes in its message.

    Chaining to the quoted error itself would only repeat that text in the traceback."""
    return None if error is None else error.__cause__

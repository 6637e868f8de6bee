"""The API table: the handler of each API key, and the versions served.

The broker serves every version of a listed API that the schema has. Any other request closes its
connection, as in Kafka: the client has not sent ApiVersions, or ignored the response. The one
exception is ApiVersions itself (see its handler)."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from ottla.base.ports import Piece
from ottla.broker.cluster import Cluster
from ottla.broker.context import Body, ClientConnection, Handler, RequestContext
from ottla.broker.controller import Controller
from ottla.broker.forwarding import FORWARDED, forwarding
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.broker.handlers.api_versions import ApiVersions, Features
from ottla.broker.logs import Logs
from ottla.broker.ports import (
    Configuration,
    Flushing,
    HostedPartitions,
    LeadershipProofs,
    Metadata,
    NodeId,
    PartitionLeaders,
    PartitionLookup,
    Tasks,
    Threads,
    TimeSource,
)
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.replication import Replication
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.core.fetch_session import FetchSessionCache
from ottla.wire import codec, schema


class HandlerPorts(
    Configuration,
    Flushing,
    HostedPartitions,
    LeadershipProofs,
    Metadata,
    NodeId,
    PartitionLeaders,
    PartitionLookup,
    Tasks,
    Threads,
    TimeSource,
    Protocol,
):
    """The parts of a broker that the handlers use, taken together.

    Every handler declares the few that it needs. With this protocol, the type checker compares the
    declarations with `Broker`: at the table below and where the broker creates its server."""

    @property
    def can_acknowledge_alone(self) -> bool: ...

    @property
    def cluster(self) -> Cluster | None: ...

    @property
    def controller(self) -> Controller: ...

    @property
    def fetch_sessions(self) -> FetchSessionCache: ...

    @property
    def group_coordinator(self) -> GroupCoordinator: ...

    @property
    def logs(self) -> Logs: ...

    @property
    def partitions_version(self) -> object: ...

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def replication(self) -> Replication | None: ...

    @property
    def topics_needing_records(self) -> Collection[str]: ...

    @property
    def transaction_coordinator(self) -> TransactionCoordinator: ...

    def endpoint_for(self, listener: str) -> tuple[str, int]: ...

    def features(self) -> Features: ...


HANDLERS: dict[int, Handler[HandlerPorts]] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    8: offset_commit.handle,
    9: offset_fetch.handle,
    10: find_coordinator.handle,
    11: join_group.handle,
    12: heartbeat.handle,
    13: leave_group.handle,
    14: sync_group.handle,
    15: describe_groups.handle,
    16: list_groups.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    21: delete_records.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    24: add_partitions_to_txn.handle,
    25: add_offsets_to_txn.handle,
    26: end_txn.handle,
    27: write_txn_markers.handle,
    28: txn_offset_commit.handle,
    32: describe_configs.handle,
    33: alter_configs.handle,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    42: delete_groups.handle,
    43: elect_leaders.handle,
    44: incremental_alter_configs.handle,
    45: alter_partition_reassignments.handle,
    46: list_partition_reassignments.handle,
    47: offset_delete.handle,
    60: describe_cluster.handle,
    61: describe_producers.handle,
    65: describe_transactions.handle,
    66: list_transactions.handle,
    68: consumer_group_heartbeat.handle,
    69: consumer_group_describe.handle,
    74: list_config_resources.handle,
    75: describe_topic_partitions.handle,
}
"""API key -> handler, in the order of the keys. ApiVersions is not listed: each router creates its
own, because its response describes the table."""

ADVERTISED_FROM_ZERO = frozenset({0})
"""Produce; handlers/api_versions.py says why."""

EXCLUSIVE_APIS = frozenset({1})
"""Fetch. A connection serves one at a time, because responses can be large; and a fetch changes
nothing, so it is dropped when its connection is lost."""


class RequestRejected(Exception):
    """A request that cannot be served, so that its connection is closed. The message is logged."""


class Route:
    """The handler of one API key and how to call it."""

    __slots__ = ("is_exclusive", "api_key", "handle", "is_coroutine", "versions")

    def __init__(self, api_key: int, handle: Handler[HandlerPorts]) -> None:
        self.api_key = api_key
        self.handle = forwarding(handle) if api_key in FORWARDED else handle
        self.versions = schema.versions(api_key)
        self.is_coroutine = inspect.iscoroutinefunction(handle) or api_key in FORWARDED
        """Whether the request must stay valid after the handler has returned."""
        self.is_exclusive = api_key in EXCLUSIVE_APIS


class Router:
    """The routes of all APIs."""

    def __init__(self, handlers: Mapping[int, Handler[HandlerPorts]] = HANDLERS) -> None:
        keys = sorted({*handlers, api_versions.API_KEY})
        self._api_versions = ApiVersions([_advertised(key) for key in keys])
        table: dict[int, Handler[HandlerPorts]] = {
            api_versions.API_KEY: self._api_versions.handle,
            **handlers,
        }
        self._routes = {key: Route(key, table[key]) for key in keys}
        self._unsupported = Route(api_versions.API_KEY, self._respond_unsupported)

    def supported_versions(self) -> list[tuple[int, int, int]]:
        """Return (key, lowest version, highest version) of each API, as ApiVersions reports it."""
        return [_advertised(key) for key in self._routes]

    def open(
        self, frame: memoryview, connection: ClientConnection
    ) -> tuple[Route, RequestContext, int]:
        """Decode the header of a request.

        Args:
            frame: The request without its size.
            connection: The connection it arrived on.

        Returns:
            The route, the context, and the position of the body in `frame`.

        Raises:
            RequestRejected: The API key or version is not served.
            DecodeError: The header is malformed.
        """
        api_key, version, correlation_id, client_id, position = codec.decode_request_header(frame)
        route = self._routes.get(api_key)
        if route is None or version not in route.versions:
            if api_key != api_versions.API_KEY:
                raise RequestRejected(_unserved(api_key, version, route))
            route, version = self._unsupported, 0
        context = RequestContext(
            api_key,
            version,
            correlation_id,
            client_id,
            connection.listener,
            connection.peer,
            connection,
        )
        return route, context, position

    def _respond_unsupported(self, broker: object, context: RequestContext, request: Any) -> Body:
        return self._api_versions.unsupported


def decode(context: RequestContext, frame: memoryview, position: int) -> Any:
    """Decode the body of a request. Raises DecodeError."""
    return codec.decode_request(context.api_key, context.api_version, frame, position)


def encode(context: RequestContext, body: Body) -> list[Piece]:
    return codec.encode_response(context.api_key, context.api_version, context.correlation_id, body)


def _advertised(api_key: int) -> tuple[int, int, int]:
    versions = schema.versions(api_key)
    low = 0 if api_key in ADVERTISED_FROM_ZERO else versions[0]
    return api_key, low, versions[-1]


def _unserved(api_key: int, version: int, route: Route | None) -> str:
    if route is None:
        return f"API {api_key} is not supported by this broker"
    return (
        f"{schema.api_name(api_key)} version {version} was requested, but this broker supports "
        f"versions {route.versions[0]} to {route.versions[-1]}"
    )

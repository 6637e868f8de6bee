"""The API table: the handler of each API key, and the versions served.

The broker serves every version of a listed API that the schema has. Any other request closes its
connection, as in Kafka: the client has not sent ApiVersions, or ignored the response. The one
exception is ApiVersions itself (see its handler)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.base.ports import Piece
from ottla.broker.cluster import Cluster
from ottla.broker.context import Body, ClientConnection, Handler, RequestContext
from ottla.broker.controller import Controller
from ottla.broker.delegation_tokens import DelegationTokens
from ottla.broker.features import Features
from ottla.broker.forwarding import FORWARDED, Reject, forwarding
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
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
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.broker.handlers.api_versions import ApiVersions
from ottla.broker.handlers.envelope import Envelope
from ottla.broker.logs import Logs
from ottla.broker.partition import Partition
from ottla.broker.ports import (
    Authorizing,
    Configuration,
    Flushing,
    HostedPartitions,
    LeadershipProofs,
    Metadata,
    NodeId,
    PartitionLeaders,
    PartitionLookup,
    PeerRecognition,
    Quotas,
    Tasks,
    Threads,
    TimeSource,
)
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.replication import Replication
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.core.fetch_session import FetchSessionCache
from ottla.wire import codec, schema
from ottla.wire.api import Api

if TYPE_CHECKING:
    from ottla.wire.messages.api_versions import ApiVersionsResponseDict


class HandlerPorts(
    Authorizing,
    Configuration,
    Flushing,
    HostedPartitions,
    LeadershipProofs,
    Metadata,
    NodeId,
    PartitionLeaders,
    PartitionLookup,
    PeerRecognition,
    Quotas,
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
    def delegation_tokens(self) -> DelegationTokens: ...

    @property
    def fetch_sessions(self) -> FetchSessionCache[Partition]: ...

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


HANDLERS: dict[Api, Handler[HandlerPorts]] = {
    Api.PRODUCE: produce.handle,
    Api.FETCH: fetch.handle,
    Api.LIST_OFFSETS: list_offsets.handle,
    Api.METADATA: metadata.handle,
    Api.OFFSET_COMMIT: offset_commit.handle,
    Api.OFFSET_FETCH: offset_fetch.handle,
    Api.FIND_COORDINATOR: find_coordinator.handle,
    Api.JOIN_GROUP: join_group.handle,
    Api.HEARTBEAT: heartbeat.handle,
    Api.LEAVE_GROUP: leave_group.handle,
    Api.SYNC_GROUP: sync_group.handle,
    Api.DESCRIBE_GROUPS: describe_groups.handle,
    Api.LIST_GROUPS: list_groups.handle,
    Api.SASL_HANDSHAKE: sasl_handshake.handle,
    Api.CREATE_TOPICS: create_topics.handle,
    Api.DELETE_TOPICS: delete_topics.handle,
    Api.DELETE_RECORDS: delete_records.handle,
    Api.INIT_PRODUCER_ID: init_producer_id.handle,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.handle,
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.handle,
    Api.END_TXN: end_txn.handle,
    Api.WRITE_TXN_MARKERS: write_txn_markers.handle,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit.handle,
    Api.DESCRIBE_ACLS: describe_acls.handle,
    Api.CREATE_ACLS: create_acls.handle,
    Api.DELETE_ACLS: delete_acls.handle,
    Api.DESCRIBE_CONFIGS: describe_configs.handle,
    Api.ALTER_CONFIGS: alter_configs.handle,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    Api.SASL_AUTHENTICATE: sasl_authenticate.handle,
    Api.CREATE_PARTITIONS: create_partitions.handle,
    Api.CREATE_DELEGATION_TOKEN: create_delegation_token.handle,
    Api.RENEW_DELEGATION_TOKEN: renew_delegation_token.handle,
    Api.EXPIRE_DELEGATION_TOKEN: expire_delegation_token.handle,
    Api.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token.handle,
    Api.DELETE_GROUPS: delete_groups.handle,
    Api.ELECT_LEADERS: elect_leaders.handle,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    Api.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.handle,
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.handle,
    Api.OFFSET_DELETE: offset_delete.handle,
    Api.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas.handle,
    Api.ALTER_CLIENT_QUOTAS: alter_client_quotas.handle,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials.handle,
    Api.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.handle,
    Api.DESCRIBE_CLUSTER: describe_cluster.handle,
    Api.DESCRIBE_PRODUCERS: describe_producers.handle,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions.handle,
    Api.LIST_TRANSACTIONS: list_transactions.handle,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.handle,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.handle,
    Api.LIST_CONFIG_RESOURCES: list_config_resources.handle,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
}
"""API -> handler, in the order of the keys. ApiVersions and Envelope are not listed: each router
creates its own, because they depend on the table.

This table is the only place where the types of requests and responses are lost: the key decides at
run time which types a handler gets and returns. Each handler names them (`ottla.wire.messages`)."""

REJECTED: Mapping[Api, Reject[HandlerPorts]] = {
    Api.ALTER_CONFIGS: alter_configs.rejected,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.rejected,
}
"""Checks of a broker before it forwards a request to the controller."""

ADVERTISED_FROM_ZERO = frozenset({Api.PRODUCE})
"""handlers/api_versions.py says why."""

IS_LOCAL: dict[Api, Callable[[Any], bool]] = {
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.alters_only_loggers,
}
"""APIs that are forwarded, with a function that returns whether a request is not."""

EXCLUSIVE_APIS = frozenset({Api.FETCH})
"""A connection serves one at a time, because responses can be large; and a fetch changes
nothing, so it is dropped when its connection is lost."""


class RequestRejected(Exception):
    """A request that cannot be served, so that its connection is closed. The message is logged."""


class Route:
    """The handler of one API and how to call it."""

    __slots__ = ("api", "handle", "has_fast_path", "is_coroutine", "is_exclusive", "versions")

    def __init__(self, api: Api, handle: Handler[HandlerPorts]) -> None:
        self.api = api
        self.handle: Handler[HandlerPorts] = handle
        if api in FORWARDED:
            self.handle = forwarding(handle, IS_LOCAL.get(api), REJECTED.get(api))
        self.versions = schema.versions(api)
        self.is_coroutine = inspect.iscoroutinefunction(handle) or api in FORWARDED
        """Whether the request must stay valid after the handler has returned."""
        self.is_exclusive = api in EXCLUSIVE_APIS
        self.has_fast_path = api is Api.PRODUCE
        """Whether a request like an earlier one need not be decoded (produce_fast_path.py)."""


class Router:
    """The routes of all APIs."""

    def __init__(self, handlers: Mapping[Api, Handler[HandlerPorts]] = HANDLERS) -> None:
        keys = sorted({*handlers, Api.API_VERSIONS, Api.ENVELOPE})
        envelope = Envelope({api: each for api, each in handlers.items() if api in FORWARDED})
        self._api_versions = ApiVersions([_advertised(key) for key in keys])
        table: dict[Api, Handler[HandlerPorts]] = {
            Api.API_VERSIONS: self._api_versions.handle,
            Api.ENVELOPE: envelope.handle,
            **handlers,
        }
        self._routes: dict[int, Route] = {key: Route(key, table[key]) for key in keys}
        self._unsupported = Route(Api.API_VERSIONS, self._respond_unsupported)

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
            if api_key != Api.API_VERSIONS:
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

    def _respond_unsupported(
        self, broker: object, context: RequestContext, request: object
    ) -> ApiVersionsResponseDict:
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

"""Forwarding to the controller of requests that only the controller may decide.

Clients may send these requests to any broker. A broker forwards the request in the version in which
it arrived, in an Envelope with the client's principal and address, and returns the controller's
response unchanged. While there is no controller, or the
broker asked is no longer the controller, it retries until the request times out: clients rely on
forwarding brokers to find the controller (KIP-590). Only then does the client get NOT_CONTROLLER,
in the form of its API.

A request in an Envelope is not forwarded again. Otherwise two brokers that take each other for the
controller would send it back and forth.

During a rolling upgrade the controller may be a broker of a version before 0.2, whose ApiVersions
response has no Envelope. It gets the request without an Envelope, and without the client's
principal, which it would not use. It recognizes the client ID of a broker, and does not forward the
request again. A broker with an authorizer does not forward anything to it, because nobody would
check the client's permissions."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, Handler, RequestContext, Response
from ottla.broker.peers import Peers, peer_client_id
from ottla.broker.ports import Authorizing, Metadata, PeerEndpoints, PeerRecognition
from ottla.core.controller.create_topics import NewTopic, TopicDecision
from ottla.core.security.principal import Principal
from ottla.net.errors import ClientError, UnsupportedVersion
from ottla.wire import codec, rpc
from ottla.wire.api import Api
from ottla.wire.codec import DecodeError
from ottla.wire.compile import Message
from ottla.wire.principal_data import PrincipalData, encode_principal
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.envelope import EnvelopeResponse

logger = logging.getLogger(__name__)

FORWARDED = frozenset({
    Api.CREATE_TOPICS,
    Api.DELETE_TOPICS,
    Api.CREATE_ACLS,
    Api.DELETE_ACLS,
    Api.ALTER_CONFIGS,
    Api.CREATE_PARTITIONS,
    Api.ELECT_LEADERS,
    Api.INCREMENTAL_ALTER_CONFIGS,
    Api.ALTER_PARTITION_REASSIGNMENTS,
    Api.LIST_PARTITION_REASSIGNMENTS,
    Api.ALTER_CLIENT_QUOTAS,
    Api.ALTER_USER_SCRAM_CREDENTIALS,
    Api.CREATE_DELEGATION_TOKEN,
    Api.RENEW_DELEGATION_TOKEN,
    Api.EXPIRE_DELEGATION_TOKEN,
})  # fmt: skip
"""APIs that only the controller serves."""
CREATE_TOPICS_VERSION = 7
CREATION_TIMEOUT_MS = 10_000
RESPONSE_TIMEOUT_S = 40.0
MAX_CONTROLLER_WAIT_MS = 30_000
RETRY_INTERVAL_S = 0.05


_UNKNOWN_ADDRESS = bytes(4)
_UNDECIDED = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Error codes of a broker that is not the controller: it only checks permissions."""
_SIZE_BYTES = 4


class ForwardingPorts(Authorizing, Metadata, PeerEndpoints, PeerRecognition, Protocol):
    """The parts of a broker that forwarding uses."""


class Sender(NamedTuple):
    """The client that sent a request."""

    correlation_id: int
    client_id: str | None
    principal: Principal
    host: str

    @classmethod
    def of(cls, context: RequestContext) -> Sender:
        """Return the sender of a request."""
        return cls(context.correlation_id, context.client_id, context.principal, context.peer)


class Forwarding:
    """The connection over which this broker forwards requests to the controller."""

    def __init__(self, broker: ForwardingPorts) -> None:
        self._broker = broker
        self._peers = Peers(broker)

    async def forward(self, request: Request[T], version: int, sender: Sender) -> T:
        """Send a request to the controller and return its response. Raises KafkaError
        (NOT_CONTROLLER) if the controller cannot be reached, or does not accept it."""
        controller = self._broker.image.controller_id
        try:
            envelope = _envelope(request, version, sender)
            response = await self._peers.request(controller, envelope, RESPONSE_TIMEOUT_S)
        except UnsupportedVersion:
            return await self._forward_plainly(controller, request, version)
        except ClientError as error:
            raise _not_forwarded(str(error)) from None
        code = ErrorCode(response.error_code)
        if code != ErrorCode.NONE or response.response_data is None:
            logger.warning("The controller, broker %d, refused an Envelope: %s", controller, code)
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller returned {code.name}")
        try:
            data = memoryview(response.response_data)
            decoded: T = codec.decode_response(request.api, version, data)[1]
        except DecodeError as error:
            raise _not_forwarded(str(error)) from None
        return decoded

    async def _forward_plainly(self, controller: int, request: Request[T], version: int) -> T:
        """Forward a request to a broker that does not know Envelope."""
        if self._broker.authorization is not None:
            raise _not_forwarded(
                f"Broker {controller} is of a version before 0.2, which has no ACLs"
            )
        try:
            return await self._peers.request(
                controller, request, RESPONSE_TIMEOUT_S, min_version=version, max_version=version
            )
        except ClientError as error:
            raise _not_forwarded(str(error)) from None

    async def create_topics(
        self, requested: Sequence[NewTopic], sender: Sender | None = None
    ) -> list[TopicDecision]:
        """Have the controller create topics.

        Args:
            requested: The topics to create.
            sender: The client that needs them, whose permissions count; None if this broker does.

        Returns:
            One decision per topic, with an error if it was refused.

        Raises:
            KafkaError: NOT_CONTROLLER if the controller cannot be reached, or does not accept it.
        """
        request = rpc.create_topics(
            topics=[
                {
                    "name": topic.name,
                    "num_partitions": topic.num_partitions,
                    "replication_factor": topic.replication_factor,
                    "assignments": [],
                    "configs": [{"name": name, "value": value} for name, value in topic.configs],
                }
                for topic in requested
            ],
            timeout_ms=CREATION_TIMEOUT_MS,
            validate_only=False,
        )
        if sender is None:
            own = self._broker.peer_rule.principal_of_brokers
            sender = Sender(0, peer_client_id(self._broker.node_id), own, "127.0.0.1")
        response = await self.forward(request, CREATE_TOPICS_VERSION, sender)
        return [
            TopicDecision(topic.name, error=_error(topic.error_code, topic.error_message))
            for topic in response.topics
        ]

    def close(self) -> None:
        self._peers.close()


def _envelope(request: Request[T], version: int, sender: Sender) -> Request[EnvelopeResponse]:
    principal = sender.principal
    frame = codec.encode_request(
        request.api, version, sender.correlation_id, sender.client_id, request.body
    )
    return rpc.envelope(
        request_data=b"".join(frame)[_SIZE_BYTES:],
        request_principal=encode_principal(
            PrincipalData(principal.type, principal.name, principal.is_token_authenticated)
        ),
        client_host_address=_address(sender.host),
    )


def _address(host: str) -> bytes:
    """Return the bytes of an IP address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:  # hosts of a simulated network have names only
        return _UNKNOWN_ADDRESS


def _not_forwarded(reason: str) -> KafkaError:
    logger.info("Could not forward the request to the controller: %s", reason)
    return KafkaError(ErrorCode.NOT_CONTROLLER, reason)


class ForwardingCluster(Protocol):
    """The part of a cluster that forwards requests."""

    @property
    def is_controller(self) -> bool: ...

    @property
    def forwarding(self) -> Forwarding: ...


class ForwardingBroker(Protocol):
    """The part of a broker that decides whether a request is forwarded."""

    @property
    def cluster(self) -> ForwardingCluster | None: ...


T = TypeVar("T")
BrokerT = TypeVar("BrokerT", bound=ForwardingBroker)
LocalHandler: TypeAlias = Callable[[RequestContext, Any], Response[Any]]
"""A handler with its broker."""
Reject: TypeAlias = Callable[
    [BrokerT, RequestContext, Any], Awaitable[Sequence[Mapping[str, object]]]
]
"""Function that returns the results of resources that a broker rejects without the controller."""


def forwarding(
    handle: Handler[BrokerT],
    is_local: Callable[[Any], bool] | None = None,
    reject: Reject[BrokerT] | None = None,
) -> Handler[BrokerT]:
    """Wrap a handler so that a broker which is not the controller forwards the request.

    Args:
        handle: The handler of the controller.
        is_local: Returns whether a request concerns only the broker that it was sent to.
        reject: Checks resources that only this broker can check.
    """

    async def forward_the_rest(
        cluster: ForwardingCluster,
        broker: BrokerT,
        context: RequestContext,
        request: Any,
        reject: Reject[BrokerT],
    ) -> Body | None:
        rejected = await reject(broker, context, request)
        done = {(each["resource_type"], each["resource_name"]) for each in rejected}
        rest = copy(request)
        rest.resources = [
            each
            for each in request.resources
            if (each.resource_type, each.resource_name) not in done
        ]
        if rejected and not rest.resources:
            return {"throttle_time_ms": 0, "responses": rejected}
        response = await _retry_until_decided(cluster, context, rest, partial(handle, broker))
        if response is not None:
            response["responses"] = [*response["responses"], *rejected]
        return response

    def handle_or_forward(broker: BrokerT, context: RequestContext, request: Any) -> Response[Any]:
        cluster = broker.cluster
        if cluster is None or (is_local is not None and is_local(request)):
            return handle(broker, context, request)
        if reject is not None and not cluster.is_controller:
            return forward_the_rest(cluster, broker, context, request, reject)
        return _retry_until_decided(cluster, context, request, partial(handle, broker))

    return handle_or_forward


async def _retry_until_decided(
    cluster: ForwardingCluster, context: RequestContext, request: Any, handle: LocalHandler
) -> Body | None:
    time = asyncio.get_running_loop().time
    limit_ms = min(getattr(request, "timeout_ms", MAX_CONTROLLER_WAIT_MS), MAX_CONTROLLER_WAIT_MS)
    deadline = time() + limit_ms / 1000
    while True:
        response = await _decide_or_forward(cluster, context, request, handle)
        if response is None or not is_not_controller(response) or time() >= deadline:
            return response
        await asyncio.sleep(RETRY_INTERVAL_S)


async def _decide_or_forward(
    cluster: ForwardingCluster, context: RequestContext, request: Any, handle: LocalHandler
) -> Body | None:
    if not cluster.is_controller:
        try:
            forwarded: Request[Message] = Request(Api(context.api_key), as_dict(request))
            sender = Sender.of(context)
            return as_dict(await cluster.forwarding.forward(forwarded, context.api_version, sender))
        except KafkaError:
            pass  # the local handler builds the NOT_CONTROLLER response of each API
    response = handle(context, request)
    return response if response is None or isinstance(response, dict) else await response


def is_not_controller(response: Body) -> bool:
    """Return whether a response says NOT_CONTROLLER throughout, so nothing has been decided.

    Any broker refuses the parts of a request for which the client has no permission. The controller
    refuses them again.
    """
    if response.get("error_code") == ErrorCode.NOT_CONTROLLER:
        return True
    codes = [
        part["error_code"]
        for parts in response.values()
        if isinstance(parts, list)
        for part in parts
        if "error_code" in part
    ]
    return ErrorCode.NOT_CONTROLLER in codes and _UNDECIDED.issuperset(codes)


def _error(code: int, message: str | None) -> KafkaError | None:
    return KafkaError(ErrorCode(code), message or "") if code else None


def as_dict(message: Message) -> Body:
    """Convert a decoded message to the nested dicts that encoders take."""
    return {name: _plain(value) for name, value in vars(message).items()}


def _plain(value: object) -> object:
    if isinstance(value, Message):
        return as_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value

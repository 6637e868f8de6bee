"""Envelope (key 58), version 0: a client's request that another broker forwards (KIP-590).

The envelope has the request with its header, and the client's principal and address. The handler of
the request sees them in its context, as if the client had sent the request here, and decides by the
client's permissions. The response has the response of that handler, with its header.

- Only brokers may forward requests: CLUSTER_AUTHORIZATION_FAILED for all other clients.
- INVALID_REQUEST if the API cannot be forwarded, as Envelope itself, or if the header of the
  request or the address of the client is malformed. UNSUPPORTED_VERSION if its version or its body
  cannot be read. PRINCIPAL_DESERIALIZATION_FAILURE if the principal is missing or cannot be read.
- A request is never forwarded twice. If this broker is not the controller, the response says so in
  the form of its API.

Deviations
- Kafka returns NOT_CONTROLLER as the error code of the envelope. Here the forwarding broker looks
  for it in the response of the API."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import ReadableBuffer
from ottla.broker.authorization import Access
from ottla.broker.context import Handler, RequestContext
from ottla.broker.peers import report_stranger
from ottla.broker.ports import Authorizing, PeerRecognition
from ottla.core.security.principal import Principal
from ottla.wire import codec
from ottla.wire.codec import DecodeError
from ottla.wire.principal_data import decode_principal

if TYPE_CHECKING:
    from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponseDict


class EnvelopePorts(PeerRecognition, Authorizing, Protocol):
    """The parts of a broker that Envelope uses."""


PortsT = TypeVar("PortsT", bound=EnvelopePorts)
_SIZE_BYTES = 4


class ForwardedConnection:
    """The connection of a client to the broker that has forwarded its request."""

    def __init__(
        self, listener: str, peer: str, principal: Principal, access: Access | None
    ) -> None:
        self.listener = listener
        self.peer = peer
        self.principal = principal
        self.access = access
        self.is_tls = False
        self.is_peer = False
        self.authentication = None


class Envelope(Generic[PortsT]):
    """The handler. The router creates it, because only the router knows the other handlers."""

    def __init__(self, handlers: Mapping[int, Handler[PortsT]]) -> None:
        """Create the handler.

        Args:
            handlers: The APIs that can be forwarded, with handlers that do not forward.
        """
        self._handlers = handlers

    async def handle(
        self, broker: PortsT, context: RequestContext, request: EnvelopeRequest
    ) -> EnvelopeResponseDict:
        if not context.is_peer:
            report_stranger(broker, context, "to forward a request for a client")
            return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        try:
            return {"response_data": await self._serve(broker, context, request)}
        except KafkaError as error:
            return {"error_code": error.code}

    async def _serve(
        self, broker: PortsT, context: RequestContext, request: EnvelopeRequest
    ) -> bytes:
        frame = memoryview(request.request_data)
        try:
            header = codec.decode_request_header(frame)
            address = str(ipaddress.ip_address(bytes(request.client_host_address)))
        except ValueError as error:  # DecodeError is one
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        handle = self._handlers.get(header.api_key)
        if handle is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"API {header.api_key} is not forwarded")
        if not codec.is_supported(header.api_key, header.api_version):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        principal, authorization = _principal(request), broker.authorization
        access = None if authorization is None else authorization.access_of(principal, address)
        connection = ForwardedConnection(context.listener, address, principal, access)
        inner = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            context.listener,
            address,
            connection,
        )
        try:
            body = codec.decode_request(*header[:2], frame, header.body_position)
        except DecodeError as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        response = handle(broker, inner, body)
        if response is not None and not isinstance(response, dict):
            response = await response
        pieces = codec.encode_response(*header[:3], response or {})
        # No response of a forwarded API has records, so none is in a file.
        return b"".join(cast("list[ReadableBuffer]", pieces))[_SIZE_BYTES:]


def _principal(request: EnvelopeRequest) -> Principal:
    try:
        found = decode_principal(bytes(request.request_principal or b""))
    except DecodeError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    return Principal(found.type, found.name, found.token_authenticated)

"""SaslHandshake (key 17), versions 0–1: the client selects a SASL mechanism.

- After version 0, tokens follow without request headers; after version 1, in SaslAuthenticate.
- UNSUPPORTED_SASL_MECHANISM with the enabled mechanisms; the broker then closes the connection.
- ILLEGAL_SASL_STATE on a listener without SASL, and after the authentication. A session with a
  limited lifetime allows the request again, at most once per second (KIP-368).

Not supported: the GSSAPI tokens of clients without this request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response

if TYPE_CHECKING:
    from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponseDict


def handle(
    broker: object, context: RequestContext, request: SaslHandshakeRequest
) -> Response[SaslHandshakeResponseDict]:
    authentication = None if context.connection is None else context.connection.authentication
    if authentication is None:
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}
    return authentication.handshake(context.api_version, request.mechanism)

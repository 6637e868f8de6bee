"""SaslAuthenticate (key 36), versions 0–2: a token of the client's SASL mechanism.

- SASL_AUTHENTICATION_FAILED, after connection.failed.authentication.delay.ms; the broker then
  closes the connection. The message does not reveal whether the user exists.
- ILLEGAL_SASL_STATE on a listener without SASL, and without a SaslHandshake before.
- `session_lifetime_ms` is the time after which the client must authenticate again, from version 1
  (KIP-368)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response

if TYPE_CHECKING:
    from ottla.wire.messages.sasl_authenticate import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponseDict,
    )


def handle(
    broker: object, context: RequestContext, request: SaslAuthenticateRequest
) -> Response[SaslAuthenticateResponseDict]:
    authentication = None if context.connection is None else context.connection.authentication
    if authentication is None:
        return {
            "error_code": ErrorCode.ILLEGAL_SASL_STATE,
            "error_message": "SaslAuthenticate request received after successful authentication",
            "auth_bytes": b"",
        }
    return authentication.authenticate(bytes(request.auth_bytes))

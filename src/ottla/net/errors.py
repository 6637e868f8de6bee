"""How a request to a broker can fail before its answer is read."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError


class ClientError(KafkaError):
    """Base class of the failures that clients report; `topic` and `partition` are set where known.

    `fatal` means that the client cannot recover and must be closed.
    """

    default_code = ErrorCode.UNKNOWN_SERVER_ERROR
    fatal = False

    def __init__(
        self,
        message: str = "",
        *,
        code: ErrorCode | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        super().__init__(self.default_code if code is None else code, message)
        self.topic = topic
        self.partition = partition


class KafkaTimeout(ClientError, TimeoutError):
    """The operation did not finish in time. It may still take effect."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class ConnectionLost(ClientError, ConnectionError):
    """The connection closed before the response arrived. The request may have taken effect."""

    default_code = ErrorCode.NETWORK_EXCEPTION


class UnsupportedVersion(ClientError):
    """The broker does not support a version of the API that can express the request."""

    default_code = ErrorCode.UNSUPPORTED_VERSION


class AuthenticationFailed(ClientError):
    """The broker rejected the client's credentials, or the client the broker's certificate."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED
    fatal = True

"""How a request to a broker can fail before its answer is read."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError


class ClientError(KafkaError):
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
    default_code = ErrorCode.REQUEST_TIMED_OUT


class ConnectionLost(ClientError, ConnectionError):
    """The connection ended before the answer came: whether the request was carried out is open."""

    default_code = ErrorCode.NETWORK_EXCEPTION


class UnsupportedVersion(ClientError):
    """The broker has no version of an API that can express the request."""

    default_code = ErrorCode.UNSUPPORTED_VERSION


class AuthenticationFailed(ClientError):
    """One side did not believe the other: a password, or a certificate."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED
    fatal = True

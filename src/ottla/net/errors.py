"""Errors of requests that fail before their response has been read."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError


class ClientError(KafkaError):
    """Base class of the errors with which a request to a broker can fail.

    Args:
        message: The description of the error.
        code: The Kafka error code; by default, that of the class.
        topic: The topic that the error concerns.
        partition: The partition that the error concerns.
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
    """The broker did not answer in time."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class ConnectionLost(ClientError, ConnectionError):
    """The connection ended before the response: the request may have been carried out or not."""

    default_code = ErrorCode.NETWORK_EXCEPTION


class UnsupportedVersion(ClientError):
    """The broker has no version of an API that can express the request."""

    default_code = ErrorCode.UNSUPPORTED_VERSION


class AuthenticationFailed(ClientError):
    """One side did not accept the other's password or certificate."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED
    fatal = True

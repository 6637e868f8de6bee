"""Exceptions that the clients raise.

Every failure is a `KafkaError` that carries Kafka's error code. The subclasses here exist where a
type says more than a code. `topic` and `partition` are set if the failure concerns one. A failure
is *retriable* if the same call may succeed later, and *fatal* if this client can never succeed
again and must be closed."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.net.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    KafkaTimeout,
    UnsupportedVersion,
)

__all__ = [
    "AuthenticationFailed", "AuthorizationFailed", "BrokersUnreachable", "BufferFull",
    "ClientClosed", "ClientError", "CommitFailed", "ConnectionLost", "DeserializationFailed",
    "ErrorCode", "InvalidConfig", "KafkaError", "KafkaTimeout", "NoOffsetForPartition",
    "OffsetOutOfRange", "ProducerFenced", "RecordTooLarge", "SerializationFailed",
    "TransactionAborted", "TransactionFailed", "UnknownTopic", "UnsupportedVersion", "UserError",
    "error_for", "timed_out", "unfinished",
]  # fmt: skip


class InvalidConfig(UserError, ValueError):
    """A property does not exist, or its value is invalid."""


class BrokersUnreachable(KafkaTimeout):
    """No broker of the bootstrap list could be reached in time."""

    default_code = ErrorCode.BROKER_NOT_AVAILABLE


class BufferFull(KafkaTimeout):
    """`buffer.memory` stayed full for `max.block.ms`."""


class ClientClosed(ClientError):
    """The client was closed."""


class AuthorizationFailed(ClientError):
    """The client's principal is not authorized for the operation."""

    default_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class UnknownTopic(ClientError):
    """The topic or the partition does not exist."""

    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class RecordTooLarge(ClientError):
    """The record exceeds `max.request.size`, or the topic's `max.message.bytes`."""

    default_code = ErrorCode.MESSAGE_TOO_LARGE


class SerializationFailed(ClientError):
    """A serializer raised; its exception is the cause."""


class DeserializationFailed(ClientError):
    """A deserializer raised; its exception is the cause, and `offset` is the record's offset."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.offset = offset


class OffsetOutOfRange(ClientError):
    """The log does not contain the offset, and `auto.offset.reset` is `none`."""

    default_code = ErrorCode.OFFSET_OUT_OF_RANGE


class NoOffsetForPartition(OffsetOutOfRange):
    """No offset is committed, and `auto.offset.reset` is `none`."""


class CommitFailed(ClientError):
    """The group has rebalanced, and the partitions belong to another member."""

    default_code = ErrorCode.REBALANCE_IN_PROGRESS


class ProducerFenced(ClientError):
    """A newer producer uses the same transactional ID. Close this one."""

    default_code = ErrorCode.PRODUCER_FENCED
    fatal = True


class TransactionAborted(ClientError):
    """The transaction must be aborted. The producer can begin another one."""

    default_code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionFailed(ClientError):
    """The coordinator rejects this producer permanently. Close it."""

    default_code = ErrorCode.INVALID_TXN_STATE
    fatal = True


_TYPES: dict[ErrorCode, type[ClientError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
    ErrorCode.REQUEST_TIMED_OUT: KafkaTimeout,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLarge,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLarge,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationFailed,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationFailed,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersion,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFenced,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionAborted,
}


def error_for(
    code: int,
    message: str | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
) -> ClientError:
    """Return the exception for an error code. `message` is the broker's own, if it sent one."""
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
        message = message or f"the broker returned the unknown error code {code}"
    text = message or known.name.replace("_", " ").lower()
    if topic is not None:
        where = topic if partition is None else f"{topic}-{partition}"
        text = f"{where}: {text}"
    return _TYPES.get(known, ClientError)(text, code=known, topic=topic, partition=partition)


def timed_out(what: str, timeout_ms: int, last: KafkaError | str | None) -> ClientError:
    """Return the error for a call that timed out.

    Args:
        what: The operation, as a gerund: "listing topics".
        timeout_ms: The timeout.
        last: The reason why the last attempt failed.

    Returns:
        `last` itself if it is more specific than a lost connection or a timeout, otherwise a
        timeout whose message ends with it.
    """
    if isinstance(last, KafkaError) and not isinstance(last, ConnectionLost | KafkaTimeout):
        return last if isinstance(last, ClientError) else error_for(last.code, str(last))
    reason = "" if last is None else f": {last}"
    is_unreachable = isinstance(last, ConnectionLost | BrokersUnreachable)
    kind = BrokersUnreachable if is_unreachable else KafkaTimeout
    return kind(f"{what} did not succeed within {timeout_ms / 1000:g} s{reason}")


def unfinished(timeout: TimeoutError) -> str | None:
    """Return what the call was waiting for when `asyncio.timeout` cancelled it.

    `net.connection` and `cluster` attach that as a note to the CancelledError."""
    return next(iter(getattr(timeout.__cause__, "__notes__", ())), None)

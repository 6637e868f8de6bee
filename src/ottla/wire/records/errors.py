"""Errors in batches. Code in this package that reads bytes raises no other exceptions.

Each error carries the code to return to the producer, so that request handlers need no mapping.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError


class BatchError(KafkaError):
    """A batch cannot be accepted or read."""

    default_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(
        self,
        message: str,
        code: ErrorCode | None = None,
        record_errors: tuple[tuple[int, str], ...] = (),
    ) -> None:
        super().__init__(self.default_code if code is None else code, message)
        self.record_errors = record_errors
        """(Index in the batch, message) of each invalid record."""


class CorruptBatch(BatchError):
    """The bytes are damaged: a wrong checksum, an impossible size, records that do not parse."""


class InvalidBatch(BatchError):
    """The bytes are intact, but violate a rule."""

    default_code = ErrorCode.INVALID_RECORD


class UnsupportedMagic(InvalidBatch):
    """The message has format 0 or 1, which Kafka 4 rejects as an invalid record."""

"""What can be wrong with a batch. Everything in this package that reads bytes raises only these.

Each carries the code that a producer is told, so a handler needs no table of its own."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError


class BatchError(KafkaError):
    """A batch that cannot be accepted or read."""

    default_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(
        self,
        message: str,
        code: ErrorCode | None = None,
        record_errors: tuple[tuple[int, str], ...] = (),
    ) -> None:
        super().__init__(self.default_code if code is None else code, message)
        self.record_errors = record_errors
        """Which records are at fault, by their place in the batch, and why."""


class CorruptBatch(BatchError):
    """The bytes are damaged: a wrong checksum, an impossible size, records that do not parse."""


class InvalidBatch(BatchError):
    """The bytes are whole, and say something that they may not say."""

    default_code = ErrorCode.INVALID_RECORD


class UnsupportedMagic(InvalidBatch):
    """A message of format 0 or 1, which Kafka 4 refuses as an invalid record."""

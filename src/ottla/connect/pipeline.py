"""Conversion between a task's records and a topic's rows: transforms, converters and errors.

A source's record passes through the transforms, then the converters; a sink's row passes through
the converters first. A failure carries Kafka's name of its stage, for the log and the dead letter
queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.base.errors import UserError
from ottla.connect.api import RetriableError
from ottla.connect.converters import Converter
from ottla.connect.data import ConnectRecord, DataError, FailedRecord, Header
from ottla.connect.transforms.contract import Predicate, Transform

ERROR_PREFIX = "__connect.errors."


class Row(NamedTuple):
    """A serialized record, as it is stored in a topic."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    offset: int | None = None


class StageFailed(DataError):
    """Failure of one record, with the stage and the class where it occurred."""

    def __init__(self, stage: str, plugin: object, error: Exception) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.class_name = plugin if isinstance(plugin, str) else type(plugin).__name__
        self.error = error


class TransformStep(NamedTuple):
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False


@dataclass(frozen=True)
class Chain:
    """Transforms of a connector, in order."""

    steps: tuple[TransformStep, ...] = ()

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        if isinstance(record, FailedRecord):
            raise StageFailed("TASK_POLL", record.source, DataError(record.error))
        for step in self.steps:
            try:
                if step.predicate is not None and step.predicate.test(record) == step.negate:
                    continue
                done = step.transform.apply(record)
            except Exception as error:
                # A custom transform may raise anything. The error concerns this record only.
                raise StageFailed("TRANSFORMATION", step.transform, error) from error
            if done is None:
                return None
            record = done
        return record


@dataclass(frozen=True)
class Conversion:
    key: Converter
    value: Converter
    header: Converter

    def to_row(self, record: ConnectRecord) -> Row:
        topic = record.topic
        return Row(
            topic,
            record.partition,
            _write("KEY_CONVERTER", self.key, topic, record.key_schema, record.key),
            _write("VALUE_CONVERTER", self.value, topic, record.value_schema, record.value),
            self._headers(topic, record) if record.headers else (),
            record.timestamp_ms,
        )

    def _headers(self, topic: str, record: ConnectRecord) -> tuple[tuple[str, bytes | None], ...]:
        return tuple(
            (each.key, _write("HEADER_CONVERTER", self.header, topic, each.schema, each.value))
            for each in record.headers
        )

    def to_record(self, row: Row) -> ConnectRecord:
        key_schema, key = _read("KEY_CONVERTER", self.key, row.topic, row.key)
        value_schema, value = _read("VALUE_CONVERTER", self.value, row.topic, row.value)
        headers = tuple(
            Header(name, *_read("HEADER_CONVERTER", self.header, row.topic, data))
            for name, data in row.headers
        )
        origin = None
        if row.partition is not None and row.offset is not None:
            origin = row.topic, row.partition, row.offset
        return ConnectRecord(
            row.topic, value, value_schema, key, key_schema, row.partition, row.offset,
            row.timestamp_ms, headers, origin,
        )  # fmt: skip


def _write(stage: str, converter: Converter, topic: str, schema: Any, value: Any) -> bytes | None:
    try:
        return converter.from_connect(topic, schema, value)
    except RetriableError:
        raise
    except Exception as error:
        raise StageFailed(stage, converter, error) from error


def _read(stage: str, converter: Converter, topic: str, data: bytes | None) -> tuple[Any, Any]:
    try:
        return converter.to_connect(topic, data)
    except RetriableError:
        # The schema registry is unavailable; the record itself is fine.
        raise
    except Exception as error:
        raise StageFailed(stage, converter, error) from error


@dataclass(frozen=True)
class ErrorPolicy:
    """The `errors.*` properties of a connector."""

    tolerates: bool = False
    logs: bool = False
    logs_messages: bool = False
    retry_timeout_ms: int = 0
    retry_delay_max_ms: int = 60_000
    queue: str = ""
    queue_replication: int = 3
    queue_headers: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ErrorPolicy:
        queue = "errors.deadletterqueue."
        return cls(
            settings["errors.tolerance"] == "all",
            settings["errors.log.enable"],
            settings["errors.log.include.messages"],
            settings["errors.retry.timeout"],
            settings["errors.retry.delay.max.ms"],
            settings.get(f"{queue}topic.name", ""),
            settings.get(f"{queue}topic.replication.factor", 3),
            settings.get(f"{queue}context.headers.enable", False),
        )

    def tolerated(self, connector: str, failure: StageFailed, row: Row | ConnectRecord) -> str:
        """Return the log message for a failed record.

        Raises:
            UserError: Failures are not tolerated.
        """
        message = self._describe(connector, failure, row)
        if not self.tolerates:
            raise UserError(
                f"{message.rstrip('.')}. Set errors.tolerance=all to skip such records."
            ) from None
        return message

    def _describe(self, connector: str, failure: StageFailed, row: Row | ConnectRecord) -> str:
        where = f"{row.topic}-{row.partition}@{row.offset}" if row.offset is not None else row.topic
        message = (
            f"connector {connector}: a record of {where} failed at {failure.stage} "
            f"in {failure.class_name}: {failure}"
        )
        return f"{message}; key {row.key!r}, value {row.value!r}" if self.logs_messages else message


def context_headers(
    connector: str, task: int, failure: StageFailed, row: Row
) -> Iterable[tuple[str, bytes]]:
    """Return the headers that Kafka adds to a dead letter."""
    error = failure.error
    document = {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "connector.name": connector,
        "task.id": task,
        "stage": failure.stage,
        "class.name": failure.class_name,
        "exception.class.name": type(error).__name__,
        "exception.message": str(error),
        "exception.stacktrace": f"{type(error).__name__}: {error}",
    }
    return [(ERROR_PREFIX + name, str(value).encode()) for name, value in document.items()]

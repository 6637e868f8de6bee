"""Formatters of `kafka-console-consumer`, under the class names of Kafka's formatters.

| --formatter | output |
|---|---|
| `DefaultMessageFormatter` (default) | the value, and the fields selected with `print.…` |
| `LoggingMessageFormatter` | the same, and a line for each record on standard error |
| `NoOpMessageFormatter` | nothing; the records are only counted |
| `OffsetsMessageFormatter` | offsets in `__consumer_offsets`, as JSON |
| `GroupMetadataMessageFormatter` | groups in `__consumer_offsets`, as JSON |
| `TransactionLogMessageFormatter` | `__transaction_state`, as JSON |
| `ShareGroupStateMessageFormatter` | `__share_group_state`, as JSON |

JSON is printed one object per line; Kafka's formatters print no line breaks between objects.

A formatter converts a record to bytes. It raises ValueError for a record that it cannot format."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import click

from ottla.base.errors import UserError
from ottla.cli.named_deserializers import ToText, find_deserializer
from ottla.wire.records import internal

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
NO_TIMESTAMP = -1
_FLAGS = {
    "print.timestamp": False,
    "print.key": False,
    "print.offset": False,
    "print.partition": False,
    "print.epoch": False,
    "print.delivery": False,
    "print.headers": False,
    "print.value": True,
}
_TEXTS = {
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}
_DESERIALIZERS = ("key.deserializer", "value.deserializer", "headers.deserializer")


class ConsumedRecord(Protocol):
    """The fields of a consumed record that formatters use."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Any: ...
    @property
    def leader_epoch(self) -> int: ...


Formatter = Callable[[ConsumedRecord], bytes]


class DefaultFormatter:
    """Formatter for the value and the fields selected with `print.…` properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Validate the properties.

        Raises:
            UserError: A property is unknown.
        """
        known = {*_FLAGS, *_TEXTS, *_DESERIALIZERS}
        for name in properties:
            # Java's deserializers have properties of their own, which Ottla's do not need.
            if name not in known and not name.startswith(tuple(f"{x}." for x in _DESERIALIZERS)):
                raise UserError(
                    f"Unknown formatter property {name}. Use one of {', '.join(sorted(known))}."
                )
        flags = {
            name: properties.get(name, str(default)).strip().lower() == "true"
            for name, default in _FLAGS.items()
        }
        texts = {name: properties.get(name, default).encode() for name, default in _TEXTS.items()}
        self._separator, self._end = texts["key.separator"], texts["line.separator"]
        self._headers_separator, self._null = texts["headers.separator"], texts["null.literal"]
        self._read_key, self._read_value, self._read_header = (
            _deserializer(properties.get(name)) for name in _DESERIALIZERS
        )
        self._only_value = flags["print.value"] and sum(flags.values()) == 1
        parts: dict[str, Formatter] = {
            "print.timestamp": _timestamp,
            "print.partition": lambda record: b"Partition:%d" % record.partition,
            "print.offset": lambda record: b"Offset:%d" % record.offset,
            "print.delivery": lambda record: b"Delivery:NOT_PRESENT",
            "print.epoch": _epoch,
            "print.headers": self._headers,
            "print.key": lambda record: self._field(record.key, self._read_key),
            "print.value": lambda record: self._field(record.value, self._read_value),
        }
        self._parts = [part for name, part in parts.items() if flags[name]]

    def __call__(self, record: ConsumedRecord) -> bytes:
        if self._only_value:
            return self._field(record.value, self._read_value) + self._end
        if not self._parts:
            return b""
        return self._separator.join([part(record) for part in self._parts]) + self._end

    def _field(self, field: bytes | None, read: ToText | None) -> bytes:
        if field is None:
            return self._null
        return field if read is None else read(field)

    def _headers(self, record: ConsumedRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            [
                b"%b:%b" % (name.encode(), self._field(value, self._read_header))
                for name, value in record.headers
            ]
        )


def _deserializer(name: str | None) -> ToText | None:
    return None if name is None else find_deserializer(name)


def _timestamp(record: ConsumedRecord) -> bytes:
    if record.timestamp == NO_TIMESTAMP:
        return b"NO_TIMESTAMP"
    return f"{TIMESTAMP_TYPES[record.timestamp_type]}:{record.timestamp}".encode()


def _epoch(record: ConsumedRecord) -> bytes:
    return b"Epoch:NOT_PRESENT" if record.leader_epoch < 0 else b"Epoch:%d" % record.leader_epoch


class LoggingFormatter:
    """The default formatter, with an additional line per record on standard error."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._default = DefaultFormatter(properties)

    def __call__(self, record: ConsumedRecord) -> bytes:
        shown = self._default(record)
        key = "null" if record.key is None else record.key.decode("utf-8", "replace")
        value = "null" if record.value is None else record.value.decode("utf-8", "replace")
        click.echo(f"{_timestamp(record).decode()}, key:{key}, value:{value}", err=True)
        return shown


class JsonFormatter:
    """Formatter for a whole record as one line of JSON. Bytes that are not UTF-8 become base64."""

    def __call__(self, record: ConsumedRecord) -> bytes:
        shown = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": TIMESTAMP_TYPES[record.timestamp_type],
            "key": _text_or_base64(record.key),
            "value": _text_or_base64(record.value),
            "headers": [[name, _text_or_base64(value)] for name, value in record.headers],
        }
        return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def _text_or_base64(field: bytes | None) -> str | None:
    if field is None:
        return None
    try:
        return field.decode()
    except UnicodeDecodeError:
        return base64.b64encode(field).decode()


class InternalFormatter:
    """Formatter for the records of an internal topic, optionally of certain types only."""

    def __init__(
        self,
        read: Callable[[bytes, bytes | None], internal.KeyAndValue],
        types: frozenset[str] | None = None,
    ) -> None:
        self._read = read
        self._types = types

    def __call__(self, record: ConsumedRecord) -> bytes:
        if record.key is None:
            return b""
        try:
            found = self._read(record.key, record.value)
        except internal.UnknownType:
            return b""
        if self._types is not None and found.key["type"] not in self._types:
            return b""
        value = None
        if found.value is not None:
            value = {"version": int(found.value["version"]), "data": found.value["data"]}
        shown = {
            "key": {"type": int(found.key["type"]), "data": found.key["data"]},
            "value": value,
        }
        return json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _nothing(record: ConsumedRecord) -> bytes:
    return b""


_OFFSETS, _GROUPS = frozenset({"0", "1"}), frozenset({"2"})
_FORMATTERS: Mapping[str, Callable[[Mapping[str, str]], Formatter]] = {
    "DefaultMessageFormatter": DefaultFormatter,
    "LoggingMessageFormatter": LoggingFormatter,
    "NoOpMessageFormatter": lambda properties: _nothing,
    "OffsetsMessageFormatter": lambda properties: InternalFormatter(
        internal.group_record, _OFFSETS
    ),
    "GroupMetadataMessageFormatter": lambda properties: InternalFormatter(
        internal.group_record, _GROUPS
    ),
    "TransactionLogMessageFormatter": lambda properties: InternalFormatter(
        internal.transaction_record
    ),
    "ShareGroupStateMessageFormatter": lambda properties: InternalFormatter(
        internal.share_state_record
    ),
}
_SHORT = {"default": "DefaultMessageFormatter", "logging": "LoggingMessageFormatter",
          "noop": "NoOpMessageFormatter"}  # fmt: skip


def find_formatter(name: str, properties: Mapping[str, str]) -> Formatter:
    """Return a formatter by Kafka's class name, with or without package, or by a short name.

    Args:
        name: Class name, or default, logging or noop.
        properties: Properties of the formatter.

    Raises:
        UserError: The formatter or one of its properties is unknown.
    """
    last = name.replace("$", ".").rpartition(".")[2]
    known = _FORMATTERS.get(_SHORT.get(last, last))
    if known is None:
        raise UserError(
            f"Unknown formatter {name}: Ottla cannot load Java classes. Use one of "
            f"{', '.join(sorted(_FORMATTERS))}."
        )
    return known(properties)

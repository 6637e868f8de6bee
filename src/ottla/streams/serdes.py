"""Serdes: the encoding of keys and values in a topic.

| serde | bytes | in a function |
|---|---|---|
| Json("id string, amount double") | a JSON object | a record: `o.amount` |
| Json("double") | a JSON value | a float, a str, a list, … |
| String | UTF-8 | a str |
| Bytes | unchanged | bytes |
| Long | 8 bytes, big-endian, as Kafka's LongSerializer writes | an int |

A null (a tombstone) is null in all of them. Serdes without parameters may be written with or
without a call: `st.String` and `st.String()` are the same. `to` also accepts `st.Json` and
`st.Json()`, because it knows the columns that it writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ottla.streams.errors import TopologyError, topology_error
from ottla.streams.plan.shapes import DataShape, parse_shape, plain_shape

LONG_BYTES = 8
"""Size of a long, and of each number in a windowed key."""


@dataclass(frozen=True)
class DeadLetter:
    """Topic for records that cannot be processed, with headers for the cause and the origin.

    The header `ottla.error.reason` is always present. Records that cannot be parsed also have
    `ottla.source.topic`, `ottla.source.partition` and `ottla.source.offset`; records on which a
    function raised have `ottla.function`; late records have `ottla.operator`.
    """

    topic: str
    """Name of the topic."""


@dataclass(frozen=True)
class Serde:
    """Encoding of keys or values in a topic."""

    name: str
    """Name of the encoding."""
    shape: DataShape
    """Columns and types of the decoded values."""

    def __str__(self) -> str:
        return self.name

    def encode(self, value: Any) -> bytes | None:
        """Encode a Python value. Bytes are returned unchanged.

        Args:
            value: The key or value.

        Raises:
            TopologyError: The serde is `Bytes`, and the value is not bytes.
        """
        if value is None or isinstance(value, bytes):
            return value
        match self.name:
            case "string":
                return str(value).encode()
            case "long":
                return int(value).to_bytes(LONG_BYTES, "big", signed=True)
            case "json":
                return json.dumps(value, default=str).encode()
        raise TopologyError(f"expected bytes, not {value!r}")

    def decode(self, data: bytes | None) -> Any:
        """Decode a key or value to a Python value.

        Args:
            data: Bytes of the key or value.
        """
        if data is None or self.name == "bytes":
            return data
        if self.name == "string":
            return data.decode()
        if self.name == "long":
            return int.from_bytes(data, "big", signed=True)
        return json.loads(data)

    def canonical(self, data: bytes) -> bytes:
        """Return a canonical form of a key's bytes: the same JSON can be written in many ways.

        Args:
            data: Bytes of the key.
        """
        if self.name != "json":
            return data
        parsed = json.loads(data)
        text = json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode()


class PlainSerde(Serde):
    """A serde without parameters. Calling it returns the serde itself."""

    def __call__(self) -> PlainSerde:
        return self


class Json(Serde):
    """Serde for JSON objects with these columns. Other fields are ignored, missing ones are null.

    Args:
        schema: The columns, as `"id string, amount double"`, or the type of a plain JSON value, as
            `"double"`. Only `to` can do without.
    """

    def __init__(self, schema: str | None = None) -> None:
        super().__init__("json", DataShape((), True) if schema is None else parse_shape(schema))


SinkSerde = Serde | type[Json]
"""Serde that `to` accepts: it knows the columns that it writes, so `st.Json` is enough."""

String = PlainSerde("string", plain_shape("string"))
"""Serde for UTF-8 text, a `str` in functions."""
Bytes = PlainSerde("bytes", plain_shape("binary"))
"""Serde that keeps bytes unchanged."""
Long = PlainSerde("long", plain_shape("bigint"))
"""Serde for integers of 8 bytes, big-endian, as Kafka's LongSerializer writes them."""

_PLAIN_SERDES = {"string": String, "binary": Bytes}


def source_serde(operator: str, name: str, serde: object) -> Serde:
    """Return the serde that a topic is read with.

    Args:
        operator: The operator that reads the topic, for the error message.
        name: The argument, `key` or `value`.
        serde: The argument's value.

    Raises:
        TopologyError: It is not a serde, or a JSON serde without columns.
    """
    if serde is Json or (isinstance(serde, Serde) and not serde.shape.columns):
        raise topology_error(
            operator,
            f'{name}=st.Json needs the columns to read, as in st.Json("id string, n bigint")',
        )
    if not isinstance(serde, Serde):
        raise topology_error(
            operator,
            f"{name}={serde!r} is not a serde; use st.Json(…), st.String, st.Bytes or st.Long",
        )
    return serde


def sink_serde(name: str, serde: object, shape: DataShape) -> Serde | None:
    """Return the serde that `to` writes with, or None if none is given.

    Args:
        name: The argument, `key` or `value`.
        serde: The argument's value.
        shape: The columns of the key or value that is written.

    Raises:
        TopologyError: It is not a serde.
    """
    if serde is None:
        return None
    if serde is Json or (isinstance(serde, Serde) and not serde.shape.columns):
        return Serde("json", shape)
    return source_serde("to", name, serde)


def default_serde(shape: DataShape) -> Serde:
    """Return the default serde for a key or value: text and bytes unchanged, all else as JSON."""
    if not shape.is_record and shape.columns[0].type in _PLAIN_SERDES:
        return _PLAIN_SERDES[shape.columns[0].type or ""]
    return Serde("json", shape)


def split_windowed_key(key: bytes, *, is_session: bool) -> tuple[bytes, tuple[int, ...]]:
    """Separate a key in the format of Kafka Streams from the numbers of its window.

    Returns:
        The key, and the start of the window; for sessions, the end and the start.
    """
    length = (2 if is_session else 1) * LONG_BYTES
    plain, window = key[:-length], key[-length:]
    return plain, tuple(
        int.from_bytes(window[start : start + LONG_BYTES], "big", signed=True)
        for start in range(0, len(window), LONG_BYTES)
    )

"""How keys and values are bytes in a topic.

| serde | bytes | in a function |
|---|---|---|
| Json("id string, amount double") | a JSON object | a record: `o.amount` |
| String | UTF-8 | a str |
| Bytes | as they are | bytes |
| Long | 8 bytes, big-endian, as Kafka's LongSerializer writes | an int |

A value of null (a tombstone) is null in all of them."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.streams.plan.shapes import Shape, parse_record, plain


@dataclass(frozen=True)
class DeadLetter:
    """For `bad_records`: they go to this topic as they are, with headers that say why and whence
    (`ottla.error.reason`, `ottla.source.topic`, `.partition`, `.offset`)."""

    topic: str


@dataclass(frozen=True)
class Serde:
    name: str
    shape: Shape

    def __str__(self) -> str:
        return self.name


class Json(Serde):
    """Objects with these columns; others in the object are ignored, missing ones are null."""

    def __init__(self, schema: str) -> None:
        super().__init__("json", parse_record(schema))


String = Serde("string", plain("string"))
Bytes = Serde("bytes", plain("binary"))
Long = Serde("long", plain("bigint"))

_ENCODES = {"string": String, "binary": Bytes}


def natural(shape: Shape) -> Serde:
    """What a key or value is written as when nothing else is said: text and bytes as they are,
    everything else as JSON."""
    if not shape.is_record and shape.columns[0].type in _ENCODES:
        return _ENCODES[shape.columns[0].type or ""]
    return Serde("json", shape)

"""Records of Kafka's internal topics, in the JSON form that Kafka's own tools print.

    key              type int16, then the fields of the key's table in version 0
    value            version int16, then the fields of the value's table in that version
    metadata value   frame version uvarint (1), apiKey uvarint, version uvarint, then the fields

The tables are in internal_tables.py. The JSON is that of Kafka's converters: names are in camel
case, UUIDs are 22 characters of URL-safe base64, bytes are base64, and a tagged field appears only
if it was written. No input is trusted: lengths are checked against the available bytes, and
anything that does not parse raises ValueError.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.wire.records import internal_tables

CONSUMER = "consumer"
"""Protocol type of groups whose members are consumers."""
METADATA_FRAME_VERSION = 1
_MAX_UVARINT_BYTES = 10
_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}


class UnknownType(ValueError):
    """No table exists for the type of a record key."""

    def __init__(self, kind: int) -> None:
        super().__init__(f"unknown record type {kind}")
        self.kind = kind


class SchemaField(NamedTuple):
    """A field of a table."""

    name: str
    type: str
    first: int
    last: int
    """Last version that has the field; `first` is the first one."""
    is_nullable: bool
    tag: int | None
    fields: tuple[SchemaField, ...]
    """The nested fields of a struct, or of the structs in an array."""


class RecordSchema(NamedTuple):
    """The schema of a key, a value or a control record."""

    name: str
    api_key: int | None
    first: int
    last: int
    first_flexible: int | None
    fields: tuple[SchemaField, ...]

    def is_flexible(self, version: int) -> bool:
        return self.first_flexible is not None and version >= self.first_flexible


class KeyAndValue(NamedTuple):
    """A decoded record."""

    key: dict[str, Any]
    value: dict[str, Any] | None
    """None if the record is a tombstone."""


# ------------------------------------------------------------------------------------- topics


def group_record(key: bytes, value: bytes | None) -> KeyAndValue:
    """Decode a record of `__consumer_offsets`.

    Raises:
        UnknownType: The type of the key is unknown.
        ValueError: The record does not parse.
    """
    record = _record(internal_tables.GROUP, key, value)
    if record.value is not None and record.key["type"] == "2":
        _open_protocol(record.value["data"])
    return record


def transaction_record(key: bytes, value: bytes | None) -> KeyAndValue:
    """Decode a record of `__transaction_state`. Raises as `group_record` does."""
    return _record(internal_tables.TRANSACTION, key, value)


def share_state_record(key: bytes, value: bytes | None) -> KeyAndValue:
    """Decode a record of `__share_group_state`. Raises as `group_record` does."""
    return _record(internal_tables.SHARE_STATE, key, value)


def metadata_record(value: bytes) -> dict[str, Any]:
    """Decode the value of a record of `__cluster_metadata`. Raises as `group_record` does."""
    reader = _Reader(value)
    frame_version = reader.uvarint()
    if frame_version != METADATA_FRAME_VERSION:
        raise ValueError(f"unknown frame version {frame_version}")
    api_key, version = reader.uvarint(), reader.uvarint()
    table = _by_key(internal_tables.METADATA).get((api_key, ""))
    if table is None:
        raise UnknownType(api_key)
    data = _read_table(reader, table, version)
    return {"type": _snake_case(table.name), "version": version, "data": data}


def control_record(name: str, value: bytes) -> dict[str, Any]:
    """Decode the value of a control record in a KRaft log.

    Args:
        name: Name of the record's table in `internal_tables.CONTROL`.
        value: Value of the record.

    Raises:
        ValueError: The record does not parse.
    """
    (version,) = _NUMBERS["int16"].unpack_from(value) if len(value) > 1 else (0,)
    return _read_table(_Reader(value), _by_name(internal_tables.CONTROL)[name], version)


def _record(tables: str, key: bytes, value: bytes | None) -> KeyAndValue:
    reader = _Reader(key)
    kind = reader.number("int16")
    by_key = _by_key(tables)
    key_table = by_key.get((kind, "Key"))
    if key_table is None:
        raise UnknownType(kind)
    named = {"type": str(kind), "data": _read_table(reader, key_table, 0)}
    if value is None:
        return KeyAndValue(named, None)
    reader = _Reader(value)
    version = reader.number("int16")
    data = _read_table(reader, by_key[kind, "Value"], version)
    return KeyAndValue(named, {"version": str(version), "data": data})


def _open_protocol(group: dict[str, Any]) -> None:
    """Decode the subscriptions and assignments of consumers. Ones that do not parse stay base64."""
    if group.get("protocolType") != CONSUMER:
        return
    tables = _by_name(internal_tables.CONSUMER_PROTOCOL)
    for member in group["members"]:
        for name, table in (
            ("subscription", tables["ConsumerProtocolSubscription"]),
            ("assignment", tables["ConsumerProtocolAssignment"]),
        ):
            try:
                reader = _Reader(base64.b64decode(member[name]))
                version = min(reader.number("int16"), table.last)
                member[name] = _read_table(reader, table, version)
            except ValueError:
                pass


# ------------------------------------------------------------------------------------- reading


class _Reader:
    """A cursor over bytes. Every method raises ValueError if the bytes end too early."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, length: int) -> bytes:
        if length < 0 or length > self.left:
            raise ValueError(f"a field claims {length} bytes, but only {self.left} bytes remain")
        start = self._position
        self._position += length
        return self._data[start : self._position]

    def number(self, kind: str) -> Any:
        layout = _NUMBERS[kind]
        return layout.unpack(self.take(layout.size))[0]

    def uvarint(self) -> int:
        value = 0
        for index in range(_MAX_UVARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise ValueError("a varint is too long")

    def length(self, flexible: bool, layout: str) -> int:
        """Read a length; -1 is null."""
        return self.uvarint() - 1 if flexible else int(self.number(layout))


def _read_table(reader: _Reader, table: RecordSchema, version: int) -> dict[str, Any]:
    if version < table.first:
        raise ValueError(f"{table.name} has no version {version}")
    return _read_fields(reader, table.fields, version, table.is_flexible(version))


def _read_fields(
    reader: _Reader, fields: tuple[SchemaField, ...], version: int, flexible: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    there = [field for field in fields if field.first <= version <= field.last]
    for field in there:
        if field.tag is None:
            found[field.name] = _read_value(reader, field, version, flexible)
    if not flexible:
        return found
    tagged = {field.tag: field for field in there if field.tag is not None}
    for _ in range(reader.uvarint()):
        tag, content = reader.uvarint(), _Reader(reader.take(reader.uvarint()))
        if tag in tagged:
            found[tagged[tag].name] = _read_value(content, tagged[tag], version, flexible)
    # In the order of the table, as Kafka prints them.
    return {field.name: found[field.name] for field in there if field.name in found}


def _read_value(reader: _Reader, field: SchemaField, version: int, flexible: bool) -> Any:
    kind = field.type
    if kind == "{}":
        # Null is encoded as -1, but as 0 in a tagged field.
        if field.is_nullable and reader.number("int8") < (0 if field.tag is None else 1):
            return None
        return _read_fields(reader, field.fields, version, flexible)
    if not kind.startswith("[]"):
        return _read_scalar(reader, kind, flexible)
    count = reader.length(flexible, "int32")
    if count < 0:
        return None
    if count > reader.left:
        raise ValueError(f"an array claims {count} elements, but only {reader.left} bytes remain")
    if kind == "[]":
        return [_read_fields(reader, field.fields, version, flexible) for _ in range(count)]
    return [_read_scalar(reader, kind[2:], flexible) for _ in range(count)]


def _read_scalar(reader: _Reader, kind: str, flexible: bool) -> Any:
    if kind in _NUMBERS:
        return reader.number(kind)
    return _SCALARS[kind](reader, flexible)


def _read_string(reader: _Reader, flexible: bool) -> str | None:
    length = reader.length(flexible, "int16")
    return None if length < 0 else reader.take(length).decode("utf-8", "replace")


def _read_bytes(reader: _Reader, flexible: bool) -> str | None:
    length = reader.length(flexible, "int32")
    return None if length < 0 else base64.b64encode(reader.take(length)).decode()


def _read_uuid(reader: _Reader, flexible: bool) -> str:
    return base64.urlsafe_b64encode(reader.take(16)).decode().rstrip("=")


_SCALARS: dict[str, Callable[[_Reader, bool], Any]] = {
    "bool": lambda reader, flexible: reader.number("int8") != 0,
    "string": _read_string,
    "bytes": _read_bytes,
    "uuid": _read_uuid,
}


# -------------------------------------------------------------------------------------- tables

_HEAD = re.compile(r"(\w+) (\d+|-) (\d+)(?:-(\d+))? (\d+|-)")
_FIELD = re.compile(r"( +)(\w+) (\S+)(?: (\d+)(\+|-\d+)?)?( \?)?(?: #(\d+))?")
_ALL_LATER = 1 << 15


@lru_cache(maxsize=16)
def _by_name(tables: str) -> dict[str, RecordSchema]:
    found: dict[str, RecordSchema] = {}
    lines = tables.strip().splitlines()
    at = 0
    while at < len(lines):
        head = _HEAD.fullmatch(lines[at])
        assert head is not None, lines[at]
        name, api_key, first, last, flexible = head.groups()
        fields, at = _parse_fields(lines, at + 1, 2)
        found[name] = RecordSchema(
            name,
            None if api_key == "-" else int(api_key),
            int(first),
            int(last or first),
            None if flexible == "-" else int(flexible),
            fields,
        )
    return found


@lru_cache(maxsize=16)
def _by_key(tables: str) -> dict[tuple[int, str], RecordSchema]:
    """Index tables by API key and part: "Key", "Value", or "" for metadata."""
    found = {}
    for table in _by_name(tables).values():
        assert table.api_key is not None, f"{table.name} has a key"
        part = re.search(r"(Key|Value|)$", table.name)
        found[table.api_key, part[0] if part else ""] = table
    return found


def _parse_fields(lines: list[str], at: int, indent: int) -> tuple[tuple[SchemaField, ...], int]:
    fields: list[SchemaField] = []
    while at < len(lines):
        line = _FIELD.fullmatch(lines[at])
        if line is None or len(line[1]) < indent:
            break
        _, name, kind, first, more, nullable, tag = line.groups()
        nested, at = _parse_fields(lines, at + 1, indent + 2)
        fields.append(
            SchemaField(
                name,
                kind,
                int(first or 0),
                _last_version(first, more),
                nullable is not None,
                None if tag is None else int(tag),
                nested,
            )
        )
    return tuple(fields), at


def _last_version(first: str | None, more: str | None) -> int:
    if first is None or more == "+":
        return _ALL_LATER
    return int(first) if more is None else int(more[1:])


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()

"""InsertField, ReplaceField, MaskField, HoistField, ExtractField, ValueToKey."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import replace
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import NonEmpty, OneOf
from ottla.connect.data import (
    EPOCH,
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    DataError,
    Field,
    Record,
    Schema,
    Type,
    from_ms,
)
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.transforms.contract import PartTransform

_NULL_DEFAULT = key(
    "replace.null.with.default", ConfigType.BOOLEAN, True,
    "Whether a field's default stands for null.",
)  # fmt: skip


class InsertField(PartTransform):
    """A name that ends in ! must be there; one that ends in ? (or in neither) may be null."""

    definition = Definition([
        key("topic.field", ConfigType.STRING, None, "Field for the topic."),
        key("partition.field", ConfigType.STRING, None, "Field for the partition."),
        key("offset.field", ConfigType.STRING, None, "Field for the offset; sinks only."),
        key("timestamp.field", ConfigType.STRING, None, "Field for the record's time."),
        key("static.field", ConfigType.STRING, None, "Field for static.value."),
        key("static.value", ConfigType.STRING, None, "What static.field gets."),
        _NULL_DEFAULT,
    ])  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        self._names = {
            what: settings[f"{what}.field"]
            for what in ("topic", "partition", "offset", "timestamp", "static")
            if settings[f"{what}.field"]
        }
        if not self._names:
            raise ValueError("InsertField needs at least one of the fields to insert")
        if "static" in self._names and settings["static.value"] is None:
            raise ValueError("static.field needs static.value")

    def apply(self, record: Record) -> Record:
        schema, value = self.get(record)
        if value is None:
            return record
        inserted = dict(self.struct(schema, value))
        fields = list(schema.fields) if schema is not None else []
        for what, name in self._names.items():
            found, kind = self._found(record, what, has_schema=schema is not None)
            optional = not name.endswith("!")
            plain = name.removesuffix("!").removesuffix("?")
            if found is None and not optional:
                raise DataError(f"InsertField: the record has no {what} for {plain}")
            if found is None and schema is None:
                continue
            inserted[plain] = found
            fields = [each for each in fields if each.name != plain]
            fields.append(Field(plain, kind.as_optional() if optional else kind))
        if schema is not None:
            schema = replace(schema, fields=tuple(fields))
        return self.put(record, schema, inserted)

    def _found(self, record: Record, what: str, *, has_schema: bool) -> tuple[Any, Schema]:
        if what == "topic":
            return record.topic, STRING
        if what == "partition":
            return record.partition, INT32
        if what == "offset":
            return record.offset, INT64
        if what == "static":
            return self.settings["static.value"], STRING
        ms = record.timestamp_ms
        return (from_ms(ms) if has_schema and ms is not None else ms), TIMESTAMP_SCHEMA


class ReplaceField(PartTransform):
    definition = Definition([
        key("exclude", ConfigType.LIST, [], "Fields to leave out."),
        key("include", ConfigType.LIST, [], "The only fields to keep; empty: all."),
        key("renames", ConfigType.LIST, [], "New names, as old:new."),
        key("blacklist", ConfigType.LIST, [], "Old name of exclude."),
        key("whitelist", ConfigType.LIST, [], "Old name of include."),
        _NULL_DEFAULT,
    ])  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        self._exclude = settings["exclude"] or settings["blacklist"]
        self._include = settings["include"] or settings["whitelist"]
        self._renames = {}
        for each in settings["renames"]:
            old, colon, new = each.partition(":")
            if not colon or not old.strip() or not new.strip():
                raise ValueError(f"renames must look like old:new, not {each!r}")
            self._renames[old.strip()] = new.strip()

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def apply(self, record: Record) -> Record:
        schema, value = self.get(record)
        if value is None:
            return record
        struct = self.struct(schema, value)
        if schema is not None:
            schema = replace(
                schema,
                fields=tuple(
                    Field(self._renames.get(each.name, each.name), each.schema)
                    for each in schema.fields
                    if self._keeps(each.name)
                ),
            )
        kept = {
            self._renames.get(name, name): each
            for name, each in struct.items()
            if self._keeps(name)
        }
        return self.put(record, schema, kept)


_BLANK: tuple[tuple[type, Any], ...] = (
    (bool, False), (int, 0), (float, 0.0), (str, ""), (bytes, b""), (list, []), (dict, {}),
    (decimal.Decimal, decimal.Decimal(0)), (datetime.datetime, EPOCH),
    (datetime.date, EPOCH.date()), (datetime.time, datetime.time()),
)  # fmt: skip


class MaskField(PartTransform):
    """Fields become empty, zero or false; or the replacement, if they are numbers or texts."""

    definition = Definition(
        [
            key("fields", ConfigType.LIST, None, "The fields.", NonEmpty()),
            key("replacement", ConfigType.STRING, None, "What they become.", NonEmpty()),
            _NULL_DEFAULT,
        ],
        required=["fields"],
    )

    def apply(self, record: Record) -> Record:
        schema, value = self.get(record)
        if value is None:
            return record
        struct = self.struct(schema, value)
        masked = {
            name: self._mask(name, each) if name in self.settings["fields"] else each
            for name, each in struct.items()
        }
        return self.put(record, schema, masked)

    def _mask(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        replacement = self.settings["replacement"]
        if replacement is not None:
            return _replacement(name, value, replacement)
        for kind, blank in _BLANK:
            if isinstance(value, kind):
                return type(blank)(blank) if isinstance(blank, list | dict) else blank
        raise DataError(f"MaskField cannot mask {name}, a {type(value).__name__}")


def _replacement(name: str, value: Any, text: str) -> Any:
    for kind in (int, float, decimal.Decimal, str):
        if isinstance(value, kind) and not isinstance(value, bool):
            try:
                return kind(text)
            except (ValueError, decimal.InvalidOperation):
                raise DataError(
                    f"MaskField cannot put {text!r} for {name}, a {kind.__name__}"
                ) from None
    raise DataError(f"MaskField cannot put a replacement for {name}, a {type(value).__name__}")


class HoistField(PartTransform):
    """The whole becomes one field of a struct."""

    definition = Definition(
        [key("field", ConfigType.STRING, None, "The field's name.", NonEmpty())], required=["field"]
    )

    def apply(self, record: Record) -> Record:
        schema, value = self.get(record)
        name = self.settings["field"]
        if schema is not None:
            schema = Schema(Type.STRUCT, fields=(Field(name, schema),))
        return self.put(record, schema, {name: value})


class ExtractField(PartTransform):
    """One field becomes the whole."""

    definition = Definition(
        [
            key("field", ConfigType.STRING, None, "The field; with V2 a path.", NonEmpty()),
            key("field.syntax.version", ConfigType.STRING, "V1",
                "V2: dots lead into fields of fields.", OneOf(("V1", "V2"), ignore_case=True)),
            _NULL_DEFAULT,
        ],
        required=["field"],
    )  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        name = settings["field"]
        is_path = settings["field.syntax.version"].upper() == "V2"
        self._path = _path(name) if is_path else [name]

    def apply(self, record: Record) -> Record:
        schema, value = self.get(record)
        if value is None and schema is None:
            return record
        for name in self._path:
            if value is not None:
                value = self.struct(schema, value).get(name)
            if schema is not None:
                known = schema.field(name)
                if known is None:
                    raise DataError(f"ExtractField: unknown field {name}")
                schema = known.schema
        return self.put(record, schema, value)


def _path(text: str) -> list[str]:
    """`a.b` as two names; a name with dots is between backticks."""
    names, quoted = [""], False
    for char in text:
        if char == "`":
            quoted = not quoted
        elif char == "." and not quoted:
            names.append("")
        else:
            names[-1] += char
    if quoted:
        raise ValueError(f"the path {text!r} has a backtick without its other one")
    return names


class ValueToKey(PartTransform):
    """The key becomes a struct of fields of the value."""

    has_parts = False
    definition = Definition(
        [key("fields", ConfigType.LIST, None, "The fields.", NonEmpty()), _NULL_DEFAULT],
        required=["fields"],
    )

    def apply(self, record: Record) -> Record:
        schema, value = record.value_schema, record.value
        struct = self.struct(schema, value)
        names = self.settings["fields"]
        key_schema = None
        if schema is not None:
            fields = []
            for name in names:
                known = schema.field(name)
                if known is None:
                    raise DataError(f"ValueToKey: the value has no field {name}")
                fields.append(known)
            key_schema = Schema(Type.STRUCT, fields=tuple(fields))
        return record.with_(key_schema=key_schema, key={name: struct.get(name) for name in names})

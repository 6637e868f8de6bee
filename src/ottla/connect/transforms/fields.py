"""Field transforms: InsertField, ReplaceField, MaskField, HoistField, ExtractField, ValueToKey."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import replace
from functools import partial
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import NonEmpty
from ottla.connect.data import (
    EPOCH,
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    ConnectRecord,
    DataError,
    Field,
    Schema,
    Type,
    from_ms,
)
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.transforms.contract import NULL_DEFAULT, PartTransform
from ottla.connect.transforms.paths import (
    SYNTAX,
    Path,
    changed,
    insert_schema,
    insert_value,
    path_of,
    schema_at,
    value_at,
    with_schema,
    with_value,
)

_INSERTED = {
    "topic": STRING, "partition": INT32, "offset": INT64, "timestamp": TIMESTAMP_SCHEMA,
    "static": STRING,
}  # fmt: skip


class InsertField(PartTransform):
    """Transform that inserts fields.

    A field whose name ends in ! is required; one that ends in ? or neither is optional.
    """

    on_columns = True
    definition = Definition([
        key("topic.field", ConfigType.STRING, None, "Field to insert with the name of the topic."),
        key("partition.field", ConfigType.STRING, None,
            "Field to insert with the number of the partition."),
        key("offset.field", ConfigType.STRING, None, "Field to insert with the offset, in sinks."),
        key("timestamp.field", ConfigType.STRING, None,
            "Field to insert with the timestamp of the record."),
        key("static.field", ConfigType.STRING, None, "Field to insert with static.value."),
        key("static.value", ConfigType.STRING, None, "Value of static.field."),
        NULL_DEFAULT,
        SYNTAX,
    ])  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        self._paths: dict[str, tuple[Path, bool]] = {}
        """Path of each inserted field, and whether it is optional."""
        for what in _INSERTED:
            name = settings[f"{what}.field"]
            if name:
                plain = name.removesuffix("!").removesuffix("?")
                self._paths[what] = (path_of(plain, settings), not name.endswith("!"))
        if not self._paths:
            raise ValueError(
                "InsertField requires at least one of topic.field, partition.field, offset.field, "
                "timestamp.field and static.field"
            )
        if "static" in self._paths and settings["static.value"] is None:
            raise ValueError("static.field requires static.value")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        if value is None:
            return record
        inserted = self.struct(schema, value)
        for what, (path, optional) in self._paths.items():
            found = self._found(record, what, has_schema=schema is not None)
            if found is None and not optional:
                raise DataError(f"InsertField: the record has no {what} for {'.'.join(path)}")
            if found is None and schema is None:
                continue
            inserted = insert_value(inserted, path, found)
        return self.put(record, self.made_of.get(schema) if schema else None, inserted)

    def new_schema(self, schema: Schema) -> Schema:
        for what, (path, optional) in self._paths.items():
            kind = _INSERTED[what]
            schema = insert_schema(schema, path, kind.as_optional() if optional else kind)
        return schema

    def _found(self, record: ConnectRecord, what: str, *, has_schema: bool) -> Any:
        if what == "topic":
            return record.topic
        if what == "partition":
            return record.partition
        if what == "offset":
            return record.offset
        if what == "static":
            return self.settings["static.value"]
        ms = record.timestamp_ms
        return changed(ms, from_ms) if has_schema and ms is not None else ms


class ReplaceField(PartTransform):
    on_columns = True
    definition = Definition([
        key("exclude", ConfigType.LIST, [], "Fields to remove."),
        key("include", ConfigType.LIST, [], "Fields to keep; all if empty."),
        key("renames", ConfigType.LIST, [], "Fields to rename, as old:new."),
        key("blacklist", ConfigType.LIST, [], "Deprecated alias of exclude."),
        key("whitelist", ConfigType.LIST, [], "Deprecated alias of include."),
        NULL_DEFAULT,
        SYNTAX,
    ])  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        self._exclude = {
            path_of(each, settings) for each in settings["exclude"] or settings["blacklist"]
        }
        self._include = {
            path_of(each, settings) for each in settings["include"] or settings["whitelist"]
        }
        self._renames: dict[Path, str] = {}
        for each in settings["renames"]:
            old, colon, new = each.rpartition(":")
            if not colon or not old.strip() or not new.strip():
                raise ValueError(f"renames must look like old:new, not {each!r}")
            self._renames[path_of(old.strip(), settings)] = new.strip()
        self._deepest = max(map(len, [*self._exclude, *self._include, *self._renames]), default=1)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        if value is None:
            return record
        struct = self.struct(schema, value)
        kept = self._kept(struct, ())
        return self.put(record, self.made_of.get(schema) if schema else None, kept)

    def new_schema(self, schema: Schema) -> Schema:
        return self._kept_schema(schema, ())

    def _keeps(self, path: Path) -> bool:
        if path in self._exclude:
            return False
        # A field is kept if it leads to an included field or lies within one.
        return not self._include or any(
            each[: len(path)] == path[: len(each)] for each in self._include
        )

    def _kept(self, struct: dict[str, Any], above: Path) -> dict[str, Any]:
        kept = {}
        for name, value in struct.items():
            path = (*above, name)
            if self._keeps(path):
                if isinstance(value, dict) and len(path) < self._deepest:
                    value = self._kept(value, path)
                kept[self._renames.get(path, name)] = value
        return kept

    def _kept_schema(self, schema: Schema, above: Path) -> Schema:
        fields = []
        for each in schema.fields:
            path = (*above, each.name)
            if self._keeps(path):
                inner = each.schema
                if inner.type is Type.STRUCT and len(path) < self._deepest:
                    inner = self._kept_schema(inner, path)
                fields.append(Field(self._renames.get(path, each.name), inner))
        return replace(schema, fields=tuple(fields))


_BLANK: tuple[tuple[type, Any], ...] = (
    (bool, False), (int, 0), (float, 0.0), (str, ""), (bytes, b""), (list, []), (dict, {}),
    (decimal.Decimal, decimal.Decimal(0)), (datetime.datetime, EPOCH),
    (datetime.date, EPOCH.date()), (datetime.time, datetime.time()),
)  # fmt: skip


class MaskField(PartTransform):
    """Transform that blanks fields, or replaces numbers and strings by `replacement`."""

    on_columns = True
    definition = Definition(
        [
            key("fields", ConfigType.LIST, None, "Fields to mask.", NonEmpty()),
            key(
                "replacement",
                ConfigType.STRING,
                None,
                "Value that replaces the fields; the zero value of their type if not set.",
                NonEmpty(),
            ),
            NULL_DEFAULT,
            SYNTAX,
        ],
        required=["fields"],
    )

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        self._paths = [path_of(each, settings) for each in settings["fields"]]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        if value is None:
            return record
        masked: Any = self.struct(schema, value)
        for path in self._paths:
            name = ".".join(path)
            masked = with_value(masked, path, partial(self._mask, name))
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
        raise DataError(f"MaskField cannot mask field {name} of type {type(value).__name__}")


def _replacement(name: str, value: Any, text: str) -> Any:
    for kind in (int, float, decimal.Decimal, str):
        if isinstance(value, kind) and not isinstance(value, bool):
            try:
                return kind(text)
            except (ValueError, decimal.InvalidOperation):
                raise DataError(
                    f"MaskField cannot replace field {name} of type {kind.__name__} by {text!r}"
                ) from None
    raise DataError(
        f"MaskField cannot use a replacement for field {name} of type {type(value).__name__}"
    )


class HoistField(PartTransform):
    """Transform that wraps the key or value, or with `hoisted` one of its fields, in a struct."""

    definition = Definition(
        [
            key("field", ConfigType.STRING, None, "Name of the new field.", NonEmpty()),
            key(
                "hoisted", ConfigType.STRING, "", "Field to wrap; the whole key or value if empty."
            ),
            SYNTAX,
        ],
        required=["field"],
    )

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        hoisted = settings["hoisted"]
        self._path = path_of(hoisted, settings) if hoisted else ()
        self.on_columns = not self._path

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        name = self.settings["field"]
        if not self._path:
            return self.put(record, self.made_of.get(schema) if schema else None, {name: value})
        if value is None:
            return record
        struct = self.struct(schema, value)
        hoisted = with_value(struct, self._path, lambda each: {name: each})
        return self.put(record, self.made_of.get(schema) if schema else None, hoisted)

    def new_schema(self, schema: Schema) -> Schema:
        if self._path:
            return with_schema(schema, self._path, self._hoisted)
        return self._hoisted(schema)

    def _hoisted(self, schema: Schema) -> Schema:
        return Schema(Type.STRUCT, fields=(Field(self.settings["field"], schema),))


class ExtractField(PartTransform):
    """Transform that replaces the key or value by one of its fields."""

    on_columns = True
    definition = Definition(
        [
            key(
                "field",
                ConfigType.STRING,
                None,
                "Field to extract; with field.syntax.version=V2, a path.",
                NonEmpty(),
            ),
            SYNTAX,
            NULL_DEFAULT,
        ],
        required=["field"],
    )

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        self._path = path_of(settings["field"], settings)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
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


class ValueToKey(PartTransform):
    """Transform that replaces the key by a struct of fields of the value.

    A nested field is named by the last part of its path.
    """

    on_columns = True
    has_parts = False
    definition = Definition(
        [
            key(
                "fields",
                ConfigType.LIST,
                None,
                "Fields of the value that form the key.",
                NonEmpty(),
            ),
            NULL_DEFAULT,
            SYNTAX,
        ],
        required=["fields"],
    )

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        paths = [path_of(each, settings) for each in settings["fields"]]
        self._paths = {path[-1]: path for path in paths}
        if len(self._paths) < len(set(paths)):
            raise ValueError("two of the fields have the same name in the key")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = record.value_schema, record.value
        struct = self.struct(schema, value)
        key_schema = self.made_of.get(schema) if schema is not None else None
        made = {name: value_at(struct, path) for name, path in self._paths.items()}
        return record.with_(key_schema=key_schema, key=made)

    def new_schema(self, schema: Schema) -> Schema:
        fields = []
        for name, path in self._paths.items():
            known = schema_at(schema, path)
            if known is None:
                raise DataError(f"ValueToKey: the value has no field {'.'.join(path)}")
            fields.append(Field(name, known))
        return Schema(Type.STRUCT, fields=tuple(fields))

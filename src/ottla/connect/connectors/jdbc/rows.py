"""Conversion of records to actions on a table.

    pk.mode         primary key of a row
    none            none
    kafka           topic, partition and offset of the record
    record_key      fields of the record's key (all or those in pk.fields), or a single column for
                    a key that is not a struct
    record_value    fields of the value

Values are structs, maps without a schema, or Debezium envelopes, which specify their own operation.
A record without a value deletes the row of its key (`delete.enabled`). The functions do no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ottla.connect.connectors.jdbc.values import bound
from ottla.connect.data import (
    INT32,
    INT64,
    STRING,
    ConnectRecord,
    DataError,
    Schema,
    Type,
    infer_schema,
)
from ottla.connect.debezium import is_envelope, unchanged_columns, unwrap

KAFKA_FIELDS = ("__connect_topic", "__connect_partition", "__connect_offset")
_PLACE = re.compile(r"\$\{(topic|schema|table)\}")


class Operation(Enum):
    WRITE = "write"
    DELETE = "delete"
    DELETE_ALL = "delete all"


@dataclass(frozen=True)
class Action:
    table: tuple[str, ...]
    operation: Operation
    key: tuple[str, ...]
    """Columns of the primary key."""
    values: Mapping[str, Any]
    """Values by column, converted for the driver; for a delete, only those of the key."""
    schemas: Mapping[str, Schema]
    record: ConnectRecord
    kept: frozenset[str] = frozenset()
    """Columns that an existing row keeps."""

    @property
    def identity(self) -> tuple[Any, ...]:
        return tuple(self.values[name] for name in self.key)


@dataclass(frozen=True)
class RowRules:
    dialect: str
    table_format: str = "${topic}"
    pk_mode: str = "none"
    pk_fields: tuple[str, ...] = ()
    fields: frozenset[str] = frozenset()
    """`fields.whitelist`; empty means all."""
    names: Mapping[str, str] = field(default_factory=dict)
    """`field.mapping`: column names by field."""
    deletes: bool = False
    truncates: bool = False

    def action(self, record: ConnectRecord) -> Action | None:
        """Return the action for a record, or None; raise DataError if the record is invalid."""
        table = self.table_of(record.topic)
        schema, value, op = record.value_schema, record.value, ""
        if is_envelope(schema, value):
            op, schema, value = unwrap(schema, value)
        if op == "t":
            if not self.truncates:
                return None
            return Action(table, Operation.DELETE_ALL, (), {}, {}, record)
        if value is None or op == "d":
            return self._delete(record, table)
        if not isinstance(value, dict) or (schema is not None and schema.type is not Type.STRUCT):
            raise DataError("the value is not a struct, so it cannot be written as a row")
        schemas = self._schemas(schema, value)
        key = self._key(record, schemas, value)
        values: dict[str, tuple[Schema, Any]] = dict(key)
        for name, found in schemas.items():
            if not self.fields or name in self.fields:
                values[self.names.get(name, name)] = (found, value.get(name))
        unchanged = {self.names.get(each, each) for each in unchanged_columns(record)}
        return Action(
            table,
            Operation.WRITE,
            tuple(key),
            self._bound(values),
            {name: found for name, (found, _) in values.items()},
            record,
            frozenset(unchanged),
        )

    def table_of(self, topic: str) -> tuple[str, ...]:
        parts = topic.split(".")
        places = {
            "topic": topic,
            "table": parts[-1],
            "schema": parts[-2] if len(parts) > 1 else "",
        }
        name = _PLACE.sub(lambda found: places[found[1]], self.table_format)
        split = tuple(each for each in name.split(".") if each)
        if len(split) > 2 or self.dialect == "sqlite":
            return ("_".join(split),)
        return split

    def _delete(self, record: ConnectRecord, table: tuple[str, ...]) -> Action | None:
        if not self.deletes:
            if record.value is None:
                raise DataError("a tombstone requires delete.enabled=true")
            return None
        if record.key is None:
            raise DataError("the record has neither a key nor a value")
        key = self._key(record, {}, {})
        schemas = {name: found for name, (found, _) in key.items()}
        return Action(table, Operation.DELETE, tuple(key), self._bound(key), schemas, record)

    def _bound(self, values: Mapping[str, tuple[Schema, Any]]) -> dict[str, Any]:
        return {
            name: bound(schema, value, self.dialect) for name, (schema, value) in values.items()
        }

    def _schemas(self, schema: Schema | None, value: dict[str, Any]) -> dict[str, Schema]:
        if schema is not None:
            return {each.name: each.schema for each in schema.fields}
        return {name: (infer_schema(each) or STRING).as_optional() for name, each in value.items()}

    # ----------------------------------------------------------------------------------- keys

    def _key(
        self, record: ConnectRecord, schemas: Mapping[str, Schema], value: dict[str, Any]
    ) -> dict[str, tuple[Schema, Any]]:
        if self.pk_mode == "none":
            return {}
        if self.pk_mode == "kafka":
            names = self.pk_fields or KAFKA_FIELDS
            found = (STRING, record.topic), (INT32, record.partition), (INT64, record.offset)
            return dict(zip(names, found, strict=True))
        if self.pk_mode == "record_key":
            return self._record_key(record)
        wanted = self.pk_fields or tuple(schemas)
        missing = [each for each in wanted if each not in schemas]
        if missing:
            raise DataError(f"the value has no field {missing[0]}, which pk.fields names")
        return {
            self.names.get(each, each): (_required(schemas[each]), value.get(each))
            for each in wanted
        }

    def _record_key(self, record: ConnectRecord) -> dict[str, tuple[Schema, Any]]:
        schema, key = record.key_schema, record.key
        if key is None:
            raise DataError("the record has no key, but pk.mode=record_key requires one")
        if not isinstance(key, dict):
            if len(self.pk_fields) != 1:
                raise DataError("the key is not a struct; name one column for it in pk.fields")
            return {self.pk_fields[0]: (_required(schema or infer_schema(key) or STRING), key)}
        schemas = self._schemas(schema, key)
        wanted = self.pk_fields or tuple(schemas)
        missing = [each for each in wanted if each not in schemas]
        if missing:
            raise DataError(f"the key has no field {missing[0]}, which pk.fields names")
        return {
            self.names.get(each, each): (_required(schemas[each]), key.get(each)) for each in wanted
        }


def _required(schema: Schema) -> Schema:
    from dataclasses import replace

    return replace(schema, optional=False) if schema.optional else schema

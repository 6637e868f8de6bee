"""`ExtractNewRecordState`: replaces Debezium's envelopes by the rows in them.

    delete.tombstone.handling.mode   handling of deletes and the tombstones that follow them
        tombstone                a tombstone replaces both     (the default)
        drop                     both are dropped
        delete-to-tombstone      the delete is dropped, the tombstone kept
        rewrite                  the old row with __deleted=true; the tombstone is dropped
        rewrite-with-tombstone   the same, and the tombstone is kept
    add.fields, add.headers      fields of the envelope to add: op, source.lsn, ts_ms …; named
                                 __op, __source_lsn …

Truncates have no row and are dropped. Records that are not envelopes are unchanged.
"""

from __future__ import annotations

from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import OneOf
from ottla.connect.data import (
    OPTIONAL_STRING,
    ConnectRecord,
    DataError,
    Field,
    Header,
    Schema,
    Type,
    infer_schema,
)
from ottla.connect.debezium import is_envelope, unwrap
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.transforms.contract import VALUE, Transform

MODES = ("tombstone", "drop", "delete-to-tombstone", "rewrite", "rewrite-with-tombstone")
DELETED = "__deleted"


class ExtractNewRecordState(Transform):
    definition = Definition([
        key("delete.tombstone.handling.mode", ConfigType.STRING, "tombstone",
            "Treatment of deletes and tombstones.", OneOf(MODES)),
        key("add.fields", ConfigType.LIST, [], "Fields of the envelope to add to the row."),
        key("add.fields.prefix", ConfigType.STRING, "__",
            "Prefix of the names of the added fields."),
        key("add.headers", ConfigType.LIST, [], "Fields of the envelope to add as headers."),
        key("add.headers.prefix", ConfigType.STRING, "__",
            "Prefix of the names of the added headers."),
    ])  # fmt: skip

    def __init__(self, settings: Settings, part: str = VALUE) -> None:
        super().__init__(settings, part)
        self._mode = settings["delete.tombstone.handling.mode"]
        self._schemas: dict[int, tuple[Schema, Schema]] = {}

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        if record.value is None:
            # With `tombstone`, the preceding delete has already become the tombstone.
            kept = ("delete-to-tombstone", "rewrite-with-tombstone")
            return record if self._mode in kept or record.key is None else None
        if not is_envelope(record.value_schema, record.value):
            return record
        op, schema, row = unwrap(record.value_schema, record.value)
        if op == "t":
            return None
        headers = (*record.headers, *self._headers(record))
        if op == "d":
            return self._deleted(record, schema, row, headers)
        value, made = self._row(record, schema, dict(row or {}), is_deleted=False)
        return record.with_(value=value, value_schema=made, headers=headers)

    def _deleted(
        self,
        record: ConnectRecord,
        schema: Schema | None,
        row: dict[str, Any] | None,
        headers: tuple[Header, ...],
    ) -> ConnectRecord | None:
        if self._mode in ("drop", "delete-to-tombstone"):
            return None
        if self._mode == "tombstone":
            return record.with_(value=None, value_schema=None, headers=headers)
        value, made = self._row(record, schema, dict(row or {}), is_deleted=True)
        return record.with_(value=value, value_schema=made, headers=headers)

    def _row(
        self, record: ConnectRecord, schema: Schema | None, row: dict[str, Any], *, is_deleted: bool
    ) -> tuple[dict[str, Any], Schema | None]:
        more: list[tuple[str, Schema, Any]] = []
        for name, found, value in self._found(record, "add.fields"):
            more.append((name, found, value))
        if self._mode.startswith("rewrite"):
            more.append((DELETED, OPTIONAL_STRING, "true" if is_deleted else "false"))
        row |= {name: value for name, _, value in more}
        return row, self._widened(schema, more)

    def _widened(self, schema: Schema | None, more: list[tuple[str, Schema, Any]]) -> Schema | None:
        """Return the row's schema with additional fields.

        It is built once for each schema, because converters cache schemas by identity.
        """
        if schema is None or not (more or schema.optional):
            return schema
        known = self._schemas.get(id(schema))
        if known is not None and known[0] is schema:
            return known[1]
        fields = (*schema.fields, *(Field(name, each) for name, each, _ in more))
        made = Schema(Type.STRUCT, False, schema.name, fields=fields)
        if len(self._schemas) > 1000:
            self._schemas.clear()
        self._schemas[id(schema)] = (schema, made)
        return made

    def _headers(self, record: ConnectRecord) -> list[Header]:
        return [
            Header(name, schema, value)
            for name, schema, value in self._found(record, "add.headers")
        ]

    def _found(self, record: ConnectRecord, kind: str) -> list[tuple[str, Schema, Any]]:
        prefix = self.settings[f"{kind}.prefix"]
        found = []
        for path in self.settings[kind]:
            path, _, name = path.partition(":")
            value: Any = record.value
            schema = record.value_schema
            for step in path.split("."):
                if not isinstance(value, dict) or step not in value:
                    raise DataError(f"the envelope has no field {path}")
                inner = schema.field(step) if schema is not None else None
                value, schema = value[step], inner.schema if inner is not None else None
            schema = schema or infer_schema(value) or OPTIONAL_STRING
            found.append((prefix + (name or path.replace(".", "_")), schema.as_optional(), value))
        return found

"""Transforms of headers: HeaderFrom, InsertHeader, DropHeaders."""

from __future__ import annotations

from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import NonEmpty, OneOf
from ottla.connect.converters import SimpleHeaderConverter
from ottla.connect.data import ConnectRecord, DataError, Header, Schema
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.transforms.contract import NULL_DEFAULT, PartTransform, Transform
from ottla.connect.transforms.paths import (
    SYNTAX,
    path_of,
    schema_at,
    value_at,
    without_schema,
    without_value,
)


class HeaderFrom(PartTransform):
    """Transform that copies or moves fields to headers."""

    definition = Definition(
        [
            key("fields", ConfigType.LIST, None, "Fields to move or copy to headers.", NonEmpty()),
            key(
                "headers",
                ConfigType.LIST,
                None,
                "Headers for the fields, in the same order.",
                NonEmpty(),
            ),
            key(
                "operation",
                ConfigType.STRING,
                None,
                "Whether to move or copy the fields.",
                OneOf(("move", "copy")),
            ),
            NULL_DEFAULT,
            SYNTAX,
        ],
        required=["fields", "headers", "operation"],
    )

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        if len(settings["fields"]) != len(settings["headers"]):
            raise ValueError("fields and headers must have the same length")
        self._paths = [path_of(each, settings) for each in settings["fields"]]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        if value is None:
            return record
        struct = self.struct(schema, value)
        headers = list(record.headers)
        for path, header in zip(self._paths, self.settings["headers"], strict=True):
            known = schema_at(schema, path) if schema is not None else None
            if schema is not None and known is None:
                raise DataError(f"HeaderFrom: field {'.'.join(path)} does not exist")
            headers.append(Header(header, known, value_at(struct, path)))
        record = record.with_(headers=tuple(headers))
        if self.settings["operation"] == "copy":
            return record
        kept: Any = struct
        for path in self._paths:
            kept = without_value(kept, path)
        return self.put(record, self.made_of.get(schema) if schema else None, kept)

    def new_schema(self, schema: Schema) -> Schema:
        for path in self._paths:
            schema = without_schema(schema, path)
        return schema


class InsertHeader(Transform):
    definition = Definition(
        [
            key("header", ConfigType.STRING, None, "Name of the header.", NonEmpty()),
            key(
                "value.literal",
                ConfigType.STRING,
                None,
                "Value of the header; numbers and JSON are parsed.",
            ),
        ],
        required=["header", "value.literal"],
    )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        literal = str(self.settings["value.literal"]).encode()
        schema, value = SimpleHeaderConverter({}).to_connect(record.topic, literal)
        header = Header(self.settings["header"], schema, value)
        return record.with_(headers=(*record.headers, header))


class DropHeaders(Transform):
    on_columns = True
    definition = Definition(
        [key("headers", ConfigType.LIST, None, "Names of the headers to remove.", NonEmpty())],
        required=["headers"],
    )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        gone = self.settings["headers"]
        return record.with_(headers=tuple(each for each in record.headers if each.key not in gone))

"""HeaderFrom, InsertHeader, DropHeaders."""

from __future__ import annotations

from dataclasses import replace

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import NonEmpty, OneOf
from ottla.connect.converters import SimpleHeaderConverter
from ottla.connect.data import DataError, Header, Record
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.transforms.contract import PartTransform, Transform


class HeaderFrom(PartTransform):
    """Fields become headers."""

    definition = Definition(
        [
            key("fields", ConfigType.LIST, None, "The fields.", NonEmpty()),
            key("headers", ConfigType.LIST, None, "The headers, in the same order.", NonEmpty()),
            key("operation", ConfigType.STRING, None, "move or copy.", OneOf(("move", "copy"))),
        ],
        required=["fields", "headers", "operation"],
    )

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        if len(settings["fields"]) != len(settings["headers"]):
            raise ValueError("fields and headers must be equally many")

    def apply(self, record: Record) -> Record:
        schema, value = self.get(record)
        if value is None:
            return record
        struct = self.struct(schema, value)
        fields, headers = self.settings["fields"], list(record.headers)
        for name, header in zip(fields, self.settings["headers"], strict=True):
            known = schema.field(name) if schema is not None else None
            if schema is not None and known is None:
                raise DataError(f"HeaderFrom: there is no field {name}")
            headers.append(Header(header, known.schema if known else None, struct.get(name)))
        record = record.with_(headers=tuple(headers))
        if self.settings["operation"] == "copy":
            return record
        if schema is not None:
            left = tuple(each for each in schema.fields if each.name not in fields)
            schema = replace(schema, fields=left)
        kept = {name: each for name, each in struct.items() if name not in fields}
        return self.put(record, schema, kept)


class InsertHeader(Transform):
    definition = Definition(
        [
            key("header", ConfigType.STRING, None, "The header's name.", NonEmpty()),
            key("value.literal", ConfigType.STRING, None, "Its value; numbers and JSON are known."),
        ],
        required=["header", "value.literal"],
    )

    def apply(self, record: Record) -> Record:
        literal = str(self.settings["value.literal"]).encode()
        schema, value = SimpleHeaderConverter({}).to_connect(record.topic, literal)
        header = Header(self.settings["header"], schema, value)
        return record.with_(headers=(*record.headers, header))


class DropHeaders(Transform):
    definition = Definition(
        [key("headers", ConfigType.LIST, None, "The headers' names.", NonEmpty())],
        required=["headers"],
    )

    def apply(self, record: Record) -> Record:
        gone = self.settings["headers"]
        return record.with_(headers=tuple(each for each in record.headers if each.key not in gone))

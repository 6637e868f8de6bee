"""TimestampConverter: converts times between text, Unix time and Connect's logical types."""

from __future__ import annotations

import datetime
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import OneOf
from ottla.connect.data import (
    DATE_SCHEMA,
    EPOCH,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectRecord,
    DataError,
    Schema,
    from_ms,
    to_ms,
)
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.java_dates import JavaDatePattern
from ottla.connect.transforms.contract import NULL_DEFAULT, PartTransform
from ottla.connect.transforms.paths import SYNTAX, changed, path_of, with_schema, with_value

_PER_SECOND = {
    "seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000,
}  # fmt: skip
_SCHEMAS: dict[str, Schema] = {
    "string": STRING,
    "unix": INT64,
    "Date": DATE_SCHEMA,
    "Time": TIME_SCHEMA,
    "Timestamp": TIMESTAMP_SCHEMA,
}


class TimestampConverter(PartTransform):
    on_columns = True
    definition = Definition(
        [
            key("field", ConfigType.STRING, "",
                "Field to convert; the whole key or value if empty."),
            key("target.type", ConfigType.STRING, None, "Type to convert to.",
                OneOf(tuple(_SCHEMAS))),
            key("format", ConfigType.STRING, "",
                "Format of strings, as a pattern of Java's SimpleDateFormat."),
            key("unix.precision", ConfigType.STRING, "milliseconds", "Unit of numbers.",
                OneOf(tuple(_PER_SECOND))),
            NULL_DEFAULT,
            SYNTAX,
        ],
        required=["target.type"],
    )  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        text = settings["format"]
        if settings["target.type"] == "string" and not text.strip():
            raise ValueError("target.type=string requires format")
        self._pattern = JavaDatePattern(text) if text.strip() else None
        self._per_second = _PER_SECOND[settings["unix.precision"]]
        self._path = path_of(settings["field"], settings) if settings["field"] else ()

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.get(record)
        if value is None:
            return record
        new = self.made_of.get(schema) if schema is not None else None
        if not self._path:
            return self.put(record, new, changed(value, self._convert))
        struct = self.struct(schema, value)
        return self.put(record, new, with_value(struct, self._path, self._convert))

    def new_schema(self, schema: Schema) -> Schema:
        target = _SCHEMAS[self.settings["target.type"]]
        if not self._path:
            return _like(schema, target)
        return with_schema(schema, self._path, lambda inner: _like(inner, target))

    def _convert(self, value: Any) -> Any:
        if value is None:
            return None
        time = self._time(value)
        target = self.settings["target.type"]
        if target == "string":
            assert self._pattern is not None
            return self._pattern.format(time)
        if target == "unix":
            return to_ms(time) * self._per_second // 1000
        if target == "Date":
            return time.date()
        return time.time() if target == "Time" else time

    def _time(self, value: Any) -> datetime.datetime:
        if isinstance(value, datetime.datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        if isinstance(value, datetime.date):
            return datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
        if isinstance(value, datetime.time):
            return datetime.datetime.combine(EPOCH.date(), value, tzinfo=datetime.UTC)
        if isinstance(value, int) and not isinstance(value, bool):
            return from_ms(value * 1000 // self._per_second)
        if isinstance(value, str):
            if self._pattern is None:
                raise DataError("TimestampConverter requires format to parse strings")
            return self._pattern.parse(value)
        raise DataError(f"TimestampConverter cannot convert a {type(value).__name__}")


def _like(old: Schema, new: Schema) -> Schema:
    return new.as_optional() if old.optional else new

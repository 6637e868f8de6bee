"""Directory layout of a data lake: Hive-style partitions by field or by time.

    PATH/TOPIC/                                     DefaultPartitioner
    PATH/TOPIC/country=CZ/city=Brno/                FieldPartitioner, partition.field.name=…
    PATH/TOPIC/year=2024/month=02/day=03/hour=12/   TimeBasedPartitioner, path.format=…
    PATH/TOPIC/year=2024/month=02/day=03/           DailyPartitioner; with hour= HourlyPartitioner

The names are Confluent's; Java's class names are accepted as well. Fields in the directory name are
not stored in the files, as is usual in Hive and Spark. Null is __HIVE_DEFAULT_PARTITION__. The
functions do no I/O.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import AtLeast, OneOf
from ottla.connect.columns import Column, Columns, NotInColumns
from ottla.connect.converters import as_text
from ottla.connect.data import ConnectRecord, DataError, from_ms
from ottla.connect.definition import Settings, key
from ottla.connect.java_dates import JavaDatePattern

NULL = "__HIVE_DEFAULT_PARTITION__"
_JAVA = "io.confluent.connect.storage.partitioner."
FIELD, TIME = "FieldPartitioner", "TimeBasedPartitioner"
PARTITIONERS = ("DefaultPartitioner", FIELD, TIME, "DailyPartitioner", "HourlyPartitioner")
_FORMATS = {
    "DailyPartitioner": "'year'=yyyy/'month'=MM/'day'=dd",
    "HourlyPartitioner": "'year'=yyyy/'month'=MM/'day'=dd/'hour'=HH",
}
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_STRING = ConfigType.STRING

LAYOUT_KEYS = [
    key("partitioner.class", _STRING, "DefaultPartitioner",
        "Partitioner: how records are divided among directories.",
        OneOf((*PARTITIONERS, *(_JAVA + each for each in PARTITIONERS)))),
    key("partition.field.name", ConfigType.LIST, [],
        "Fields that name the directories, with FieldPartitioner."),
    key("path.format", _STRING, _FORMATS["HourlyPartitioner"],
        "Pattern of the directories in the format of Java's DateTimeFormatter, with "
        "TimeBasedPartitioner."),
    key("partition.duration.ms", ConfigType.LONG, -1,
        "Length of time that a directory covers, in milliseconds; -1 to use the smallest unit in "
        "path.format.", AtLeast(-1)),
    key("timestamp.extractor", _STRING, "Record",
        "Time that selects the directory: Record, RecordField or Wallclock.",
        OneOf(("Record", "RecordField", "Wallclock"))),
    key("timestamp.field", _STRING, "timestamp", "Field that contains the time, with RecordField."),
    key("timezone", _STRING, "UTC", "Time zone of the directories."),
]  # fmt: skip


class Layout:
    """Layout of a lake.

    Raises:
        ValueError: The settings are invalid.
    """

    def __init__(self, settings: Settings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        kind = settings["partitioner.class"].removeprefix(_JAVA)
        self._topics: dict[str, str] = {}
        """Directories by topic."""
        self._is_plain = kind == "DefaultPartitioner"
        self.fields: tuple[str, ...] = ()
        """Fields that are part of directory names instead of the files."""
        self._pattern: JavaDatePattern | None = None
        if kind == FIELD:
            self.fields = tuple(settings["partition.field.name"])
            if not self.fields:
                raise ValueError("FieldPartitioner requires partition.field.name")
        elif kind != "DefaultPartitioner":
            data = _FORMATS.get(kind) or str(settings["path.format"])
            self._pattern = JavaDatePattern(_joda(data))
        try:
            self._zone = zoneinfo.ZoneInfo(settings["timezone"])
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"unknown timezone {settings['timezone']}") from None

    def folders(self, columns: Columns) -> list[str]:
        """Return the directory of each record of a batch, or a single one if all are the same.

        Raises:
            DataError: A record lacks the field or time that names its directory.
            NotInColumns: The batch must be processed record by record.
        """
        whole = columns.record
        needed = {name: self._column(whole, name) for name in self._named()}
        times: Any = whole.timestamp_ms
        if self._pattern is not None and self._settings["timestamp.extractor"] == "Record":
            needed[""] = times.values() if isinstance(times, Column) else [times] * columns.rows
        if not needed:
            return [self.folder(whole, {})]
        rows = list(zip(*needed.values(), strict=True))
        found: dict[tuple[Any, ...], str] = {}
        for row in dict.fromkeys(rows):
            value = dict(zip(needed, row, strict=True))
            record = ConnectRecord(
                whole.topic, value, whole.value_schema, timestamp_ms=value.get("")
            )
            found[row] = self.folder(record, value)
        return [found[row] for row in rows]

    def _named(self) -> list[str]:
        """Return the fields that determine the directory."""
        if self._pattern is not None and self._settings["timestamp.extractor"] == "RecordField":
            return [self._settings["timestamp.field"]]
        return list(self.fields)

    def _column(self, whole: ConnectRecord, name: str) -> list[Any]:
        found = whole.value.get(name) if isinstance(whole.value, Mapping) else None
        if not isinstance(found, Column) or (whole.value_schema is None and found.has_nulls()):
            raise NotInColumns(f"a value may have no field {name}")
        return found.values()

    def folder(self, record: ConnectRecord, value: Mapping[str, Any]) -> str:
        """Return the directory of a record, relative to the lake's path.

        Raises:
            DataError: The record lacks the field or time that names its directory.
        """
        topic = self._topics.get(record.topic)
        if topic is None:
            topic = self._topics[record.topic] = escaped(record.topic)
        if self._is_plain:
            return topic
        parts = [topic]
        for name in self.fields:
            if name not in value:
                raise DataError(f"a value has no field {name}, which names its directory")
            schema = record.value_schema
            known = schema.field(name) if schema is not None else None
            text = ""
            if value[name] is not None:
                text = escaped(as_text(known.schema if known is not None else None, value[name]))
            parts.append(f"{escaped(name)}={text or NULL}")
        if self._pattern is not None:
            parts.append(self._pattern.format(self._time(record, value)))
        return "/".join(parts)

    def _time(self, record: ConnectRecord, value: Mapping[str, Any]) -> datetime.datetime:
        duration_ms = self._settings["partition.duration.ms"]
        ms = self._ms(record, value)
        if duration_ms > 0:
            ms -= ms % duration_ms
        return from_ms(ms).astimezone(self._zone)

    def _ms(self, record: ConnectRecord, value: Mapping[str, Any]) -> int:
        extractor = self._settings["timestamp.extractor"]
        if extractor == "Wallclock":
            return self._now_ms()
        if extractor == "Record":
            if record.timestamp_ms is None:
                raise DataError("a record has no timestamp, which names its directory")
            return record.timestamp_ms
        name = self._settings["timestamp.field"]
        found = value.get(name)
        if isinstance(found, str):
            try:
                found = datetime.datetime.fromisoformat(found)
            except ValueError:
                raise DataError(f"field {name} is not a time: {found!r}") from None
        if isinstance(found, datetime.datetime):
            if found.tzinfo is None:
                found = found.replace(tzinfo=datetime.UTC)
            return int(found.timestamp() * 1000)
        if isinstance(found, datetime.date):
            midnight = datetime.datetime.combine(found, datetime.time(), tzinfo=datetime.UTC)
            return int(midnight.timestamp() * 1000)
        if isinstance(found, bool) or not isinstance(found, int):
            raise DataError(f"field {name}, which names the directory, is not a time")
        return found


def escaped(text: str) -> str:
    """Escape characters that are invalid in directory names, as Hive and Spark do."""
    made = _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)
    return f"%2E{made[1:]}" if made in (".", "..") else made


def _joda(pattern: str) -> str:
    """Convert Confluent's Joda pattern to Java's: YYYY is the year, not the week-based year."""
    parts = pattern.split("'")
    parts[::2] = [each.replace("Y", "y") for each in parts[::2]]
    return "'".join(parts)

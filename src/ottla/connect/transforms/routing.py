"""Transforms that route or drop records: RegexRouter, TimestampRouter, Filter."""

from __future__ import annotations

import re

from ottla.base.config.definition import ConfigType
from ottla.connect.data import ConnectRecord, DataError, from_ms
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.java_dates import JavaDatePattern
from ottla.connect.transforms.contract import Transform

_JAVA_GROUP = re.compile(r"\\(.)|\$(?:(\d)|\{(\w+)\})")


class RegexRouter(Transform):
    """Transform that renames topics whose whole name matches a pattern.

    In the replacement, $1 is the first group.
    """

    on_columns = True
    definition = Definition(
        [
            key(
                "regex",
                ConfigType.STRING,
                None,
                "Regular expression that the whole name of the topic must match.",
            ),
            key(
                "replacement",
                ConfigType.STRING,
                None,
                "New name of the topic; $1 is the first group of regex.",
            ),
        ],
        required=["regex", "replacement"],
    )

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        try:
            self._regex = re.compile(_java_groups(settings["regex"]))
            self._replacement = _python_replacement(settings["replacement"])
            template_groups = re.findall(r"\\g<(\w+)>", self._replacement)
        except re.error as error:
            raise ValueError(f"regex is not a valid regular expression: {error}") from None
        for each in template_groups:
            if each.isdecimal() and int(each) > self._regex.groups:
                raise ValueError(f"replacement refers to group {each}, which regex does not have")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        match = self._regex.fullmatch(record.topic)
        return record if match is None else record.with_(topic=match.expand(self._replacement))


def _java_groups(regex: str) -> str:
    return re.sub(r"\(\?<(?![=!])", "(?P<", regex)


def _python_replacement(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1].replace("\\", "\\\\")
        return f"\\g<{match[2] or match[3]}>"

    return _JAVA_GROUP.sub(one, text)


class TimestampRouter(Transform):
    """Transform that inserts the record's timestamp into the name of its topic."""

    definition = Definition([
        key("topic.format", ConfigType.STRING, "${topic}-${timestamp}",
            "New name of the topic, with ${topic} and ${timestamp}."),
        key("timestamp.format", ConfigType.STRING, "yyyyMMdd",
            "Format of the timestamp, as a pattern of Java's SimpleDateFormat."),
    ])  # fmt: skip

    def __init__(self, settings: Settings, part: str = "value") -> None:
        super().__init__(settings, part)
        self._pattern = JavaDatePattern(settings["timestamp.format"])

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if record.timestamp_ms is None:
            raise DataError(
                f"TimestampRouter requires a timestamp, but a record of topic {record.topic} has "
                "none"
            )
        time = self._pattern.format(from_ms(record.timestamp_ms))
        name = str(self.settings["topic.format"])
        return record.with_(
            topic=name.replace("${topic}", record.topic).replace("${timestamp}", time)
        )


class Filter(Transform):
    """Transform that drops the records that its predicate selects."""

    on_columns = True

    def apply(self, record: ConnectRecord) -> None:
        return None

"""Predicates, which select the records that a transform applies to."""

from __future__ import annotations

import re

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import NonEmpty
from ottla.connect.data import ConnectRecord
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.transforms.contract import Predicate


class TopicNameMatches(Predicate):
    on_columns = True
    definition = Definition(
        [
            key(
                "pattern",
                ConfigType.STRING,
                None,
                "Regular expression that the whole name of the topic must match.",
            )
        ],
        required=["pattern"],
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        try:
            self._pattern = re.compile(settings["pattern"])
        except re.error as error:
            raise ValueError(f"pattern is not a valid regular expression: {error}") from None

    def test(self, record: ConnectRecord) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    on_columns = True
    definition = Definition(
        [key("name", ConfigType.STRING, None, "Name of the header.", NonEmpty())], required=["name"]
    )

    def test(self, record: ConnectRecord) -> bool:
        return any(each.key == self.settings["name"] for each in record.headers)


class RecordIsTombstone(Predicate):
    on_columns = True

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None

"""Tests that generated records are the same each time they are generated."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.connect import data
from ottla.connect.connectors import datagen
from ottla.testing.connectors import SourceKit, check_source

FAST = {"topic": "t", "max.interval": "0"}
ALL_KINDS = (
    "n:sequence(5),i:int(-3..3),d:double(0..0.5),b:boolean,u:uuid,s:string(4),c:choice(x|y),at:time"
)


def kit(offsets: Any = None, **given: str) -> SourceKit:
    properties = FAST | {name.replace("_", "."): value for name, value in given.items()}
    return SourceKit("Datagen", properties, offsets=offsets)


@pytest.mark.parametrize("quickstart", ["users", "orders", "pageviews"])
def test_a_restart_makes_no_other_records(quickstart: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagen, "MAX_RECORDS", 100)
    whole = check_source(lambda offsets: kit(offsets, quickstart=quickstart), 500)
    for record in whole[:100]:
        data.check(record.value_schema, record.value)
        assert record.key is not None
    assert kit(quickstart=quickstart, seed="2").take(100) != whole[:100]


def test_fields_of_ones_own() -> None:
    for record in kit(fields=ALL_KINDS, key_field="n").take(200):
        data.check(record.value_schema, record.value)
        value = record.value
        assert record.key == value["n"] >= 5
        assert -3 <= value["i"] <= 3
        assert 0 <= value["d"] <= 0.5
        assert len(value["s"]) == 4
        assert value["c"] in ("x", "y")


def test_it_ends_after_so_many() -> None:
    made = kit(fields="n:sequence", iterations="7")
    assert [each.value["n"] for each in made.take(7)] == list(range(7))
    assert made.poll() == []


def test_each_task_makes_records_of_its_own() -> None:
    made = SourceKit("Datagen", FAST | {"fields": "u:uuid", "iterations": "5"}, max_tasks=3)
    assert len({each.value["u"] for each in made.take(15)}) == 15
    assert len(made.offsets) == 3


def test_so_many_a_second() -> None:
    made = SourceKit("Datagen", {"topic": "t", "fields": "n:sequence", "rate": "200"})
    assert len(made.take(60)) == 60


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "set exactly one of quickstart and fields"),
        ({"fields": "a"}, "must look like name:kind, not 'a'"),
        ({"fields": "a:colour"}, "unknown kind of field 'colour'"),
        ({"fields": "a:int(9..1)"}, "ends before it begins"),
        ({"fields": "a:int(x)"}, "must have a range"),
        ({"fields": "a:string(x)"}, "must be a number"),
        ({"fields": "a:boolean,a:uuid"}, "the same name"),
        ({"fields": "a:boolean", "key_field": "b"}, "key.field must be one of a"),
        ({"fields": "a:boolean", "topic": ""}, "set topic"),
    ],
)
def test_wrong_settings_are_reported(given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        kit(**given)

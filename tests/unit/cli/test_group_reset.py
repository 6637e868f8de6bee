"""Tests of the dates, durations and plans of `kafka-consumer-groups --reset-offsets`."""

from __future__ import annotations

import pytest

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.cli.group_reset import (
    export,
    parse_datetime_ms,
    parse_duration_ms,
    parse_plans,
    parse_topic,
)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T00:00:01.250", 1_250),
        ("1970-01-01T00:00:01.250Z", 1_250),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
    ],
)
def test_a_date_is_utc_unless_it_has_a_zone(text: str, milliseconds: int) -> None:
    assert parse_datetime_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P1D", 86_400_000),
        ("PT15M", 900_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("-PT1H", -3_600_000),
        ("PT-1H", -3_600_000),
        ("pt1s", 1_000),
    ],
)
def test_durations_are_those_of_iso_8601(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1H", "PT1", "P1Y"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a valid duration"):
        parse_duration_ms(text)


def test_what_is_no_date_is_refused() -> None:
    with pytest.raises(UserError, match="is not a valid date and time"):
        parse_datetime_ms("yesterday")


def test_plans_are_written_and_read() -> None:
    plans = {"g": {TopicPartition("a,b", 0): 5, TopicPartition("c", 1): 0}}
    lines = export(plans, with_group=False)
    assert lines == ['"a,b",0,5', "c,1,0"]
    assert parse_plans("\n".join(lines), ["g"], "plan.csv") == plans
    many = plans | {"h": {TopicPartition("c", 0): 1}}
    lines = export(many, with_group=True)
    assert parse_plans("\n".join(lines) + "\n\n", ["g", "h"], "plan.csv") == many


@pytest.mark.parametrize("line", ["a,0", "a,x,1", "a,0,y", "a,b,c,d,e", "a,0,1"])
def test_a_line_that_is_no_plan_is_named(line: str) -> None:
    with pytest.raises(UserError, match=r"Line 2 of plan\.csv"):
        parse_plans(f"g,t,0,1\n{line}\n", ["g", "h"], "plan.csv")


def test_topics_may_name_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:0,2") == ("orders", [0, 2])
    with pytest.raises(UserError, match="must look like"):
        parse_topic("orders:all")

"""Tests of parsing PostgreSQL's text values, and of table and column filters."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.connectors.jdbc.values import civil
from ottla.connect.connectors.postgres import times
from ottla.connect.connectors.postgres.arrays import parse_array
from ottla.connect.connectors.postgres.catalog import ReplicationSlot
from ottla.connect.connectors.postgres.slot import LagPolicy, Verdict, loss_reason
from ottla.connect.connectors.postgres.tables import KeyColumns, Patterns, Selection
from ottla.connect.connectors.postgres.types import TypeInfo, TypeModes, column_type
from ottla.connect.data import DataError, Type, check

CATALOG = {
    90001: TypeInfo("mood", "e", labels=("sad", "happy")),
    90002: TypeInfo("money_amount", "d", 1700, (10 << 16 | 2) + 4),
    90003: TypeInfo("_mood", element_oid=90001),
    90004: TypeInfo("ltree"),
}


def value_of(oid: int, text: str, modifier: int = -1, **modes: str) -> Any:
    kind = column_type(oid, modifier, TypeModes(**modes), CATALOG)
    made = kind.decode(text.encode())
    check(kind.schema, made)
    return made


@pytest.mark.parametrize(
    ("oid", "modifier", "text", "value"),
    [
        (16, -1, "t", True),
        (21, -1, "-5", -5),
        (20, -1, "9223372036854775807", 2**63 - 1),
        (701, -1, "NaN", pytest.approx(float("nan"), nan_ok=True)),
        (701, -1, "-Infinity", float("-inf")),
        (1700, (10 << 16 | 2) + 4, "-12.50", decimal.Decimal("-12.50")),
        (1700, -1, "1234.5", {"scale": 1, "value": b"\x30\x39"}),
        (17, -1, "\\x00ff", b"\0\xff"),
        (1082, -1, "1970-01-02", 1),
        (1082, -1, "0044-03-15 BC", -735160),
        (1082, -1, "infinity", 2**31 - 1),
        (1083, -1, "24:00:00", 86_400_000_000),
        (1114, -1, "1970-01-01 00:00:01.5", 1_500_000),
        (1114, 3, "1970-01-01 00:00:01.5", 1_500),
        (1114, -1, "10000-01-01 00:00:00", 253_402_300_800_000_000),
        (1114, -1, "-infinity", -(2**63)),
        (1184, -1, "2024-01-02 03:04:05.6+00", "2024-01-02T03:04:05.6Z"),
        (1266, -1, "03:04:05+02", "03:04:05+02:00"),
        (3802, -1, '{"a": 1}', '{"a": 1}'),
        (1007, -1, "{1,NULL,3}", [1, None, 3]),
        (1009, -1, '{"a,b","c\\"d",NULL,"NULL",""}', ["a,b", 'c"d', None, "NULL", ""]),
        (90001, -1, "happy", "happy"),
        (90002, -1, "1.25", decimal.Decimal("1.25")),
        (90003, -1, "{sad,happy}", ["sad", "happy"]),
        (90004, -1, "a.b", "a.b"),
        (99999, -1, "whatever", "whatever"),
    ],
)
def test_values_are_kept(oid: int, modifier: int, text: str, value: Any) -> None:
    assert value_of(oid, text, modifier) == value


def test_modes_choose_how_values_are_reported() -> None:
    assert value_of(1700, "1.5", decimals="double") == 1.5
    assert value_of(1700, "NaN", decimals="string") == "NaN"
    assert value_of(1114, "1970-01-01 00:00:01.123456", times="connect") == datetime.datetime(
        1970, 1, 1, 0, 0, 1, 123000, tzinfo=datetime.UTC
    )
    assert value_of(1186, "P1Y2M3DT4H5M6.5S") == "P1Y2M3DT4H5M6.5S"
    assert value_of(1186, "P1DT-1H", intervals="numeric") == 23 * 3_600_000_000
    assert value_of(1007, "{{1},{2}}", arrays="string") == "{{1},{2}}"


def test_what_fits_into_no_schema_is_reported_with_the_way_out() -> None:
    with pytest.raises(DataError, match=r"decimal.handling.mode=string"):
        value_of(1700, "NaN")
    with pytest.raises(DataError, match=r"array.handling.mode=string"):
        value_of(1007, "{{1},{2}}")


@given(st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8")))))
def test_arrays_of_any_texts_are_read(items: list[str | None]) -> None:
    def quoted(item: str | None) -> str:
        if item is None:
            return "NULL"
        escaped = item.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    assert parse_array("{" + ",".join(map(quoted, items)) + "}") == items


@given(st.integers(-2_400_000, 107_000_000))
def test_days_are_the_same_both_ways(days: int) -> None:
    assert times.days(civil(days)) == days


def test_enums_list_their_allowed_values() -> None:
    kind = column_type(90001, -1, TypeModes(), CATALOG)
    assert kind.schema.type is Type.STRING
    assert kind.schema.parameters == {"allowed": "sad,happy"}


def selection(**lists: list[str]) -> Selection:
    names = [f"{n}.{k}.list" for n in ("schema", "table", "column") for k in ("include", "exclude")]
    return Selection.of({name: lists.get(name.replace(".", "_"), []) for name in names})


def test_tables_are_taken_by_patterns_for_the_whole_name() -> None:
    taken = selection(table_include_list=["public\\.ord.*", "PUBLIC.items"])
    assert taken.takes_table("public", "orders")
    assert taken.takes_table("public", "items")
    assert not taken.takes_table("public", "my_orders")
    assert not selection().takes_table("pg_catalog", "pg_class")
    assert not selection(table_exclude_list=["a.b"]).takes_table("a", "b")
    assert not selection(column_exclude_list=["a.b.secret"]).takes_column("a", "b", "secret")
    with pytest.raises(ValueError, match="is not a valid regular expression"):
        Patterns(["("])
    with pytest.raises(ValueError, match=r"message.key.columns"):
        KeyColumns.of("orders")
    assert KeyColumns.of("public.o:a,b").of_table("public", "o") == ("a", "b")


def test_the_policy_acts_on_what_is_kept_back() -> None:
    assert LagPolicy(10, 100, "drop").verdict_for(5) is Verdict.FINE
    assert LagPolicy(10, 100, "drop").verdict_for(50) is Verdict.WARN
    assert LagPolicy(10, 100, "drop").verdict_for(101) is Verdict.DROP
    assert LagPolicy(10, 100, "pause").verdict_for(101) is Verdict.PAUSE
    assert LagPolicy(0, 100, "warn").verdict_for(101) is Verdict.WARN
    assert LagPolicy(0, 0, "drop").verdict_for(10**12) is Verdict.FINE


def test_a_slot_that_lost_changes_is_recognized() -> None:
    good = ReplicationSlot("pgoutput", None, 10, 20, "reserved", 0, True)
    assert loss_reason(good, 20) is None
    assert "no longer exists" in (loss_reason(None, 20) or "")
    assert "was recreated" in (loss_reason(good, 15) or "")
    lost = ReplicationSlot("pgoutput", None, None, 20, "lost", None, True)
    assert "max_slot_wal_keep_size" in (loss_reason(lost, 20) or "")

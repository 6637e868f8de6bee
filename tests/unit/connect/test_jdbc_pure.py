"""Tests of JDBC connector logic without a database: URLs, statements, rows and next steps."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from ottla.connect.connectors.jdbc.database import is_transient
from ottla.connect.connectors.jdbc.folding import fold
from ottla.connect.connectors.jdbc.modes import Mode, read_moment, write_moment
from ottla.connect.connectors.jdbc.rows import Operation, RowRules
from ottla.connect.connectors.jdbc.statements import Language
from ottla.connect.connectors.jdbc.url import parse_url
from ottla.connect.connectors.jdbc.values import bound, column_type
from ottla.connect.data import (
    INT32,
    STRING,
    ConnectRecord,
    DataError,
    Header,
    Schema,
    Type,
    decimal_schema,
    struct_schema,
)
from ottla.connect.debezium import UNCHANGED_HEADER

KEY = struct_schema(("id", INT32))
VALUE = struct_schema(("id", INT32), ("name", STRING.as_optional()), ("big", STRING.as_optional()))


def record(
    key: int, name: str | None = None, *, is_delete: bool = False, **more: Any
) -> ConnectRecord:
    value = None if is_delete else {"id": key, "name": name, "big": "b"}
    return ConnectRecord("people", value, None if is_delete else VALUE, {"id": key}, KEY, **more)


def rules(**options: Any) -> RowRules:
    return RowRules("postgresql", **{"pk_mode": "record_key", "deletes": True, **options})


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("jdbc:postgresql://db:5433/shop?user=me&sslmode=require",
         "postgresql+psycopg://me@db:5433/shop?sslmode=require"),
        ("jdbc:mariadb://db/shop", "mariadb+pymysql://db:3306/shop"),
        ("jdbc:mysql://[::1]:3307/shop", "mysql+pymysql://[::1]:3307/shop"),
        ("jdbc:sqlite:/tmp/a.db", "sqlite:////tmp/a.db"),
        ("postgresql://db/shop", "postgresql+psycopg://db/shop"),
    ],
)  # fmt: skip
def test_urls_of_java_and_of_sqlalchemy_are_understood(text: str, made: str) -> None:
    assert parse_url(text).render_as_string(hide_password=False) == made


@pytest.mark.parametrize(
    "text",
    ["", "jdbc:oracle:thin:@x", "nonsense", "jdbc:postgresql://a,b/x", "jdbc:mysql://h/x?useSSL=1",
     "jdbc:postgresql://h:port/x", "oracle://x"],
)  # fmt: skip
def test_urls_that_are_none_are_reported(text: str) -> None:
    with pytest.raises(ValueError, match=r"connection\.url"):
        parse_url(text)


def test_upserts_are_written_in_each_language() -> None:
    arguments: Any = (("people",), ("id", "name"), ("id",))
    assert Language("postgresql").upsert(*arguments) == (
        'INSERT INTO "people" ("id", "name") VALUES (%s, %s) '
        'ON CONFLICT ("id") DO UPDATE SET "name" = excluded."name"'
    )
    assert Language("mysql").upsert(*arguments) == (
        "INSERT INTO `people` (`id`, `name`) VALUES (%s, %s) "
        "ON DUPLICATE KEY UPDATE `name` = VALUES(`name`)"
    )
    assert Language("sqlite").upsert(("t",), ("id",), ("id",)).endswith("DO NOTHING")
    kept = Language("postgresql").upsert(*arguments, ("name",))
    assert kept.endswith("DO NOTHING")


def test_names_cannot_break_out_of_their_quotes() -> None:
    assert Language("postgresql").quote('a"b%') == '"a""b%%"'
    assert Language("mysql").quote("a`b") == "`a``b`"
    assert Language("sqlite").table(("a", "b")) == '"a"."b"'


@pytest.mark.parametrize(
    ("schema", "postgres", "mysql", "sqlite"),
    [
        (Schema(Type.INT64), "BIGINT", "BIGINT", "INTEGER"),
        (STRING, "TEXT", "LONGTEXT", "TEXT"),
        (decimal_schema(2), "NUMERIC", "DECIMAL(65,2)", "NUMERIC"),
        (Schema(Type.STRING, name="io.debezium.data.Json"), "JSONB", "JSON", "TEXT"),
        (Schema(Type.STRING, name="io.debezium.data.Uuid"), "UUID", "CHAR(36)", "TEXT"),
        (Schema(Type.INT64, name="io.debezium.time.MicroTimestamp"), "TIMESTAMP", "DATETIME(6)",
         "DATETIME"),
        (Schema(Type.ARRAY, value_schema=INT32), "INTEGER[]", "JSON", "TEXT"),
        (Schema(Type.STRING, parameters={"__debezium.source.column.type": "INET"}), "INET",
         "LONGTEXT", "TEXT"),
        (Schema(Type.STRING, parameters={"__debezium.source.column.type": "X); DROP"}), "TEXT",
         "LONGTEXT", "TEXT"),
    ],
)  # fmt: skip
def test_tables_are_made_with_the_types_of_each_database(
    schema: Schema, postgres: str, mysql: str, sqlite: str
) -> None:
    kinds = [column_type(schema, each) for each in ("postgresql", "mysql", "sqlite")]
    assert kinds == [postgres, mysql, sqlite]


def test_values_are_handed_over_without_loss() -> None:
    micro = Schema(Type.INT64, name="io.debezium.time.MicroTimestamp")
    zoned = Schema(Type.STRING, name="io.debezium.time.ZonedTimestamp")
    variable = Schema(Type.STRUCT, name="io.debezium.data.VariableScaleDecimal")
    strings = Schema(Type.ARRAY, value_schema=STRING)
    assert bound(micro, 1_500_001, "mysql") == "1970-01-01 00:00:01.500001"
    assert bound(micro, 2**63 - 1, "postgresql") == "infinity"
    assert bound(zoned, "2024-01-02T03:04:05.6Z", "postgresql") == "2024-01-02 03:04:05.6+00"
    assert bound(zoned, "2024-01-02T03:04:05+02:00", "mysql") == "2024-01-02 01:04:05"
    assert bound(zoned, "-0043-03-15T00:00:00Z", "postgresql") == "0044-03-15 00:00:00+00 BC"
    number = {"scale": 1, "value": b"\x30\x39"}
    assert bound(variable, number, "postgresql") == decimal.Decimal("1234.5")
    assert bound(strings, ['a"b', None, "c\\"], "postgresql") == '{"a\\"b",NULL,"c\\\\"}'
    assert bound(strings, ["a"], "mysql") == '["a"]'
    assert bound(None, True, "sqlite") == 1


def test_keys_come_from_the_source_that_pk_mode_names() -> None:
    plain = record(1, "a").with_(key=7, key_schema=INT32, origin=None)
    kafka = rules(pk_mode="kafka", deletes=False).action(record(1, "a", partition=2, offset=3))
    assert kafka is not None
    assert kafka.identity == ("people", 2, 3)
    named = rules(pk_fields=("number",)).action(plain)
    assert named is not None
    assert named.key == ("number",)
    of_value = rules(pk_mode="record_value", pk_fields=("name",), deletes=False)
    found = of_value.action(plain)
    assert found is not None
    assert found.identity == ("a",)
    with pytest.raises(DataError, match=r"no field nothing, which pk\.fields names"):
        rules(pk_fields=("nothing",)).action(record(1))
    with pytest.raises(DataError, match="no key"):
        rules().action(record(1).with_(key=None, key_schema=None))


def test_fields_are_chosen_and_renamed() -> None:
    made = rules(fields=frozenset({"name"}), names={"name": "full_name", "id": "number"})
    action = made.action(record(1, "a"))
    assert action is not None
    assert action.values == {"number": 1, "full_name": "a"}
    assert action.key == ("number",)


def test_tables_are_named_after_topics() -> None:
    assert rules().table_of("people") == ("people",)
    assert rules().table_of("public.people") == ("public", "people")
    assert rules().table_of("shop.public.people") == ("shop_public_people",)
    assert rules(table_format="copy.${table}_x").table_of("a.b.people") == ("copy", "people_x")


def test_envelopes_have_an_operation() -> None:
    def envelope(op: str, before: Any, after: Any) -> ConnectRecord:
        value = {"before": before, "after": after, "op": op, "source": {}}
        return ConnectRecord("people", value, None, {"id": 1}, KEY)

    written = rules().action(envelope("u", None, {"id": 1, "name": "a"}))
    assert written is not None
    assert written.operation is Operation.WRITE
    deleted = rules().action(envelope("d", {"id": 1}, None))
    assert deleted is not None
    assert deleted.operation is Operation.DELETE
    emptied = rules(truncates=True).action(envelope("t", None, None))
    assert emptied is not None
    assert emptied.operation is Operation.DELETE_ALL
    assert rules().action(envelope("t", None, None)) is None
    with pytest.raises(DataError, match="operation"):
        rules().action(envelope("x", None, None))


def test_of_many_changes_of_a_row_the_last_counts() -> None:
    actions = [rules().action(each) for each in (
        record(1, "a"), record(2, "a"), record(1, "b"), record(2, is_delete=True),
        record(3, "c"), record(3, is_delete=True), record(3, "d"),
    )]  # fmt: skip
    groups = list(fold([each for each in actions if each], merges=True))
    assert [(each.operation, [a.identity for a in each.actions]) for each in groups] == [
        (Operation.DELETE, [(2,)]),
        (Operation.WRITE, [(1,), (3,)]),
    ]
    assert [each.values["name"] for each in groups[1].actions] == ["b", "d"]


def test_a_column_that_an_update_does_not_carry_is_taken_from_before() -> None:
    header = (Header(UNCHANGED_HEADER, STRING, "big"),)
    first, second = record(1, "a"), record(1, "b", headers=header)
    second = second.with_(value={"id": 1, "name": "b", "big": "???"})
    alone = rules().action(second)
    assert alone is not None
    (group,) = fold([alone], merges=True)
    assert group.kept == ("big",)
    before = rules().action(first)
    assert before is not None
    (group,) = fold([before, alone], merges=True)
    assert group.kept == ()
    assert group.actions[0].values == {"id": 1, "name": "b", "big": "b"}


def test_without_merging_everything_stays_in_its_order() -> None:
    actions = [rules().action(each) for each in (record(1, "a"), record(1, "b"))]
    (group,) = fold([each for each in actions if each], merges=False)
    assert [each.values["name"] for each in group.actions] == ["a", "b"]


def quote(name: str) -> str:
    return f"<{name}>"


def test_each_mode_asks_for_what_comes_next() -> None:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678901)
    incrementing = Mode("incrementing", "id")
    assert incrementing.query({}, None, quote).statement("*", "t", "", 10) == (
        "SELECT * FROM t ORDER BY <id> LIMIT 10"
    )
    asked = incrementing.query({"incrementing": 7}, None, quote)
    assert (asked.where, asked.parameters) == ("<id> > :last", {"last": 7})
    both = Mode("timestamp+incrementing", "id", ("at", "made"))
    asked = both.query({**write_moment(moment), "incrementing": 7}, "now", quote)
    assert asked.where == (
        "COALESCE(<at>, <made>) < :now AND (COALESCE(<at>, <made>) > :since OR "
        "(COALESCE(<at>, <made>) = :since AND <id> > :last))"
    )
    assert asked.parameters["since"] == moment
    bulk = Mode("bulk", key=("a", "b")).query({"after": [1, "x"]}, None, quote)
    assert bulk.where == "(<a> > :k0) OR (<a> = :k0 AND <b> > :k1)"


def test_moments_are_kept_to_the_microsecond() -> None:
    for zone in (None, datetime.UTC):
        moment = datetime.datetime(1969, 12, 31, 23, 59, 58, 123457, tzinfo=zone)
        assert read_moment(write_moment(moment)) == moment


def test_rows_of_one_moment_are_not_torn_apart() -> None:
    one, two = (datetime.datetime(2024, 1, day) for day in (1, 2))
    mode = Mode("timestamp", timestamps=("at",))
    rows: list[dict[str, Any]] = [{"at": one}, {"at": one}, {"at": two}, {"at": two}]
    assert mode.whole_moments(rows, 3) == rows[:2]
    assert mode.whole_moments(rows[:3], 3) == rows[:3]
    assert mode.whole_moments(rows[:2], 1) == []


class FakeError(Exception):
    def __init__(self, *arguments: Any, state: str | None = None, code: int = 0) -> None:
        super().__init__(*arguments)
        self.sqlstate = state
        self.sqlite_errorcode = code


class OperationalError(FakeError):
    pass


@pytest.mark.parametrize(
    ("dialect", "error", "passes"),
    [
        ("postgresql", FakeError("disk full", state="53100"), True),
        ("postgresql", FakeError("shutting down", state="57P01"), True),
        ("postgresql", FakeError("deadlock", state="40P01"), True),
        ("postgresql", OperationalError("connection refused"), True),
        ("postgresql", FakeError("unique", state="23505"), False),
        ("mariadb", FakeError(1114, "The table is full"), True),
        ("mariadb", FakeError(2013, "Lost connection"), True),
        ("mariadb", FakeError(1030, 'Got error 28 "No space left on device" from Aria'), True),
        ("mysql", FakeError(3, "Error writing file '/tmp/x' (Errcode: 28 - No space)"), True),
        ("mariadb", FakeError(1030, 'Got error 168 "Unknown" from storage engine'), False),
        ("mariadb", FakeError(1062, "Duplicate entry 'error 28' for key 'x'"), False),
        ("mariadb", FakeError(4025, "CONSTRAINT failed"), False),
        ("mariadb", FakeError(1062, "Duplicate entry"), False),
        ("sqlite", FakeError("database or disk is full", code=sqlite3.SQLITE_FULL), True),
        ("sqlite", FakeError("database is locked", code=sqlite3.SQLITE_BUSY_SNAPSHOT), True),
        ("sqlite", FakeError("CHECK failed: full", code=sqlite3.SQLITE_CONSTRAINT), False),
    ],
)
def test_transient_errors_are_distinguished_from_errors_of_a_row(
    dialect: str, error: FakeError, passes: bool
) -> None:
    assert is_transient(dialect, DBAPIError("statement", {}, error)) is passes

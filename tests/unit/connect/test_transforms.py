"""Tests of Kafka's single message transforms; each row is a record before and after."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from ottla.connect import data
from ottla.connect.data import ConnectRecord, DataError, Header, Schema, Type, struct_schema
from ottla.connect.java_dates import JavaDatePattern
from ottla.connect.plugins import predicate_class, transform_class

UTC = datetime.UTC
NOON = datetime.datetime(2024, 2, 3, 12, 0, 0, 5000, tzinfo=UTC)
NOON_MS = 1_706_961_600_005
INNER = struct_schema(("b", data.INT32), optional=True)
OUTER = struct_schema(("a", INNER), ("c", data.STRING), name="outer")


def transform(name: str, **given: str) -> Any:
    found, part = transform_class(name)
    texts = {key.replace("_", "."): value for key, value in given.items()}
    assert not found.definition.problems(texts)
    return found(found.definition.settings(texts), part)


def value_after(name: str, value: Any, **given: str) -> Any:
    record = ConnectRecord("t", value, partition=3, offset=9, timestamp_ms=NOON_MS)
    return transform(name, **given).apply(record).value


@pytest.mark.parametrize(
    ("name", "given", "before", "after"),
    [
        ("InsertField$Value", {"topic_field": "where"}, {"a": 1}, {"a": 1, "where": "t"}),
        ("InsertField$Value", {"partition_field": "p!"}, {}, {"p": 3}),
        ("InsertField$Value", {"offset_field": "o?"}, {}, {"o": 9}),
        ("InsertField$Value", {"timestamp_field": "ts"}, {}, {"ts": NOON_MS}),
        ("InsertField$Value", {"static_field": "s", "static_value": "x"}, {}, {"s": "x"}),
        ("InsertField$Value", {"topic_field": "where"}, None, None),
        ("ReplaceField$Value", {"exclude": "a"}, {"a": 1, "b": 2}, {"b": 2}),
        ("ReplaceField$Value", {"include": "a"}, {"a": 1, "b": 2}, {"a": 1}),
        ("ReplaceField$Value", {"renames": "a:z"}, {"a": 1, "b": 2}, {"z": 1, "b": 2}),
        ("ReplaceField$Value", {"whitelist": "b"}, {"a": 1, "b": 2}, {"b": 2}),
        ("MaskField$Value", {"fields": "a,b"}, {"a": 7, "b": "x"}, {"a": 0, "b": ""}),
        ("MaskField$Value", {"fields": "a", "replacement": "9"}, {"a": 7}, {"a": 9}),
        ("HoistField$Value", {"field": "line"}, "foo", {"line": "foo"}),
        ("ExtractField$Value", {"field": "a"}, {"a": 1}, 1),
        ("ExtractField$Value", {"field": "x"}, {"a": 1}, None),
        (
            "ExtractField$Value",
            {"field": "a.`b.c`", "field_syntax_version": "V2"},
            {"a": {"b.c": 1}},
            1,
        ),
        ("Flatten$Value", {}, {"a": {"b": 1, "c": {"d": 2}}}, {"a.b": 1, "a.c.d": 2}),
        ("Flatten$Value", {"delimiter": "_"}, {"a": {"b": 1}}, {"a_b": 1}),
        ("Cast$Value", {"spec": "a:int8,b:string"}, {"a": 300, "b": 1}, {"a": 44, "b": "1"}),
        ("Cast$Value", {"spec": "boolean"}, "true", True),
        ("Cast$Value", {"spec": "float64"}, "1.5", 1.5),
        (
            "TimestampConverter$Value",
            {"target_type": "string", "format": "yyyy-MM-dd'T'HH:mm:ss.SSSX"},
            NOON_MS,
            "2024-02-03T12:00:00.005Z",
        ),
        (
            "TimestampConverter$Value",
            {"target_type": "unix", "format": "dd.MM.yyyy", "field": "d"},
            {"d": "03.02.2024"},
            {"d": 1_706_918_400_000},
        ),
        (
            "TimestampConverter$Value",
            {"target_type": "Timestamp", "unix_precision": "seconds"},
            NOON_MS // 1000,
            NOON.replace(microsecond=0),
        ),
        ("TimestampConverter$Value", {"target_type": "Date"}, NOON, NOON.date()),
    ],
)
def test_values_without_schemas(name: str, given: Any, before: Any, after: Any) -> None:
    assert value_after(name, before, **given) == after


def names(schema: Schema | None) -> list[tuple[str, Type, bool]]:
    assert schema is not None
    return [(each.name, each.schema.type, each.schema.optional) for each in schema.fields]


@pytest.mark.parametrize(
    ("name", "given", "fields"),
    [
        ("InsertField$Value", {"topic_field": "t!"},
         [("a", Type.STRUCT, True), ("c", Type.STRING, False), ("t", Type.STRING, False)]),
        ("ReplaceField$Value", {"exclude": "a", "renames": "c:d"}, [("d", Type.STRING, False)]),
        ("Flatten$Value", {}, [("a.b", Type.INT32, True), ("c", Type.STRING, False)]),
        ("HoistField$Value", {"field": "x"}, [("x", Type.STRUCT, False)]),
        ("Cast$Value", {"spec": "c:int64"},
         [("a", Type.STRUCT, True), ("c", Type.INT64, False)]),
    ],
)  # fmt: skip
def test_schemas_follow_their_values(name: str, given: Any, fields: Any) -> None:
    after = transform(name, **given).apply(ConnectRecord("t", {"a": {"b": 1}, "c": "5"}, OUTER))
    assert names(after.value_schema) == fields
    data.check(after.value_schema, after.value)


def test_value_to_key_takes_fields_with_their_schemas() -> None:
    after = transform("ValueToKey", fields="c").apply(
        ConnectRecord("t", {"a": None, "c": "x"}, OUTER)
    )
    assert after.key == {"c": "x"}
    assert names(after.key_schema) == [("c", Type.STRING, False)]


def test_key_transforms_leave_the_value_alone() -> None:
    name = "org.apache.kafka.connect.transforms.ExtractField$Key"
    after = transform(name, field="id").apply(ConnectRecord("t", "v", key={"id": 5}))
    assert (after.key, after.value) == (5, "v")


def test_set_schema_metadata_renames_the_schema() -> None:
    made = transform("SetSchemaMetadata$Value", schema_name="n", schema_version="2")
    after = made.apply(ConnectRecord("t", {"a": None, "c": ""}, OUTER))
    assert (after.value_schema.name, after.value_schema.version) == ("n", 2)


@pytest.mark.parametrize(
    ("name", "given", "topic"),
    [
        ("RegexRouter", {"regex": "(.*)-raw", "replacement": "$1-done"}, "orders-done"),
        ("RegexRouter", {"regex": "orders", "replacement": "x"}, "orders-raw"),
        ("RegexRouter", {"regex": "(?<a>.*)-raw", "replacement": "${a}"}, "orders"),
        ("TimestampRouter", {}, "orders-raw-20240203"),
        (
            "TimestampRouter",
            {"topic_format": "${timestamp}/${topic}", "timestamp_format": "HH"},
            "12/orders-raw",
        ),
    ],
)
def test_routers_name_topics(name: str, given: Any, topic: str) -> None:
    record = ConnectRecord("orders-raw", timestamp_ms=NOON_MS)
    assert transform(name, **given).apply(record).topic == topic


def test_headers_come_from_fields_and_go() -> None:
    record = ConnectRecord("t", {"a": 1, "b": 2})
    moved = transform("HeaderFrom$Value", fields="a", headers="h", operation="move").apply(record)
    assert (moved.value, moved.headers) == ({"b": 2}, (Header("h", None, 1),))
    put = transform("InsertHeader", header="n", value_literal="7").apply(moved)
    assert [(each.key, each.value) for each in put.headers] == [("h", 1), ("n", 7)]
    assert transform("DropHeaders", headers="h,n").apply(put).headers == ()


def test_filter_drops() -> None:
    assert transform("Filter").apply(ConnectRecord("t")) is None


@pytest.mark.parametrize(
    ("name", "given", "holds"),
    [
        ("TopicNameMatches", {"pattern": "or.*"}, True),
        ("TopicNameMatches", {"pattern": "or"}, False),
        ("HasHeaderKey", {"name": "h"}, True),
        ("HasHeaderKey", {"name": "x"}, False),
        ("org.apache.kafka.connect.transforms.predicates.RecordIsTombstone", {}, True),
    ],
)
def test_predicates(name: str, given: Any, holds: bool) -> None:
    found = predicate_class(name)
    record = ConnectRecord("orders", headers=(Header("h", None, 1),))
    assert found(found.definition.settings(given)).test(record) is holds


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("InsertField$Value", {"topic_field": "t"}, "text"),
        ("Cast$Value", {"spec": "int32"}, "seven"),
        ("TimestampConverter$Value", {"target_type": "unix", "format": "yyyy"}, "next year"),
        ("MaskField$Value", {"fields": "a", "replacement": "x"}, {"a": 1}),
    ],
)
def test_what_cannot_be_is_an_error_of_its_record(name: str, given: Any, value: Any) -> None:
    with pytest.raises(DataError):
        value_after(name, value, **given)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-02-03 12:00:00"),
        ("yyyyMMdd", "20240203"),
        ("EEE, d MMM yy h a", "Sat, 3 Feb 24 12 PM"),
        ("yyyy 'o''clock' HH", "2024 o'clock 12"),
        ("DDD", "034"),
    ],
)
def test_java_date_patterns_are_written(pattern: str, text: str) -> None:
    assert JavaDatePattern(pattern).format(NOON) == text


@pytest.mark.parametrize(
    ("pattern", "text", "ms"),
    [
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-02-03T13:00:00+01:00", NOON_MS - 5),
        ("yyyyMMddHHmmssSSS", "20240203120000005", NOON_MS),
        ("d MMM yyyy K a", "3 Feb 2024 0 PM", NOON_MS - 5),
    ],
)
def test_java_date_patterns_are_read(pattern: str, text: str, ms: int) -> None:
    assert data.to_ms(JavaDatePattern(pattern).parse(text)) == ms


def test_a_letter_that_no_date_has_is_refused() -> None:
    with pytest.raises(ValueError, match="letter q"):
        JavaDatePattern("qq")


# ---------------------------------------------------------------- nested fields, nulls, functions

V2 = {"field_syntax_version": "V2"}


@pytest.mark.parametrize(
    ("name", "given", "before", "after"),
    [
        ("MaskField$Value", {"fields": "a.b"}, {"a": {"b": 7, "c": 1}}, {"a": {"b": 0, "c": 1}}),
        ("MaskField$Value", {"fields": "x.b"}, {"a": 1}, {"a": 1}),
        ("Cast$Value", {"spec": "a.b:string"}, {"a": {"b": 7}}, {"a": {"b": "7"}}),
        ("ReplaceField$Value", {"exclude": "a.b"}, {"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}),
        ("ReplaceField$Value", {"include": "a.b"}, {"a": {"b": 1, "c": 2}, "d": 3},
         {"a": {"b": 1}}),
        ("ReplaceField$Value", {"renames": "a.b:z"}, {"a": {"b": 1}}, {"a": {"z": 1}}),
        ("InsertField$Value", {"topic_field": "m.topic"}, {"a": 1}, {"a": 1, "m": {"topic": "t"}}),
        ("HoistField$Value", {"field": "z", "hoisted": "a.b"}, {"a": {"b": 1}},
         {"a": {"b": {"z": 1}}}),
        (
            "TimestampConverter$Value",
            {"target_type": "unix", "format": "dd.MM.yyyy", "field": "a.d"},
            {"a": {"d": "03.02.2024"}},
            {"a": {"d": 1_706_918_400_000}},
        ),
    ],
)  # fmt: skip
def test_a_path_leads_into_fields_of_fields(
    name: str, given: dict[str, str], before: Any, after: Any
) -> None:
    assert value_after(name, before, **given, **V2) == after


def test_dots_are_part_of_a_name_in_the_old_syntax() -> None:
    before = {"a.b": 7, "a": {"b": 7}}
    assert value_after("MaskField$Value", before, fields="a.b") == {"a.b": 0, "a": {"b": 7}}


def test_schemas_follow_what_is_done_to_fields_of_fields() -> None:
    record = ConnectRecord("t", {"a": {"b": 1}, "c": "x"}, OUTER)
    cast = transform("Cast$Value", spec="a.b:string", **V2).apply(record)
    assert cast.value_schema.field("a").schema.field("b").schema.type is Type.STRING
    data.check(cast.value_schema, cast.value)
    moved = transform("HeaderFrom$Value", fields="a.b", headers="h", operation="move", **V2).apply(
        record
    )
    assert moved.headers == (Header("h", data.INT32, 1),)
    assert moved.value == {"a": {}, "c": "x"}
    data.check(moved.value_schema, moved.value)
    keyed = transform("ValueToKey", fields="a.b,c", **V2).apply(record)
    assert keyed.key == {"b": 1, "c": "x"}
    data.check(keyed.key_schema, keyed.key)
    hoisted = transform("HoistField$Value", field="z", hoisted="a", **V2).apply(record)
    assert hoisted.value["a"] == {"z": {"b": 1}}
    data.check(hoisted.value_schema, hoisted.value)
    inserted = transform("InsertField$Value", topic_field="a.topic!", **V2).apply(record)
    assert inserted.value["a"] == {"b": 1, "topic": "t"}
    data.check(inserted.value_schema, inserted.value)


@pytest.mark.parametrize("path", ["a.`b", "a..b", ""])
def test_an_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        transform("MaskField$Value", fields=f"{path},c", **V2) if path else transform(
            "MaskField$Value", fields="a.", **V2
        )


NULLABLE = struct_schema(("n", Schema(Type.INT32, optional=True, default=5)))


@pytest.mark.parametrize(
    ("name", "given", "kept", "filled"),
    [
        ("InsertField$Value", {"topic_field": "x"}, {"n": None, "x": "t"}, {"n": 5, "x": "t"}),
        ("ReplaceField$Value", {"renames": "n:m"}, {"m": None}, {"m": 5}),
        ("MaskField$Value", {"fields": "n"}, {"n": None}, {"n": 0}),
        ("Cast$Value", {"spec": "n:string"}, {"n": None}, {"n": "5"}),
        ("ExtractField$Value", {"field": "n"}, None, 5),
        ("SetSchemaMetadata$Value", {"schema_name": "s"}, {"n": None}, {"n": 5}),
        ("TimestampConverter$Value", {"target_type": "unix", "field": "n"}, {"n": None}, {"n": 5}),
    ],
)
def test_a_default_stands_for_null_unless_it_must_not(
    name: str, given: dict[str, str], kept: Any, filled: Any
) -> None:
    record = ConnectRecord("t", {"n": None}, NULLABLE)
    assert transform(name, **given).apply(record).value == filled
    strict = transform(name, **given, replace_null_with_default="false").apply(record)
    assert strict.value == kept


def test_a_default_stands_for_null_in_keys_and_headers_too() -> None:
    record = ConnectRecord("t", {"n": None}, NULLABLE)
    assert transform("ValueToKey", fields="n").apply(record).key == {"n": 5}
    given = {"fields": "n", "headers": "h", "operation": "copy"}
    assert transform("HeaderFrom$Value", **given).apply(record).headers[0].value == 5
    given["replace_null_with_default"] = "false"
    assert transform("HeaderFrom$Value", **given).apply(record).headers[0].value is None


def loud(value: str) -> str:
    return value.upper()


def only_long(record: ConnectRecord) -> ConnectRecord | None:
    return record if len(record.value) > 2 else None


def wrong(record: ConnectRecord) -> Any:
    return "text"


def test_any_function_is_a_transform() -> None:
    here = __name__
    record = ConnectRecord("t", "abc", data.STRING)
    assert transform(f"{here}:loud$Value").apply(record) == record.with_(value="ABC")
    assert transform(f"{here}:only_long").apply(record) == record
    assert transform(f"{here}:only_long").apply(record.with_(value="ab")) is None
    measured = transform("builtins:len$Value").apply(record)
    assert (measured.value, measured.value_schema) == (3, None)
    with pytest.raises(DataError, match="wrong must return a ConnectRecord or None, not str"):
        transform(f"{here}:wrong").apply(record)

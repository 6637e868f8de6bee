"""Tests that transforms derive each schema once and that the cached schema is correct."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect import data
from ottla.connect.connectors.spark_sink import BufferingTask
from ottla.connect.data import ConnectRecord, Schema, Type, struct_schema
from ottla.connect.plugins import transform_class
from ottla.connect.transforms.contract import MAX_SCHEMAS, Transform

INNER = struct_schema(("b", data.INT32), ("s", data.OPTIONAL_STRING), optional=True)
NOON = datetime.datetime(2024, 2, 3, 12, tzinfo=datetime.UTC)
TRANSFORMS: list[tuple[str, dict[str, str]]] = [
    ("InsertField$Value", {"static.field": "by!", "static.value": "us", "topic.field": "where",
                           "timestamp.field": "at", "partition.field": "n"}),
    ("InsertField$Value", {"static.field": "a.new", "static.value": "x",
                           "field.syntax.version": "V2"}),
    ("ReplaceField$Value", {"exclude": "c", "renames": "n:m"}),
    ("ReplaceField$Value", {"include": "a.b", "field.syntax.version": "V2"}),
    ("MaskField$Value", {"fields": "n,c"}),
    ("HoistField$Value", {"field": "whole"}),
    ("HoistField$Value", {"field": "in", "hoisted": "a", "field.syntax.version": "V2"}),
    ("ExtractField$Value", {"field": "a"}),
    ("Cast$Value", {"spec": "n:int8,c:string"}),
    ("Flatten$Value", {"delimiter": "_"}),
    ("SetSchemaMetadata$Value", {"schema.name": "other", "schema.version": "4"}),
    ("TimestampConverter$Value", {"field": "t", "target.type": "unix"}),
    ("HeaderFrom$Value", {"fields": "c", "headers": "h", "operation": "move"}),
    ("ValueToKey", {"fields": "n,c"}),
]  # fmt: skip


def made(name: str, texts: dict[str, str]) -> Transform:
    found, part = transform_class(name)
    assert not found.definition.problems(texts)
    return found(found.definition.settings(texts), part)


def outer(default: int | None, *, optional: bool) -> Schema:
    number = Schema(Type.INT64, optional=optional or default is not None, default=default)
    return struct_schema(
        ("n", number), ("a", INNER), ("c", data.OPTIONAL_STRING),
        ("t", data.TIMESTAMP_SCHEMA.as_optional()), name="outer",
    )  # fmt: skip


VALUES = st.fixed_dictionaries({
    "n": st.integers(-(2**63), 2**63 - 1),
    "a": st.none() | st.fixed_dictionaries({"b": st.integers(-9, 9), "s": st.none() | st.text()}),
    "c": st.none() | st.text(max_size=5),
    "t": st.none() | st.just(NOON),
})  # fmt: skip
SCHEMAS = [outer(None, optional=False), outer(None, optional=True), outer(7, optional=True)]
RECORDS = st.lists(
    st.tuples(st.sampled_from(SCHEMAS), VALUES, st.booleans()), min_size=1, max_size=6
)


@pytest.mark.parametrize(("name", "texts"), TRANSFORMS, ids=lambda each: str(each)[:40])
@settings(max_examples=20, deadline=None)
@given(RECORDS)
def test_a_transform_that_has_seen_a_schema_does_what_a_new_one_does(
    name: str, texts: dict[str, str], records: list[tuple[Schema, dict[str, Any], bool]]
) -> None:
    old = made(name, texts)
    for schema, value, is_null in records:
        if is_null and schema.fields[0].schema.optional:
            value = {**value, "n": None}
        record = ConnectRecord("t", value, schema, partition=1, timestamp_ms=5)
        assert old.apply(record) == made(name, texts).apply(record)


@pytest.mark.parametrize(("name", "texts"), TRANSFORMS, ids=lambda each: str(each)[:40])
def test_records_of_one_schema_leave_with_one_schema(name: str, texts: dict[str, str]) -> None:
    transform, value = made(name, texts), {"n": 1, "a": {"b": 2, "s": "x"}, "c": "y", "t": NOON}
    first, second = (transform.apply(ConnectRecord("t", value, SCHEMAS[0])) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.value_schema is second.value_schema
    assert first.key_schema is second.key_schema


def test_no_more_schemas_are_remembered_than_that() -> None:
    hoist: Any = made("HoistField$Value", {"field": "f"})
    for _ in range(MAX_SCHEMAS + 50):
        hoist.apply(ConnectRecord("t", "x", Schema(Type.STRING)))
    assert len(hoist.made_of) == MAX_SCHEMAS


def test_equal_schemas_that_are_not_one_are_in_one_table() -> None:
    class Rows(BufferingTask):
        def start(self, directory: Any) -> None: ...

        def end(self) -> None: ...

    task = Rows()
    task.begin(1)
    task.put([ConnectRecord("t", {"b": n}, struct_schema(("b", data.INT32))) for n in range(3)])
    (table,) = task.tables()
    assert table.to_pydict() == {"b": [0, 1, 2]}

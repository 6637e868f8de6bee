"""Tests that a columnar batch equals its records one by one, or is not converted to columns."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.connect import data
from ottla.connect.column_pipeline import to_columns, to_table, transformed
from ottla.connect.column_tables import typed_table, untyped_table
from ottla.connect.columns import Column, Columns, NotInColumns, column_of
from ottla.connect.connectors.file_stream import FileStreamSinkTask
from ottla.connect.connectors.parquet_sink import ParquetSink
from ottla.connect.converters import ByteArrayConverter, Converter, StringConverter
from ottla.connect.data import ConnectRecord, DataError, Schema, Type, struct_schema
from ottla.connect.json_converter import JsonConverter
from ottla.connect.pipeline import Chain, Conversion, Row, TransformStep
from ottla.connect.plugins import predicate_class, transform_class
from ottla.connect.sink_batch import ColumnsPart
from ottla.connect.tables import inferred, table_of
from ottla.connect.transforms.contract import Transform

INNER = struct_schema(("b", data.INT32), ("s", data.OPTIONAL_STRING), optional=True)
NOON = datetime.datetime(2024, 2, 3, 12, tzinfo=datetime.UTC)
OUTER = struct_schema(
    ("n", data.INT64), ("a", INNER), ("c", data.OPTIONAL_STRING),
    ("t", data.TIMESTAMP_SCHEMA.as_optional()), ("f", data.FLOAT64), ("y", data.BOOLEAN),
    ("l", Schema(Type.ARRAY, value_schema=data.INT32.as_optional())), name="outer",
)  # fmt: skip
TIMES = st.datetimes(
    datetime.datetime(1960, 1, 1), datetime.datetime(2030, 1, 1), timezones=st.just(datetime.UTC)
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.fixed_dictionaries({
    "n": st.integers(-(2**63) + 1, 2**63 - 1),
    "a": st.fixed_dictionaries({"b": st.integers(-9, 9), "s": st.none() | TEXTS}),
    "c": st.none() | TEXTS,
    "t": st.none() | TIMES.map(lambda each: each.replace(microsecond=0)),
    "f": st.floats(),
    "y": st.booleans(),
    "l": st.lists(st.none() | st.integers(-9, 9), max_size=3),
})  # fmt: skip
V2 = {"field.syntax.version": "V2"}
IN_COLUMNS: list[tuple[str, dict[str, str]]] = [
    ("InsertField$Value", {"static.field": "by!", "static.value": "us", "topic.field": "where",
                           "timestamp.field": "at", "partition.field": "p", "offset.field": "o"}),
    ("InsertField$Value", {"static.field": "a.new", "static.value": "x"} | V2),
    ("ReplaceField$Value", {"exclude": "c", "renames": "n:m"}),
    ("ReplaceField$Value", {"include": "a.b,n"} | V2),
    ("ReplaceField$Value", {"exclude": "a.s"} | V2),
    ("MaskField$Value", {"fields": "n,c,t,f,y,l"}),
    ("MaskField$Value", {"fields": "a.b"} | V2),
    ("MaskField$Value", {"fields": "c", "replacement": "***"}),
    ("HoistField$Value", {"field": "whole"}),
    ("ExtractField$Value", {"field": "a"}),
    ("ExtractField$Value", {"field": "a.b"} | V2),
    ("Cast$Value", {"spec": "n:int8,y:string,t:int64"}),
    ("Flatten$Value", {"delimiter": "_"}),
    ("SetSchemaMetadata$Value", {"schema.name": "other", "schema.version": "4"}),
    ("TimestampConverter$Value", {"field": "t", "target.type": "unix"}),
    ("TimestampConverter$Value", {"field": "t", "target.type": "string", "format": "yyyy-MM-dd"}),
    ("ValueToKey", {"fields": "n,c"}),
    ("RegexRouter", {"regex": "t(.*)", "replacement": "new$1"}),
    ("DropHeaders", {"headers": "h"}),
]  # fmt: skip
ONE_BY_ONE: list[tuple[str, dict[str, str]]] = [
    ("HoistField$Value", {"field": "in", "hoisted": "a"} | V2),
    ("HeaderFrom$Value", {"fields": "c", "headers": "h", "operation": "move"}),
    ("InsertHeader", {"header": "h", "value.literal": "1"}),
    ("TimestampRouter", {}),
]  # fmt: skip


def made(name: str, texts: dict[str, str]) -> Transform:
    found, part = transform_class(name)
    assert not found.definition.problems(texts)
    return found(found.definition.settings(texts), part)


def chain_of(*steps: tuple[str, dict[str, str]]) -> Chain:
    return Chain(tuple(TransformStep(made(*each)) for each in steps))


def records_of(values: Sequence[Any], schema: Schema | None) -> list[ConnectRecord]:
    return [
        ConnectRecord(
            "topic", value, schema, partition=3, offset=number, timestamp_ms=1000 + number
        )
        for number, value in enumerate(values)
    ]


def columns_of(values: Sequence[Any], schema: Schema) -> Columns:
    array = Column(None, None, list(values)).array(schema)
    rows = len(values)
    meta: Any = (
        Column(pa.array([3] * rows, pa.int32()), None),
        Column(pa.array(range(rows), pa.int64()), None),
        Column(pa.array(range(1000, 1000 + rows), pa.int64()), None),
    )
    return Columns(
        ConnectRecord("topic", column_of(array, schema), schema, None, None, *meta), rows
    )


def assert_same(columns: Columns, records: Sequence[ConnectRecord]) -> None:
    first, whole = records[0], columns.record
    assert {each.topic for each in records} == {whole.topic}
    assert all(each.value_schema == whole.value_schema for each in records)
    assert all(each.key_schema == whole.key_schema for each in records)
    for schema, found, wanted in (
        (first.value_schema, columns.value(), [each.value for each in records]),
        (first.key_schema, columns.key(), [each.key for each in records]),
    ):
        assert repr(found.to_pylist()) == repr(
            Column(None, None, list(wanted)).array(schema).to_pylist()
        )


@pytest.mark.parametrize(("name", "texts"), IN_COLUMNS)
@settings(deadline=None, max_examples=25)
@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_a_transform_does_to_columns_what_it_does_to_each_record(
    name: str, texts: dict[str, str], values: list[dict[str, Any]]
) -> None:
    chain = chain_of((name, texts))
    records = [chain.apply(each) for each in records_of(values, OUTER)]
    done = transformed(chain, columns_of(values, OUTER))
    assert done is not None
    assert_same(done, [each for each in records if each is not None])


@settings(deadline=None, max_examples=150)
@given(
    steps=st.lists(st.sampled_from([*IN_COLUMNS, *ONE_BY_ONE]), min_size=2, max_size=4),
    values=st.lists(VALUES, min_size=1, max_size=3),
)
def test_transforms_one_after_another_do_so_too_or_go_one_by_one(
    steps: list[tuple[str, dict[str, str]]], values: list[dict[str, Any]]
) -> None:
    chain = chain_of(*steps)
    try:
        done = transformed(chain, columns_of(values, OUTER))
        assert done is not None
        done.value()
    except NotInColumns:
        return
    records = [chain.apply(each) for each in records_of(values, OUTER)]
    assert_same(done, [each for each in records if each is not None])


@pytest.mark.parametrize(("name", "texts"), ONE_BY_ONE)
def test_what_must_see_each_record_does(name: str, texts: dict[str, str]) -> None:
    value = {"n": 1, "a": {"b": 1, "s": None}, "c": "x", "t": NOON, "f": 0.5, "y": True, "l": []}
    with pytest.raises(NotInColumns):
        transformed(chain_of((name, texts)), columns_of([value], OUTER))


@pytest.mark.parametrize("negate", [False, True])
def test_predicates_hold_for_all_of_a_topic_or_none(negate: bool) -> None:
    schema = struct_schema(("a", data.INT64))
    found = predicate_class("TopicNameMatches")
    predicate = found(found.definition.settings({"pattern": "top.*"}))
    chain = Chain((TransformStep(made("Filter", {}), predicate, negate),))
    done = transformed(chain, columns_of([{"a": 1}], schema))
    assert (done is None) != negate


def test_a_null_where_some_have_a_value_goes_one_by_one() -> None:
    schema = Schema(Type.STRING, optional=True)
    chain = chain_of(("HoistField$Value", {"field": "f"}))
    with pytest.raises(NotInColumns):
        transformed(chain, columns_of(["a", None], schema))
    nested = struct_schema(("a", INNER))
    with pytest.raises(NotInColumns):
        columns_of([{"a": None}, {"a": {"b": 1, "s": ""}}], nested)


# --------------------------------------------------------------------------------------- converters


def conversion(value: Converter) -> Conversion:
    return Conversion(StringConverter({}), value, StringConverter({}))


@pytest.mark.parametrize("has_schemas", [False, True])
@settings(deadline=None, max_examples=100)
@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_json_is_written_to_the_byte_as_for_each_record(
    has_schemas: bool, values: list[dict[str, Any]]
) -> None:
    converter = JsonConverter({"schemas.enable": has_schemas})
    table = to_table(conversion(converter), without_places(columns_of(values, OUTER))).table
    wanted = [converter.from_connect("t", OUTER, value) for value in values]
    assert table.column("value").to_pylist() == wanted


def without_places(columns: Columns) -> Columns:
    return Columns(columns.record.with_(partition=None, timestamp_ms=None), columns.rows)


def rows_of(values: Sequence[bytes | None], topic: str = "t") -> Any:
    count = len(values)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.RecordBatch.from_pydict({
        "topic": pa.array([topic] * count).dictionary_encode(),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array(range(count), pa.timestamp("ms", tz="UTC")),
        "key": pa.array([None] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[]] * count, headers),
    })  # fmt: skip


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXTS
    | st.sampled_from(["2024-02-03", "2024-02-03 12:00:00", "12:00"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
OBJECTS = st.lists(
    st.dictionaries(st.sampled_from("abc"), PLAIN, max_size=3), min_size=1, max_size=4
)


@settings(deadline=None, max_examples=300)
@given(values=OBJECTS)
def test_json_without_schemas_makes_the_same_table_or_goes_one_by_one(
    values: list[dict[str, Any]],
) -> None:
    converter = JsonConverter({"schemas.enable": False})
    data_ = [json.dumps(value).encode() for value in values]
    try:
        columns = to_columns(conversion(converter), Chain(), "t", rows_of(data_))
        found = untyped_table(columns)
    except NotInColumns:
        return
    wanted = inferred([converter.to_connect("t", each)[1] for each in data_])
    assert found.schema == wanted.schema
    assert found.to_pylist() == wanted.to_pylist()


def test_json_like_most_is_read_in_columns() -> None:
    converter = JsonConverter({"schemas.enable": False})
    values = [b'{"a": 1, "d": "2024-02-03", "l": [{"x": 1.5}]}', b'{"a": 2, "l": null, "z": true}']
    columns = to_columns(conversion(converter), Chain(), "t", rows_of(values))
    assert untyped_table(columns).to_pylist() == [
        {"a": 1, "d": "2024-02-03", "l": [{"x": 1.5}], "z": None},
        {"a": 2, "d": None, "l": None, "z": True},
    ]


@pytest.mark.parametrize(
    "values",
    [[b'{"a": 1180591620717411303424}'], [b'{"a": 9007199254740993}', b'{"a": 0.5}'],
     [b'{"a": [9007199254740993, 0.5]}'], [b'{"a": {"b": -1e300}}'], [b"{}", b'{"a": 1}'],
     [b'{"a": null}'], [b"1"], [b'{"a": 1}', b'{"a": "x"}']],
)  # fmt: skip
def test_json_that_arrow_might_take_for_something_else_goes_one_by_one(values: list[bytes]) -> None:
    converter = JsonConverter({"schemas.enable": False})
    with pytest.raises(NotInColumns):
        untyped_table(to_columns(conversion(converter), Chain(), "t", rows_of(values)))


def test_integers_among_fractions_are_not_made_fractions() -> None:
    converter = JsonConverter({"schemas.enable": False})
    chain = chain_of(("Cast$Value", {"spec": "a:string"}))
    alike = to_columns(conversion(converter), chain, "t", rows_of([b'{"a": 1.5}', b'{"a": 2.5}']))
    done = transformed(chain, alike)
    assert done is not None
    assert done.fields()["a"].to_pylist() == ["1.5", "2.5"]
    mixed = to_columns(conversion(converter), chain, "t", rows_of([b'{"a": 1}', b'{"a": 2.5}']))
    with pytest.raises(NotInColumns):
        transformed(chain, mixed)


def test_times_of_a_frame_are_cut_to_milliseconds_as_in_records() -> None:
    schema = struct_schema(("t", data.TIMESTAMP_SCHEMA.as_optional()))
    times = pa.array([-1, 1, 1999, None], pa.timestamp("us", tz="UTC"))
    array = pa.StructArray.from_arrays([times], names=["t"])
    columns = Columns(ConnectRecord("t", column_of(array, schema), schema), len(times))
    converter = JsonConverter({"schemas.enable": False})
    written = to_table(conversion(converter), columns).table.column("value").to_pylist()
    assert written == [converter.from_connect("t", schema, each) for each in array.to_pylist()]
    assert written[0] == b'{"t":-1}'


@settings(deadline=None, max_examples=100)
@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_json_with_schemas_is_read_as_for_each_record(values: list[dict[str, Any]]) -> None:
    converter = JsonConverter({})
    finite = [{**value, "f": 0.25 if value["f"] - value["f"] else value["f"]} for value in values]
    data_ = [converter.from_connect("t", OUTER, value) for value in finite]
    columns = to_columns(conversion(converter), Chain(), "t", rows_of(data_))
    schema, _ = converter.to_connect("t", data_[0])
    assert columns.record.value_schema is schema
    assert schema is not None
    wanted = table_of(schema, [converter.to_connect("t", each)[1] for each in data_])
    assert typed_table(columns, schema).equals(wanted)


ENVELOPE = b'{"schema":{"type":"int32","optional":false},"payload":%s}'


@pytest.mark.parametrize(
    "values",
    [
        [ENVELOPE % b"1", b'{"schema":{"type":"int64","optional":false},"payload":1}'],
        [ENVELOPE % b"1", ENVELOPE % b"null"],
        [ENVELOPE % b"1", ENVELOPE % b"99999999999"],
        [ENVELOPE % b"1", ENVELOPE % b'1,"more":2'],
        [ENVELOPE % b"1", b"{}"],
        [ENVELOPE % b"1", None],
        [b"no envelope", ENVELOPE % b"1"],
    ],
)
def test_envelopes_that_are_not_alike_go_one_by_one(values: list[bytes | None]) -> None:
    with pytest.raises(NotInColumns):
        to_columns(conversion(JsonConverter({})), Chain(), "t", rows_of(values))


@pytest.mark.parametrize("value", [b"\xff", b'"a\xff"'])
@pytest.mark.parametrize(
    "converter", [StringConverter({}), JsonConverter({"schemas.enable": False})]
)
def test_bytes_that_are_no_text_go_one_by_one(value: bytes, converter: Converter) -> None:
    with pytest.raises(DataError):
        converter.to_connect("t", value)
    with pytest.raises(NotInColumns):
        to_columns(conversion(converter), Chain(), "t", rows_of([b"1", value]))


def test_large_records_and_headers_go_one_by_one() -> None:
    large = columns_of(["x" * 300_000], data.STRING)
    with pytest.raises(NotInColumns, match="large"):
        to_table(conversion(StringConverter({})), without_places(large))
    rows = rows_of([b"a"])
    headers = pa.array([[{"key": "h", "value": b"1"}]], rows.schema.field("headers").type)
    with pytest.raises(NotInColumns, match="headers"):
        to_columns(
            conversion(StringConverter({})), Chain(), "t",
            rows.set_column(rows.schema.get_field_index("headers"), "headers", headers),
        )  # fmt: skip


# -------------------------------------------------------------------------------------------- sinks


@pytest.mark.parametrize("converter", [StringConverter({}), ByteArrayConverter({})])
@settings(deadline=None, max_examples=50)
@given(values=st.lists(st.none() | TEXTS.map(str.encode), min_size=1, max_size=5))
def test_a_file_has_the_same_lines(
    converter: Converter, values: list[bytes | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    files = []
    for name in ("one-by-one", "columns"):
        task = FileStreamSinkTask(str(folder / name))
        task.start(folder)
        task.begin(1)
        if name == "columns":
            columns = to_columns(conversion(converter), Chain(), "t", rows_of(values))
            try:
                task.put_columns(columns)
            except NotInColumns:
                assert isinstance(converter, ByteArrayConverter)
                return
        else:
            rows = [Row("t", 0, None, value, (), 0, 0) for value in values]
            task.put([conversion(converter).to_record(row) for row in rows])
        task.end()
        task.stop()
        files.append((folder / name).read_bytes())
    assert files[0] == files[1]


LAYOUTS = [
    {},
    {"partitioner.class": "FieldPartitioner", "partition.field.name": "c,y"},
    {"partitioner.class": "DailyPartitioner"},
    {"partitioner.class": "HourlyPartitioner", "timezone": "Europe/Prague",
     "timestamp.extractor": "RecordField", "timestamp.field": "t"},
    {"partitioner.class": "TimeBasedPartitioner", "partition.duration.ms": "7",
     "path.format": "'s'=ss/'ms'=SSS"},
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("has_schemas", [True, False])
@settings(deadline=None, max_examples=30)
@given(values=st.lists(VALUES, min_size=1, max_size=5))
def test_a_lake_has_the_same_rows_in_the_same_folders(
    layout: dict[str, str], has_schemas: bool, values: list[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    converter = JsonConverter({"schemas.enable": has_schemas})
    filled = {"f": 0.5, "l": [7]}  # Arrow's reader cannot handle a list of only nulls
    whole = [{**each, **filled, "t": each["t"] or NOON, "c": each["c"] or "c"} for each in values]
    rows = rows_of([converter.from_connect("t", OUTER, value) for value in whole])
    folder = tmp_path_factory.mktemp("lake")
    collected = []
    for name in ("one-by-one", "columns"):
        texts = {"path": str(folder / name), **layout}
        checked = ParquetSink.definition.settings(texts)
        task = ParquetSink(checked).make_task(checked)
        task.start(folder)
        task.begin(1)
        if name == "columns":
            task.put_columns(to_columns(conversion(converter), Chain(), "t", rows))
        else:
            task.put(
                [conversion(converter).to_record(row) for row in ColumnsPart("t", rows).rows()]
            )
        task.end()
        task.stop()
        collected.append(sorted(in_lake(folder / name), key=repr))
    assert collected[0] == collected[1]


def in_lake(lake: Path) -> list[tuple[str, dict[str, Any]]]:
    return [
        (str(path.parent.relative_to(lake)), row)
        for path in lake.rglob("*.parquet")
        if "_ottla" not in path.parts
        for row in pq.ParquetFile(path).read().to_pylist()
    ]


@pytest.mark.parametrize("null_values", ["fail", "ignore"])
def test_a_lake_takes_tombstones_one_by_one(tmp_path: Path, null_values: str) -> None:
    texts = {"path": str(tmp_path), "behavior.on.null.values": null_values}
    definition = ParquetSink.definition
    task = ParquetSink(definition.settings(texts)).make_task(definition.settings(texts))
    task.start(tmp_path)
    task.begin(1)
    for values in ([None, b"a"], [None]):
        columns = to_columns(conversion(StringConverter({})), Chain(), "t", rows_of(values))
        with pytest.raises(NotInColumns):
            task.put_columns(columns)
    task.stop()

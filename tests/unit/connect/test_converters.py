"""Tests of converters against the bytes that Kafka's own converters write."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pytest

from ottla.connect import data
from ottla.connect.data import DataError, Schema, Type, decimal_schema, struct_schema
from ottla.connect.definition import Definition
from ottla.connect.json_converter import JsonConverter
from ottla.connect.plugins import converter_class

ORDER = struct_schema(("id", data.INT32), ("note", data.OPTIONAL_STRING), name="order")


def converter(name: str, **given: str) -> Any:
    found = converter_class(name)
    return found(found.definition.settings({k.replace("_", "."): v for k, v in given.items()}))


@pytest.mark.parametrize(
    ("name", "schema", "value", "written"),
    [
        ("StringConverter", data.STRING, "grüß", "grüß".encode()),
        ("StringConverter", None, {"a": True}, b'{"a":true}'),
        ("StringConverter", data.BOOLEAN, True, b"true"),
        ("ByteArrayConverter", data.BYTES, b"\x00\xff", b"\x00\xff"),
        ("ShortConverter", None, -2, b"\xff\xfe"),
        ("IntegerConverter", data.INT32, 1, b"\x00\x00\x00\x01"),
        ("LongConverter", data.INT64, 1, b"\x00" * 7 + b"\x01"),
        ("FloatConverter", None, 1.0, b"\x3f\x80\x00\x00"),
        ("DoubleConverter", None, 1.0, b"\x3f\xf0" + b"\x00" * 6),
        ("BooleanConverter", None, True, b"\x01"),
        ("org.apache.kafka.connect.storage.StringConverter", None, None, None),
    ],
)
def test_bytes_of_values(name: str, schema: Schema | None, value: Any, written: bytes) -> None:
    assert converter(name).from_connect("t", schema, value) == written


@pytest.mark.parametrize(
    ("name", "written"),
    [("IntegerConverter", b"abc"), ("BooleanConverter", b"\x02"), ("StringConverter", b"\xff")],
)
def test_bytes_that_are_none_are_an_error_of_their_record(name: str, written: bytes) -> None:
    with pytest.raises(DataError):
        converter(name).to_connect("t", written)


@pytest.mark.parametrize(
    ("schema", "value", "parsed_schema", "payload"),
    [
        (data.STRING, "foo", {"type": "string", "optional": False}, "foo"),
        (data.BYTES, b"\x01\x02", {"type": "bytes", "optional": False}, "AQI="),
        (
            ORDER,
            {"id": 7, "note": None},
            {
                "type": "struct",
                "fields": [
                    {"type": "int32", "optional": False, "field": "id"},
                    {"type": "string", "optional": True, "field": "note"},
                ],
                "optional": False,
                "name": "order",
            },
            {"id": 7, "note": None},
        ),
        (
            Schema(Type.MAP, key_schema=data.STRING, value_schema=data.INT32),
            {"a": 1},
            {
                "type": "map",
                "keys": {"type": "string", "optional": False},
                "values": {"type": "int32", "optional": False},
                "optional": False,
            },
            {"a": 1},
        ),
        (
            Schema(Type.MAP, key_schema=data.INT32, value_schema=data.STRING),
            {1: "a"},
            {
                "type": "map",
                "keys": {"type": "int32", "optional": False},
                "values": {"type": "string", "optional": False},
                "optional": False,
            },
            [[1, "a"]],
        ),
        (
            Schema(Type.ARRAY, value_schema=data.INT64),
            [1, 2],
            {
                "type": "array",
                "items": {"type": "int64", "optional": False},
                "optional": False,
            },
            [1, 2],
        ),
        (
            data.TIMESTAMP_SCHEMA,
            datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
            {"type": "int64", "optional": False, "name": data.TIMESTAMP, "version": 1},
            1000,
        ),
        (
            data.DATE_SCHEMA,
            datetime.date(1970, 1, 11),
            {"type": "int32", "optional": False, "name": data.DATE, "version": 1},
            10,
        ),
        (
            data.TIME_SCHEMA,
            datetime.time(0, 0, 1),
            {"type": "int32", "optional": False, "name": data.TIME, "version": 1},
            1000,
        ),
        (
            decimal_schema(2),
            decimal.Decimal("1.56"),
            {
                "type": "bytes",
                "optional": False,
                "name": data.DECIMAL,
                "version": 1,
                "parameters": {"scale": "2"},
            },
            "AJw=",
        ),
    ],
)
def test_the_json_envelope_goes_both_ways(
    schema: Schema, value: Any, parsed_schema: Any, payload: Any
) -> None:
    written = converter("JsonConverter").from_connect("t", schema, value)
    assert json.loads(written) == {"schema": parsed_schema, "payload": payload}
    assert converter("JsonConverter").to_connect("t", written) == (schema, value)


def test_without_schemas_only_the_payload_is_there() -> None:
    plain = converter("JsonConverter", schemas_enable="false")
    assert plain.from_connect("t", ORDER, {"id": 7, "note": "x"}) == b'{"id":7,"note":"x"}'
    assert plain.to_connect("t", b'{"id":7.5}') == (None, {"id": 7.5})


def test_numeric_decimals_keep_their_digits() -> None:
    numeric = converter("JsonConverter", schemas_enable="false", decimal_format="NUMERIC")
    value = decimal.Decimal("12345678901234567890.12")
    assert numeric.from_connect("t", decimal_schema(2), value) == b"12345678901234567890.12"


def test_a_default_stands_for_null() -> None:
    schema = Schema(Type.INT32, default=42)
    written = converter("JsonConverter").from_connect("t", schema, None)
    assert json.loads(written)["payload"] == 42


@pytest.mark.parametrize(
    "written",
    [
        b"{",
        b'{"a": 1}',
        b'{"schema": {"type": "what"}, "payload": 1}',
        b'{"schema": {"type": "int32"}, "payload": null}',
        b'{"schema": {"type": "int8"}, "payload": 300}',
        b'{"schema": {"type": "struct"}, "payload": {}}',
        b'{"schema": {"type": "bytes"}, "payload": "!"}',
        b'{"schema": {"type": "map", "keys": {"type": "int32"}, "values": {"type": "int32"}},'
        b' "payload": 3}',
    ],
)
def test_json_that_is_no_envelope_is_an_error_of_its_record(written: bytes) -> None:
    with pytest.raises(DataError):
        JsonConverter({}).to_connect("t", written)


def test_a_value_that_does_not_match_its_schema_is_refused() -> None:
    with pytest.raises(DataError, match=r"value\.id must be int32"):
        JsonConverter({}).from_connect("t", ORDER, {"id": "7", "note": None})


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"7", 7), (b"true", True), (b"1.5", 1.5), (b"plain words", "plain words"), (None, None)],
)
def test_headers_are_read_as_what_they_look_like(text: bytes | None, value: Any) -> None:
    assert converter("SimpleHeaderConverter").to_connect("t", text)[1] == value


def test_definitions_name_all_that_is_missing() -> None:
    made = Definition([*JsonConverter.definition], required=["schemas.enable", "decimal.format"])
    assert set(made.problems({})) == {"schemas.enable", "decimal.format"}


def test_so_many_schemas_are_remembered_as_asked_for() -> None:
    for size in (0, 2):
        made = converter("JsonConverter", schemas_cache_size=str(size))
        for index in range(5):
            schema = struct_schema((f"f{index}", data.INT32))
            written = made.from_connect("t", schema, {f"f{index}": 1})
            assert made.to_connect("t", written)[1] == {f"f{index}": 1}
        assert (len(made._schema_texts), len(made._read)) == (size, size)


def test_the_quick_way_to_json_is_the_slow_one_where_it_is_taken() -> None:
    inner = struct_schema(("n", data.INT32), ("t", data.STRING.as_optional()))
    schema = struct_schema(
        ("i", Schema(Type.INT64)), ("f", data.FLOAT64), ("b", data.BOOLEAN),
        ("x", data.BYTES.as_optional()), ("d", decimal_schema(2, optional=True)),
        ("at", data.TIMESTAMP_SCHEMA.as_optional()),
        ("list", Schema(Type.ARRAY, True, value_schema=data.STRING.as_optional())), ("in", inner),
        ("default", Schema(Type.STRING, True, default="unless said")),
    )  # fmt: skip
    value = {
        "i": 2**63 - 1, "f": 1.5, "b": True, "x": b"\0", "d": decimal.Decimal("1.50"),
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "list": ["a", None],
        "in": {"n": 1, "t": None}, "default": None,
    }  # fmt: skip
    odd = [
        {**value, "f": 1},
        {**value, "list": ("a",)},
        {name: each for name, each in value.items() if name != "default"},
    ]
    cases: list[dict[str, Any]] = [{}, {"schemas.enable": False}, {"decimal.format": "NUMERIC"}]
    for settings in cases:
        converter = JsonConverter(settings)
        for each in (value, *odd):
            quick = converter.from_connect("t", schema, each)
            slow = converter._slowly(schema, each)
            assert quick is not None
            reported = json.loads(quick)
            found = (
                reported if settings.get("schemas.enable", True) is False else reported["payload"]
            )
            if "decimal.format" not in settings:
                assert found == json.loads(json.dumps(slow))
            assert list(found) == list(slow)
            assert found["default"] == "unless said"
    for wrong in ({**value, "i": 2**63}, {**value, "in": None}, {**value, "more": 1}):
        with pytest.raises(DataError, match="the value"):
            JsonConverter({}).from_connect("t", schema, wrong)

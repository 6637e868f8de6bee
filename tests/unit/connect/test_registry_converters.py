"""Tests of Avro and JSON Schema converters with a schema registry, over real HTTP."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.connect.registry import FakeRegistry

from ottla.connect import data
from ottla.connect.api import RetriableError
from ottla.connect.data import DataError, Schema, Type, decimal_schema, struct_schema
from ottla.connect.json_schemas import from_json_schema
from ottla.connect.plugins import converter_class

BOTH = ("AvroConverter", "JsonSchemaConverter")
INNER = struct_schema(("b", Schema(Type.INT8)), name="org.example.Inner", optional=True)
EVERYTHING = struct_schema(
    ("id", data.INT32),
    ("note", data.OPTIONAL_STRING),
    ("small", Schema(Type.INT16)),
    ("long", data.INT64),
    ("half", Schema(Type.FLOAT32)),
    ("double", data.FLOAT64),
    ("flag", data.BOOLEAN),
    ("raw", data.BYTES),
    ("price", decimal_schema(2)),
    ("day", data.DATE_SCHEMA),
    ("clock", data.TIME_SCHEMA),
    ("at", data.TIMESTAMP_SCHEMA),
    ("tags", Schema(Type.ARRAY, value_schema=data.OPTIONAL_STRING)),
    ("named", Schema(Type.MAP, key_schema=data.STRING, value_schema=data.INT64)),
    ("numbered", Schema(Type.MAP, key_schema=data.INT32, value_schema=data.STRING)),
    ("inner", INNER),
    ("unnamed", struct_schema(("x", data.INT32))),
    ("other", struct_schema(("y", Schema(Type.INT32, optional=True, default=5)))),
    name="org.example.Everything",
)
VALUE = {
    "id": 1, "note": None, "small": -2, "long": 1 << 40, "half": 0.5, "double": 0.1, "flag": True,
    "raw": b"\x00\xff", "price": decimal.Decimal("12.34"), "day": datetime.date(2024, 2, 3),
    "clock": datetime.time(1, 2, 3, 4000),
    "at": datetime.datetime(2024, 2, 3, 4, 5, 6, 7000, tzinfo=datetime.UTC),
    "tags": ["a", None], "named": {"k": 7}, "numbered": {1: "one"}, "inner": {"b": 3},
    "unnamed": {"x": 1}, "other": {"y": 6},
}  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.close()


@pytest.fixture
def registry(shared: FakeRegistry) -> FakeRegistry:
    shared.schemas.clear()
    shared.subjects.clear()
    shared.requests.clear()
    shared.authorizations.clear()
    shared.failures = 0
    return shared


def converter(name: str, registry: FakeRegistry, *, is_key: bool = False, **given: str) -> Any:
    if "Avro" in name:
        pytest.importorskip("fastavro")
    found = converter_class(name)
    texts = {"schema.registry.url": registry.url, "retries.wait.ms": "1"}
    texts |= {key.replace("_", "."): value for key, value in given.items()}
    assert not found.definition.problems(texts)
    return found(found.definition.settings(texts), is_key=is_key)


@pytest.mark.parametrize("name", BOTH)
def test_values_come_back_with_their_schemas(name: str, registry: FakeRegistry) -> None:
    written = converter(name, registry).from_connect("t", EVERYTHING, VALUE)
    assert written[:5] == b"\x00\x00\x00\x00\x01"
    assert registry.subjects == {"t-value": [1]}
    schema, value = converter(name, registry).to_connect("t", written)
    assert value == VALUE
    assert schema == EVERYTHING


@pytest.mark.parametrize("name", BOTH)
def test_a_schema_is_registered_once(name: str, registry: FakeRegistry) -> None:
    made = converter(name, registry, is_key=True)
    for index in range(3):
        made.to_connect("t", made.from_connect("t", data.STRING, str(index)))
    assert registry.subjects == {"t-key": [1]}
    assert len(registry.requests) == 2
    assert made.from_connect("t", data.STRING, None) is None
    assert made.to_connect("t", None) == (None, None)


def test_avro_is_what_confluent_writes(registry: FakeRegistry) -> None:
    made = converter("AvroConverter", registry)
    schema = struct_schema(("id", data.INT32), ("note", data.OPTIONAL_STRING), name="shop.Order")
    written = made.from_connect("t", schema, {"id": 1, "note": "x"})
    assert json.loads(registry.schemas[0][1]) == {
        "type": "record", "name": "Order", "namespace": "shop", "connect.name": "shop.Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }  # fmt: skip
    assert written[5:] == b"\x02\x02\x02x"
    made.from_connect("t", decimal_schema(2), decimal.Decimal("1.00"))
    assert json.loads(registry.schemas[1][1]) == {
        "type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2,
        "connect.name": data.DECIMAL, "connect.version": 1, "connect.parameters": {"scale": "2"},
    }  # fmt: skip


def test_avro_that_others_wrote_is_understood(registry: FakeRegistry) -> None:
    fastavro = pytest.importorskip("fastavro")
    import io

    avro = {
        "type": "record", "name": "Event", "namespace": "org.other", "fields": [
            {"name": "colour", "type": {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}},
            {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 2}},
            {"name": "what", "type": ["null", "string", "long",
                                      {"type": "record", "name": "Sub", "fields":
                                       [{"name": "n", "type": "int"}]}]},
            {"name": "again", "type": ["null", "Sub"], "default": None},
            {"name": "count", "type": "int", "default": 3},
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        ],
    }  # fmt: skip
    registry.schemas.append(("AVRO", json.dumps(avro)))
    made = converter("AvroConverter", registry)
    rows: list[tuple[Any, dict[str, Any]]] = [
        ("text", {"string": "text", "long": None, "Sub": None}),
        (7, {"string": None, "long": 7, "Sub": None}),
        (("org.other.Sub", {"n": 4}), {"string": None, "long": None, "Sub": {"n": 4}}),
    ]
    for what, wanted in rows:
        out = io.BytesIO()
        identity = "2f9c3a8e-7a54-4a0b-9d6e-0c7f6f1f2a3b"
        fastavro.schemaless_writer(
            out,
            avro,
            {"colour": "RED", "hash": b"ab", "what": what, "again": {"n": 1}, "count": 1,
             "id": identity},
        )  # fmt: skip
        schema, value = made.to_connect("t", b"\x00\x00\x00\x00\x01" + out.getvalue())
        assert value == {
            "colour": "RED", "hash": b"ab", "what": wanted, "again": {"n": 1}, "count": 1,
            "id": identity,
        }  # fmt: skip
        assert schema.name == "org.other.Event"
        assert schema.field("count").schema.default == 3


def test_json_schema_is_what_confluent_writes(registry: FakeRegistry) -> None:
    made = converter("JsonSchemaConverter", registry)
    schema = struct_schema(("id", data.INT32), ("note", data.OPTIONAL_STRING), name="Order")
    written = made.from_connect("t", schema, {"id": 1, "note": None})
    assert registry.schemas[0][0] == "JSON"
    assert json.loads(registry.schemas[0][1]) == {
        "type": "object", "title": "Order", "required": ["id"],
        "properties": {
            "id": {"type": "integer", "connect.type": "int32", "connect.index": 0},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1},
        },
    }  # fmt: skip
    assert json.loads(written[5:]) == {"id": 1, "note": None}


def test_json_schemas_that_others_wrote_are_understood() -> None:
    schema = from_json_schema({
        "$defs": {"name": {"type": "string"}},
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "name": {"$ref": "#/$defs/name"},
            "price": {"type": ["null", "number"]},
            "kind": {"enum": ["a", "b"]},
            "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
    })  # fmt: skip
    assert schema == struct_schema(
        ("id", data.INT64), ("name", data.OPTIONAL_STRING),
        ("price", data.FLOAT64.as_optional()), ("kind", data.OPTIONAL_STRING),
        ("tags", Schema(Type.MAP, True, key_schema=data.STRING, value_schema=data.BOOLEAN)),
    )  # fmt: skip
    with pytest.raises(DataError, match="several types"):
        from_json_schema({"oneOf": [{"type": "string"}, {"type": "integer"}]})
    with pytest.raises(DataError, match="is recursive"):
        from_json_schema({"$ref": "#/x", "x": {"$ref": "#/x"}})


@pytest.mark.parametrize("name", BOTH)
def test_values_without_a_schema_are_given_one(name: str, registry: FakeRegistry) -> None:
    made = converter(name, registry)
    value = {"id": 1, "tags": ["a"], "inner": {"x": 0.5}, "none": None}
    assert made.to_connect("t", made.from_connect("t", None, value))[1] == value
    with pytest.raises(DataError, match="no common type"):
        made.from_connect("t", None, {"mixed": [1, "a"]})


@pytest.mark.parametrize("name", BOTH)
def test_subjects_are_named_as_asked_for(name: str, registry: FakeRegistry) -> None:
    schema = struct_schema(("id", data.INT32), name="shop.Order")
    java = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
    converter(name, registry, value_subject_name_strategy=java).from_connect("t", schema, {"id": 1})
    both = "TopicRecordNameStrategy"
    converter(name, registry, value_subject_name_strategy=both).from_connect("t", schema, {"id": 1})
    assert list(registry.subjects) == ["shop.Order", "t-shop.Order"]


@pytest.mark.parametrize("name", BOTH)
def test_schemas_are_not_registered_where_they_must_not(name: str, registry: FakeRegistry) -> None:
    strict = converter(name, registry, auto_register_schemas="false")
    with pytest.raises(DataError, match="404 Schema not found"):
        strict.from_connect("t", data.STRING, "x")
    converter(name, registry).from_connect("t", data.STRING, "x")
    assert strict.from_connect("t", data.STRING, "x")[:5] == b"\x00\x00\x00\x00\x01"
    newest = converter(name, registry, auto_register_schemas="false", use_latest_version="true")
    assert newest.from_connect("t", data.STRING, "y")[:5] == b"\x00\x00\x00\x00\x01"
    with pytest.raises(ValueError, match=r"use\.latest\.version=true requires"):
        converter(name, registry, use_latest_version="true")


@pytest.mark.parametrize("name", BOTH)
def test_bytes_of_another_kind_are_an_error_of_their_record(
    name: str, registry: FakeRegistry
) -> None:
    made = converter(name, registry)
    for written, message in (
        (b"plain text", "do not begin with a schema ID"),
        (b"\x00\x00", "do not begin with a schema ID"),
        (b"\x00\x00\x00\x00\x63x", "404 Schema not found"),
    ):
        with pytest.raises(DataError, match=message):
            made.to_connect("t", written)
    good = made.from_connect("t", data.INT64, 300)
    with pytest.raises(DataError):
        made.to_connect("t", good[:5] + b"\xff")
    other = converter(BOTH[name == BOTH[0]], registry).from_connect("u", data.INT64, 1)
    with pytest.raises(DataError, match="is of type"):
        made.to_connect("t", other)


def test_a_registry_that_is_busy_is_asked_again(registry: FakeRegistry) -> None:
    made = converter("JsonSchemaConverter", registry, max_retries="2")
    registry.failures = 2
    assert made.from_connect("t", data.STRING, "x") is not None
    registry.failures = 3
    with pytest.raises(RetriableError, match=r"no schema registry responded; .*503 busy"):
        made.from_connect("u", data.INT32, 1)
    away = converter(
        "JsonSchemaConverter", registry, schema_registry_url=f"http://localhost:1,{registry.url}"
    )
    assert away.from_connect("t", data.STRING, "x") is not None


def test_credentials_go_with_every_request(registry: FakeRegistry) -> None:
    secret = f"Basic {base64.b64encode(b'me:pass word').decode()}"
    url = registry.url.replace("http://", "http://me:pass%20word@")
    converter("JsonSchemaConverter", registry, schema_registry_url=url).from_connect(
        "t", data.STRING, "x"
    )
    assert registry.authorizations == {secret}
    registry.authorizations.clear()
    given = {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "me:pass word"}
    converter("JsonSchemaConverter", registry, **given).from_connect("t", data.STRING, "x")
    assert registry.authorizations == {secret}
    with pytest.raises(ValueError, match="must look like http://host:port"):
        converter("JsonSchemaConverter", registry, schema_registry_url="localhost:8081")

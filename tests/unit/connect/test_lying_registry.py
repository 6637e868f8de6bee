"""Tests that a hostile or hanging schema registry causes one error message, in bounded time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.connect.lying_registry import LyingRegistry, http

from ottla.connect import data
from ottla.connect.api import RetriableError
from ottla.connect.data import DataError
from ottla.connect.json_schemas import from_json_schema
from ottla.connect.plugins import converter_class
from ottla.net import http_request

TIMEOUT_MS = 300
FRAMED = b"\x00\x00\x00\x00\x07"


@pytest.fixture
def registry() -> Iterator[LyingRegistry]:
    made = LyingRegistry()
    yield made
    made.close()


def converter(registry: LyingRegistry, name: str = "JsonSchemaConverter", **given: str) -> Any:
    if "Avro" in name:
        pytest.importorskip("fastavro")
    found = converter_class(name)
    texts = {
        "schema.registry.url": registry.url, "max.retries": "1", "retries.wait.ms": "1",
        "request.timeout.ms": str(TIMEOUT_MS),
    }  # fmt: skip
    texts |= {key.replace("_", "."): value for key, value in given.items()}
    return found(found.definition.settings(texts), is_key=False)


@pytest.mark.parametrize(
    "begun",
    [
        None,
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 200 OK\r\nX-Long: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n",
    ],
    ids=["silence", "status", "header", "body", "endless body", "error"],
)
def test_a_response_that_does_not_end_times_out(
    registry: LyingRegistry, begun: bytes | None
) -> None:
    registry.response, registry.drips = begun, begun is not None
    began = time.monotonic()
    with pytest.raises(RetriableError, match=r"no schema registry responded; .* within 300 ms"):
        converter(registry).to_connect("t", FRAMED + b"1")
    assert time.monotonic() - began < 15
    assert registry.requests_after(2) == 2


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (http(200, b"<html>"), "the response is not valid JSON"),
        (http(200, b""), "the response is not valid JSON"),
        (http(200, b"\xff\xfe\xfd"), "the response is not valid JSON"),
        (http(200, b"[" * 100_000), "the response is not valid JSON"),
        (http(200, None), "the response contains no schema"),
        (http(200, [1]), "the response contains no schema"),
        (http(200, {"id": 7}), "the response contains no schema"),
        (http(200, {"schema": {"type": "string"}}), "the response contains no schema"),
        (http(200, {"schema": "{}", "schemaType": 5}), "the response contains no schema"),
        (http(500, {"message": "out of\n  order"}), "500 out of order"),
        (http(500, b"x" * 10_000), "500 x"),
        (http(302, b"", "Location: http://example.invalid/"), "302"),
        (http(302, b"", "Location: file:///etc/passwd"), "302"),
        (b"garbage\r\n\r\n", "no schema registry responded"),
        (b"", "no schema registry responded"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "no schema registry responded"),
    ],
)
def test_an_invalid_response_is_reported_in_a_line_and_fails_no_record(
    registry: LyingRegistry, response: bytes, message: str
) -> None:
    registry.response = response
    with pytest.raises(RetriableError) as error:
        converter(registry).to_connect("t", FRAMED + b"1")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert registry.requests_after(2) == 2


@pytest.mark.parametrize("document", [{}, {"id": "x"}, {"id": -1}, {"id": 2**40}, {"id": True}, []])
def test_an_id_that_cannot_be_is_not_written(registry: LyingRegistry, document: Any) -> None:
    registry.response = http(200, document)
    with pytest.raises(RetriableError, match="the response contains no schema ID"):
        converter(registry).from_connect("t", data.STRING, "x")


def test_an_answer_has_a_size_that_it_must_not_exceed(
    registry: LyingRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_request, "MAX_RESPONSE_BYTES", 1000)
    registry.response = http(200, {"schema": "x" * 2000})
    with pytest.raises(RetriableError, match="more than 1000 bytes"):
        converter(registry).to_connect("t", FRAMED + b"1")


def doubled_avro(inner: Any) -> dict[str, Any]:
    """Return nested records, each with two of the previous: more fields than fit in memory."""
    before = inner["name"] if isinstance(inner, dict) else inner
    for n in range(40):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{n - 1}" if n else before}]
        inner = {"type": "record", "name": f"R{n}", "fields": fields}
    assert isinstance(inner, dict)
    return inner


EMPTY = {"type": "record", "name": "E", "fields": []}
HUGE_COUNT = b"\xfe\xff\xff\xff\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ("no schema", b"\x02"),
        ("[]", b"\x02"),
        (5, b"\x02"),
        ({"type": "recor", "name": "R"}, b"\x02"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b"\x02"),
        ({"type": "array", "items": EMPTY}, HUGE_COUNT),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, HUGE_COUNT),
        ({"type": "array", "items": "null"}, HUGE_COUNT),
        ({"type": "map", "values": {"type": "record", "name": "Q", "fields": [
            {"name": "e", "type": EMPTY}]}}, HUGE_COUNT),
        (doubled_avro(EMPTY), b""),
        (doubled_avro("int"), b"\x02"),
        ({"type": "array", "items": "int"}, HUGE_COUNT),
        ({"type": "fixed", "name": "F", "size": 2**40}, b"\x02"),
        ("\"bytes\"", HUGE_COUNT),
        ("\"string\"", b"\x04\xff\xff"),
    ],
)  # fmt: skip
def test_a_wrong_avro_schema_fails_its_record_alone(
    registry: LyingRegistry, schema: Any, payload: bytes
) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    registry.response = http(200, {"schema": text})
    with pytest.raises(DataError):
        converter(registry, "AvroConverter").to_connect("t", FRAMED + payload)


@pytest.mark.parametrize("schema", [
    {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R", "default": {}}]},
    {"type": "record", "name": "R", "fields": [{"name": "other", "type": "int"}]},
    {"type": "nothing"},
    5,
])  # fmt: skip
def test_a_newest_schema_that_values_cannot_have_fails_their_record_alone(
    registry: LyingRegistry, schema: Any
) -> None:
    registry.response = http(200, {"id": 7, "schema": json.dumps(schema)})
    given = {"use_latest_version": "true", "auto_register_schemas": "false"}
    with pytest.raises(DataError):
        converter(registry, "AvroConverter", **given).from_connect("t", None, {"n": 1})


def test_a_struct_without_fields_is_read_where_bytes_bound_it(registry: LyingRegistry) -> None:
    fields = [{"name": "e", "type": EMPTY}, {"name": "n", "type": "int"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    registry.response = http(200, {"schema": json.dumps(schema)})
    _, value = converter(registry, "AvroConverter").to_connect("t", FRAMED + b"\x02")
    assert value == {"e": {}, "n": 1}


@pytest.mark.parametrize("text", ["no schema", "5", "{", '{"type": 5}', '{"properties": 3}'])
def test_a_wrong_json_schema_fails_its_record_alone(registry: LyingRegistry, text: str) -> None:
    registry.response = http(200, {"schema": text, "schemaType": "JSON"})
    with pytest.raises(DataError):
        converter(registry).to_connect("t", FRAMED + b'"x"')


def test_references_that_double_are_not_followed_to_their_end() -> None:
    levels: dict[str, Any] = {"r0": {"type": "string"}}
    for n in range(1, 45):
        inner = {"$ref": f"#/r{n - 1}"}
        levels[f"r{n}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    with pytest.raises(DataError, match="more than 20000 types"):
        from_json_schema({"$ref": "#/r44", **levels})

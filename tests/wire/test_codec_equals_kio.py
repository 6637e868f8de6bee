"""Our generated readers and writers against kio's own, for every API, version and direction.

The values are drawn from one seed per message: random, null where the schema allows it, and with
tagged fields at their defaults or not."""

from __future__ import annotations

import io
import random
import struct
from typing import Any

import pytest
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from ottla.base.types import ZERO_UUID
from ottla.wire import codec, schema
from ottla.wire.compile import Message
from ottla.wire.schema import MessageField, Struct

ROUNDS = 5
_LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
MESSAGES = [
    (api_key, version, kind)
    for api_key in sorted(api_key_map)
    for version in schema.versions(api_key)
    for kind in ("request", "response")
]


def draw(rng: random.Random, field: MessageField) -> Any:
    if field.tag is not None and rng.random() < 0.3:
        return field.default
    if field.nullable and rng.random() < 0.3:
        return None
    if field.array:
        return [
            draw_one(rng, field)
            for _ in range(rng.choice([0, 1, 1, 2, 2] if field.struct else [0, 2, 130]))
        ]
    return draw_one(rng, field)


def draw_one(rng: random.Random, field: MessageField) -> Any:
    if field.struct is not None:
        return {inner.name: draw(rng, inner) for inner in field.struct.fields}
    match field.type:
        case "string":
            return "".join(rng.choices("aé✓", k=rng.choice([0, 3, 200])))
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 5, 300]))
        case "uuid":
            return rng.choice([ZERO_UUID, rng.randbytes(16)])
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.random()
        case "uint16":
            return rng.randrange(2**16)
    if field.name == "error_code" or field.name.endswith("error_code"):
        return rng.choice([0, 3, 35])
    if field.name.endswith("_ms"):
        return rng.choice([-1 if field.default == -1 else 0, 1_000, 86_400_000])
    bits = _LIMITS[field.type]
    return rng.choice([0, -1, 1, 2**bits - 1, -(2**bits)])


def plain(value: Any) -> Any:
    if isinstance(value, Message):
        return {name: plain(inner) for name, inner in vars(value).items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return bytes(value) if isinstance(value, memoryview) else value


def with_defaults(values: Any, struct_: Struct) -> Any:
    """Return the values that a reader must return: absent tagged fields have their defaults."""
    result = {}
    for field in struct_.fields:
        value = values[field.name]
        if field.struct is not None and value is not None:
            inner = [with_defaults(v, field.struct) for v in (value if field.array else [value])]
            value = inner if field.array else inner[0]
        result[field.name] = plain(value)
    return result


def filled(message: Any, struct_: Struct) -> Any:
    return {
        field.name: _filled_field(
            getattr(message, field.name) if isinstance(message, Message) else message[field.name],
            field,
        )
        for field in struct_.fields
    }


def _filled_field(value: Any, field: MessageField) -> Any:
    if field.struct is None or value is None:
        return plain(value)
    if field.array:
        return [filled(element, field.struct) for element in value]
    return filled(value, field.struct)


@pytest.mark.parametrize(
    ("api_key", "version", "kind"),
    MESSAGES,
    ids=[f"{api_key_map[a]}-v{v}-{k}" for a, v, k in MESSAGES],
)
def test_bytes_and_values_equal_those_of_kio(api_key: int, version: int, kind: Any) -> None:
    struct_ = schema.message_struct(api_key, version, kind)
    entity = schema._message_class(api_key, version, kind)
    read_kio, write_kio = entity_reader(entity), entity_writer(entity)
    rng = random.Random(f"{api_key}/{version}/{kind}")
    for _ in range(ROUNDS):
        values = {field.name: draw(rng, field) for field in struct_.fields}
        pieces: list[Any] = []
        codec._writer(api_key, version, kind)(pieces.append, values)
        ours = b"".join(pieces)

        theirs, end = read_kio(ours, 0)
        assert end == len(ours)
        rewritten = io.BytesIO()
        write_kio(rewritten, theirs)
        assert ours == rewritten.getvalue()

        decoded, end = codec._reader(api_key, version, kind)(
            memoryview(ours), 0, len(ours), [1_000_000]
        )
        assert end == len(ours)
        assert filled(decoded, struct_) == with_defaults(values, struct_)


@pytest.mark.parametrize("api_key", sorted(api_key_map))
def test_truncated_and_mutated_messages_raise_only_decode_errors(api_key: int) -> None:
    rng = random.Random(api_key)
    version = schema.versions(api_key)[-1]
    struct_ = schema.message_struct(api_key, version, "request")
    for _ in range(60):
        values = {field.name: draw(rng, field) for field in struct_.fields}
        pieces: list[Any] = []
        codec._writer(api_key, version, "request")(pieces.append, values)
        good = bytearray(b"".join(pieces))
        bad = good[: rng.randrange(len(good) + 1)]
        for _ in range(rng.randrange(4)):
            if bad:
                bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            codec.decode_request(api_key, version, memoryview(bytes(bad)), 0)
        except codec.DecodeError:
            pass


def test_an_array_length_beyond_the_frame_is_refused_before_memory_is_reserved() -> None:
    hostile = struct.pack(">bhi", 0, -1, 30_000) + b"\xff\xff\xff\xff\x07"
    with pytest.raises(codec.DecodeError, match="claims 2147483646 elements"):
        codec.decode_request(0, 9, memoryview(hostile), 0)


def test_a_field_that_the_version_lacks_reads_as_the_newest_default() -> None:
    pieces: list[Any] = []
    codec._writer(1, 4, "request")(pieces.append, {"topics": []})
    message = codec.decode_request(1, 4, memoryview(b"".join(pieces)), 0)
    assert message.session_epoch == -1
    assert message.rack_id == ""
    assert message.replica_state.replica_id == -1
    with pytest.raises(AttributeError):
        _ = message.no_such_field


def test_large_records_are_not_copied_into_the_response() -> None:
    records = memoryview(bytes(100_000))
    body = {
        "responses": [{"topic": "t", "partitions": [{"partition_index": 0, "records": records}]}]
    }
    pieces = codec.encode_response(1, 11, 7, body)
    assert any(piece is records for piece in pieces)
    size, correlation_id = struct.unpack_from(">ii", pieces[0])
    assert (size, correlation_id) == (sum(map(len, pieces)) - 4, 7)


@pytest.mark.parametrize("version", schema.versions(0))
def test_hand_written_produce_answers_equal_the_generated_ones(version: int) -> None:
    success = {"index": 3, "base_offset": 7, "log_append_time_ms": 9, "log_start_offset": 2}
    failure = {"index": 4, "error_code": 2, "base_offset": -1, "error_message": "no"}
    for partitions in ([success], [failure], [success, failure], []):
        topic = {"name": "orders", "topic_id": bytes(range(16)), "partition_responses": partitions}
        for topics in ([topic], [topic, topic], []):
            body = {"responses": topics}
            generated: list[Any] = []
            codec._writer(0, version, "response")(generated.append, body)
            hot: list[Any] = []
            codec._response_writer(0, version)[0](hot.append, body)
            assert b"".join(hot) == b"".join(generated)


def test_the_elements_of_all_arrays_together_are_bounded() -> None:
    topic = {"name": "t", "partition_data": [{"index": 0, "records": None}] * 1_000}
    body = {"acks": 1, "topic_data": [topic] * 300}
    (frame,) = [b"".join(codec.encode_request(0, 9, 1, None, body))]
    view = memoryview(frame)[4:]
    header = codec.decode_request_header(view)
    with pytest.raises(codec.DecodeError, match="claims 1000 elements"):
        codec.decode_request(0, 9, view, header.body_position)


@pytest.mark.parametrize("api_key", sorted(api_key_map), ids=lambda key: api_key_map[key])
def test_the_telling_versions_of_an_api_have_every_field(api_key: int) -> None:
    for kind in ("request", "response"):
        names = {
            nested.name
            for version in schema.versions(api_key)
            for nested in codec._nested(schema.message_struct(api_key, version, kind))
        }
        for name in names:
            decoded_fields = codec._fields(
                api_key, kind, name, codec._versions_with_all_fields(api_key)
            )
            assert decoded_fields.keys() == codec._all_fields(api_key, kind, name).keys(), (
                kind,
                name,
            )

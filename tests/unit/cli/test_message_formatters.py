"""Tests of printing records by the rules of Kafka's console consumer."""

from __future__ import annotations

import struct
import uuid

import pytest

from ottla.base.errors import UserError
from ottla.cli.message_formatters import JsonFormatter, find_formatter
from ottla.cli.named_deserializers import find_deserializer
from ottla.client.consumer.record import Record

RECORD = Record("t", 3, 7, 99, 0, b"k", b"v", (("h", b"1"), ("g", None)), 4)
EMPTY = Record("t", 3, 8, -1, 1, None, None, (), -1)
PACKAGE = "org.apache.kafka.tools.consumer"
JAVA = "org.apache.kafka.common.serialization"


def show(record: Record, name: str = "DefaultMessageFormatter", **properties: str) -> bytes:
    dotted = {key.replace("_", "."): value for key, value in properties.items()}
    return find_formatter(name, dotted)(record)


def test_a_value_is_shown_as_it_is() -> None:
    assert show(RECORD) == b"v\n"
    assert show(EMPTY) == b"null\n"
    assert show(RECORD._replace(value=b"\xff\x00")) == b"\xff\x00\n"


def test_all_that_can_be_shown_comes_in_kafkas_order() -> None:
    everything = {
        f"print_{name}": "true"
        for name in ("key", "timestamp", "offset", "partition", "headers", "epoch", "delivery")
    }
    shown = show(RECORD, **everything)
    assert shown == (
        b"CreateTime:99\tPartition:3\tOffset:7\tDelivery:NOT_PRESENT\tEpoch:4\th:1,g:null\tk\tv\n"
    )
    assert show(EMPTY, **everything) == (
        b"NO_TIMESTAMP\tPartition:3\tOffset:8\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\t"
        b"NO_HEADERS\tnull\tnull\n"
    )


def test_separators_and_the_word_for_null_can_be_chosen() -> None:
    properties = {
        "print_key": "true", "print_headers": "true", "key_separator": "|",
        "headers_separator": ";", "null_literal": "-", "line_separator": "\r\n",
    }  # fmt: skip
    assert show(RECORD, **properties) == b"h:1;g:-|k|v\r\n"
    assert show(EMPTY, print_key="true", print_value="false") == b"null\n"
    assert show(RECORD, print_value="false") == b""


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("IntegerDeserializer", struct.pack(">i", -5), b"-5"),
        ("LongDeserializer", struct.pack(">q", 2**40), b"1099511627776"),
        ("ShortDeserializer", struct.pack(">h", 7), b"7"),
        ("DoubleDeserializer", struct.pack(">d", 1.5), b"1.5"),
        ("FloatDeserializer", struct.pack(">f", 0.25), b"0.25"),
        ("BooleanDeserializer", b"\x01", b"true"),
        ("StringDeserializer", "é".encode(), "é".encode()),
        ("ByteArrayDeserializer", b"\xff", b"\xff"),
        ("UUIDDeserializer", str(uuid.UUID(int=1)).encode(), str(uuid.UUID(int=1)).encode()),
    ],
)
def test_javas_deserializers_are_known_by_their_names(name: str, data: bytes, shown: bytes) -> None:
    record = RECORD._replace(value=data)
    assert show(record, value_deserializer=f"{JAVA}.{name}") == shown + b"\n"
    assert find_deserializer(
        name.removesuffix("Deserializer").lower().replace("bytearray", "bytes")
    )


def test_a_null_is_not_deserialized() -> None:
    assert show(EMPTY, value_deserializer=f"{JAVA}.LongDeserializer") == b"null\n"


def test_bytes_of_another_size_are_no_number() -> None:
    with pytest.raises(ValueError, match="an integer has 4 bytes, but the field has 1"):
        show(RECORD, value_deserializer="integer")


def test_what_is_not_built_in_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"Unknown formatter com\.example\.Mine"):
        show(RECORD, "com.example.Mine")
    with pytest.raises(UserError, match=r"Unknown deserializer com\.example\.Mine"):
        show(RECORD, key_deserializer="com.example.Mine")
    with pytest.raises(UserError, match=r"Unknown formatter property print\.keys"):
        show(RECORD, print_keys="true")


def test_nothing_is_shown_and_everything_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(RECORD, "noop") == b""
    assert show(RECORD, f"{PACKAGE}.LoggingMessageFormatter") == b"v\n"
    assert capsys.readouterr().err == "CreateTime:99, key:k, value:v\n"


def test_json_has_all_of_a_record() -> None:
    shown = JsonFormatter()(RECORD._replace(value=b"\xff"))
    assert shown == (
        b'{"topic": "t", "partition": 3, "offset": 7, "timestamp": 99, "timestampType": '
        b'"CreateTime", "key": "k", "value": "/w==", "headers": [["h", "1"], ["g", null]]}\n'
    )


def test_offsets_and_groups_are_distinguished() -> None:
    offset = RECORD._replace(
        key=struct.pack(">hh", 1, 1) + b"g" + struct.pack(">h", 1) + b"t" + struct.pack(">i", 0),
        value=None,
    )
    group = RECORD._replace(key=struct.pack(">hh", 2, 1) + b"g", value=None)
    shown = b'{"key":{"type":1,"data":{"group":"g","topic":"t","partition":0}},"value":null}\n'
    old_name = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
    for name in (f"{PACKAGE}.OffsetsMessageFormatter", old_name):
        assert (show(offset, name), show(group, name)) == (shown, b"")
    groups = f"{PACKAGE}.GroupMetadataMessageFormatter"
    assert show(group, groups) == b'{"key":{"type":2,"data":{"group":"g"}},"value":null}\n'
    assert show(offset, groups) == b""
    with pytest.raises(ValueError, match="bytes remain"):
        show(group._replace(value=b"\x00\x03\x00\x20"), groups)

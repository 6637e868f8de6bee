"""Records of internal topics in Kafka's JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.records import internal, internal_tables
from ottla.wire.records.internal import UnknownType, group_record, metadata_record

TABLES = [
    internal_tables.GROUP,
    internal_tables.TRANSACTION,
    internal_tables.SHARE_STATE,
    internal_tables.CONSUMER_PROTOCOL,
    internal_tables.CONTROL,
    internal_tables.METADATA,
]


@pytest.mark.parametrize("tables", TABLES)
def test_every_table_parses_and_names_types_that_can_be_read(tables: str) -> None:
    known = {"{}", "[]", "bool", "string", "bytes", "uuid", *internal._NUMBERS}

    def check(fields: tuple[internal.SchemaField, ...]) -> None:
        for field in fields:
            assert field.type in known or field.type.removeprefix("[]") in known, field
            assert (field.type in ("{}", "[]")) == bool(field.fields), field
            check(field.fields)

    lines = [line for line in tables.splitlines() if line and not line.startswith(" ")]
    found = internal._by_name(tables)
    assert len(found) == len(lines)
    for table in found.values():
        check(table.fields)


def test_a_metadata_record_is_named_and_its_tagged_fields_shown() -> None:
    begin = bytes.fromhex("01170001001212426f6f747374726170207265636f726473")
    assert metadata_record(begin) == {
        "type": "BEGIN_TRANSACTION_RECORD",
        "version": 0,
        "data": {"name": "Bootstrap records"},
    }
    assert metadata_record(bytes.fromhex("01180000"))["data"] == {}


def test_a_committed_offset_has_its_topics_id() -> None:
    key = bytes.fromhex("0001000767726f75702d610001740000000a")
    value = bytes.fromhex("0004000000000000002a00000003016d6d6d6d6d6d6d6d00")
    found = group_record(key, value)
    assert found.key == {"type": "1", "data": {"group": "group-a", "topic": "t", "partition": 10}}
    assert found.value is not None
    assert found.value["data"]["offset"] == 42
    assert "topicId" not in found.value["data"]
    tagged = value[:-1] + b"\x01\x00\x10" + bytes(range(16))
    again = group_record(key, tagged).value
    assert again is not None
    assert again["data"]["topicId"] == "AAECAwQFBgcICQoLDA0ODw"


def test_an_unknown_type_is_reported() -> None:
    with pytest.raises(UnknownType) as caught:
        group_record(b"\x7f\x00", None)
    assert caught.value.kind == 0x7F00


@given(st.binary(max_size=60), st.integers(0, 24), st.integers(0, 4), st.binary(max_size=200))
def test_no_bytes_do_more_than_raise_value_error(
    key: bytes, kind: int, version: int, value: bytes
) -> None:
    for read in (
        internal.group_record,
        internal.transaction_record,
        internal.share_state_record,
    ):
        try:
            read(bytes((0, kind)) + key, bytes((0, version)) + value)
        except ValueError:
            pass
    try:
        metadata_record(bytes((1, kind, version)) + value)
    except ValueError:
        pass


def test_a_struct_in_a_tagged_field_is_null_when_it_is_0() -> None:
    """Apache Kafka 4.3 writes members that do not use the classic protocol like this."""
    key = bytes.fromhex("000500016700016d")
    value = "00000269000263032f68030261026204782e2a000493e00672616e6765"
    decoded = group_record(key, bytes.fromhex(f"{value}01000100")).value
    assert decoded is not None
    assert decoded["data"]["serverAssignor"] == "range"
    assert decoded["data"]["classicMemberMetadata"] is None

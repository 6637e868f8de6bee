"""Tests of Debezium's ExtractNewRecordState, which replaces an envelope with its row."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.connect.data import INT32, INT64, STRING, ConnectRecord, DataError, check, struct_schema
from ottla.connect.plugins import transform_class

ROW = struct_schema(("id", INT32), ("note", STRING.as_optional()), optional=True, name="row")
SOURCE = struct_schema(("lsn", INT64))
ENVELOPE = struct_schema(
    ("before", ROW), ("after", ROW), ("op", STRING), ("source", SOURCE), name="Envelope"
)
KEY = struct_schema(("id", INT32))


def transform(**given: str) -> Any:
    found, part = transform_class("io.debezium.transforms.ExtractNewRecordState")
    texts = {key.replace("_", "."): value for key, value in given.items()}
    assert not found.definition.problems(texts)
    return found(found.definition.settings(texts), part)


def envelope(op: str, before: Any, after: Any) -> ConnectRecord:
    value = {"before": before, "after": after, "op": op, "source": {"lsn": 7}}
    return ConnectRecord("t", value, ENVELOPE, {"id": 1}, KEY)


NEW, OLD = {"id": 1, "note": "new"}, {"id": 1, "note": "old"}
TOMBSTONE = ConnectRecord("t", None, None, {"id": 1}, KEY)


def test_a_change_is_its_new_row() -> None:
    for op, before in (("c", None), ("u", OLD), ("r", None)):
        made = transform().apply(envelope(op, before, NEW))
        assert made.value == NEW
        assert made.key == {"id": 1}
        assert not made.value_schema.optional
        check(made.value_schema, made.value)
    again = transform()
    schemas = {id(again.apply(envelope("c", None, NEW)).value_schema) for _ in range(3)}
    assert len(schemas) == 1


@pytest.mark.parametrize(
    ("mode", "delete", "tombstone"),
    [
        ("tombstone", None, "dropped"),
        ("drop", "dropped", "dropped"),
        ("delete-to-tombstone", "dropped", None),
        ("rewrite", {**OLD, "__deleted": "true"}, "dropped"),
        ("rewrite-with-tombstone", {**OLD, "__deleted": "true"}, None),
    ],
)
def test_deletes_and_tombstones_are_handled_by_mode(mode: str, delete: Any, tombstone: Any) -> None:
    made = transform(delete_tombstone_handling_mode=mode)
    for record, wanted in ((envelope("d", OLD, None), delete), (TOMBSTONE, tombstone)):
        found = made.apply(record)
        assert (found.value if found is not None else "dropped") == wanted


def test_truncates_are_dropped_and_what_is_no_envelope_passes() -> None:
    assert transform().apply(envelope("t", None, None)) is None
    plain = ConnectRecord("t", {"id": 1}, KEY)
    assert transform().apply(plain) is plain


def test_fields_of_the_envelope_are_added_to_rows_and_headers() -> None:
    made = transform(add_fields="op,source.lsn:at", add_headers="op").apply(
        envelope("c", None, NEW)
    )
    assert made.value == {**NEW, "__op": "c", "__at": 7}
    check(made.value_schema, made.value)
    assert [(each.key, each.value) for each in made.headers] == [("__op", "c")]
    with pytest.raises(DataError, match=r"no field source\.nothing"):
        transform(add_fields="source.nothing").apply(envelope("c", None, NEW))

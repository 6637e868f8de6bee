"""Tests of decoding PostgreSQL's replication messages into change records, without PostgreSQL."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ottla.connect.connectors.postgres.changes import ChangeDecoder, Position
from ottla.connect.connectors.postgres.envelope import Envelopes
from ottla.connect.connectors.postgres.pgoutput import (
    POSTGRES_EPOCH_US,
    UNCHANGED,
    Insert,
    Keepalive,
    Other,
    ProtocolError,
    Relation,
    RelationColumn,
    Update,
    WalData,
    decode,
    encode_status,
    format_lsn,
    parse_lsn,
)
from ottla.connect.connectors.postgres.snapshot import split_line
from ottla.connect.connectors.postgres.tables import (
    KeyColumns,
    Selection,
    TableSchema,
    make_table_schema,
)
from ottla.connect.connectors.postgres.types import TypeModes
from ottla.connect.data import ConnectRecord
from ottla.connect.debezium import UNCHANGED_HEADER

ORDERS = Relation(
    7,
    "public",
    "orders",
    "d",
    (
        RelationColumn("id", 23, -1, True),
        RelationColumn("note", 25, -1, False),
    ),
)
LISTS = [f"{name}.{kind}.list" for name in ("schema", "table", "column") for kind in
         ("include", "exclude")]  # fmt: skip


def wal(message: bytes, start: int = 100) -> bytes:
    return b"w" + struct.pack(">QQQ", start, start, 0) + message


def begin(commit_lsn: int, xid: int = 5) -> bytes:
    return wal(b"B" + struct.pack(">QqI", commit_lsn, 1_000_000, xid))


def commit(commit_lsn: int, end: int) -> bytes:
    return wal(b"C" + struct.pack(">BQQq", 0, commit_lsn, end, 1_000_000))


def relation(described: Relation = ORDERS) -> bytes:
    made = (
        b"R" + struct.pack(">I", described.oid) + f"{described.schema}\0{described.name}\0".encode()
    )
    made += described.identity.encode() + struct.pack(">H", len(described.columns))
    for each in described.columns:
        made += bytes([each.is_identity]) + each.name.encode() + b"\0"
        made += struct.pack(">Ii", each.type_oid, each.type_modifier)
    return wal(made)


def row(*values: Any) -> bytes:
    made = struct.pack(">H", len(values))
    for each in values:
        if each is None:
            made += b"n"
        elif each is UNCHANGED:
            made += b"u"
        else:
            data = str(each).encode()
            made += b"t" + struct.pack(">i", len(data)) + data
    return made


def insert(*values: Any) -> bytes:
    return wal(b"I" + struct.pack(">I", 7) + b"N" + row(*values))


def update(old: bytes | None, *values: Any) -> bytes:
    before = b"" if old is None else b"K" + old
    return wal(b"U" + struct.pack(">I", 7) + before + b"N" + row(*values))


def delete(*values: Any) -> bytes:
    return wal(b"D" + struct.pack(">I", 7) + b"K" + row(*values))


def truncate(*oids: int) -> bytes:
    return wal(b"T" + struct.pack(">IB", len(oids), 0) + struct.pack(f">{len(oids)}I", *oids))


def shape_of(described: Relation) -> TableSchema:
    selection = Selection.of({name: [] for name in LISTS})
    key = tuple(each.name for each in described.columns if each.is_identity)
    return make_table_schema(
        described, key, "shop", selection, KeyColumns(), TypeModes(), {}, "???"
    )


START = Position(50)


def changes(start: Position = START, **options: Any) -> ChangeDecoder:
    return ChangeDecoder(Envelopes("shop", "db", **options), shape_of, start)


def feed(stream: ChangeDecoder, *messages: bytes) -> list[ConnectRecord]:
    found = []
    for each in messages:
        found += stream.feed(decode(each), 1)
    return found


def ops(records: list[ConnectRecord]) -> list[Any]:
    return [
        (each.value["op"], (each.value["after"] or each.value["before"] or {}).get("id"))
        if each.value is not None
        else ("tombstone", each.key["id"])
        for each in records
    ]


def test_messages_are_read_as_postgresql_writes_them() -> None:
    assert decode(relation()) == WalData(100, ORDERS)
    assert decode(insert(1, None)) == WalData(100, Insert(7, [b"1", None]))
    assert decode(update(row(1, None), 2, UNCHANGED)) == WalData(
        100, Update(7, [b"1", None], [b"2", UNCHANGED])
    )
    assert decode(wal(b"Yxyz")) == WalData(100, Other("Y"))
    assert decode(b"k" + struct.pack(">QQB", 9, 0, 1)) == Keepalive(9, True)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"w123", wal(b"B12"), wal(b"R\0\0\0\1abc"), insert("abc")[:-2]]
)
def test_broken_messages_are_one_sentence(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="PostgreSQL sent"):
        decode(data)


def test_lsns_are_written_as_postgresql_writes_them() -> None:
    assert format_lsn(parse_lsn("16/B374D848")) == "16/B374D848"
    status = encode_status(77, POSTGRES_EPOCH_US + 5)
    assert struct.unpack(">cQQQqB", status) == (b"r", 77, 77, 77, 5, 0)


def test_changes_become_envelopes_in_their_order() -> None:
    stream = changes()
    records = feed(
        stream, begin(200), relation(), insert(1, "a"), update(None, 1, "b"), delete(1, None),
        truncate(7), commit(200, 210),
    )  # fmt: skip
    assert ops(records) == [("c", 1), ("u", 1), ("d", 1), ("tombstone", 1), ("t", None)]
    first = records[0]
    assert first.topic == "shop.public.orders"
    assert first.key == {"id": 1}
    assert first.value["after"] == {"id": 1, "note": "a"}
    assert first.value["source"]["txId"] == 5
    assert first.value["source"]["lsn"] == 100
    assert stream.position == Position(210)


def test_a_changed_key_is_a_delete_and_an_insert() -> None:
    records = feed(changes(), begin(200), relation(), update(row(1, None), 2, "a"))
    assert ops(records) == [("d", 1), ("tombstone", 1), ("c", 2)]
    assert records[0].headers[0].value == {"id": 2}


def test_an_untouched_large_value_is_named_in_a_header() -> None:
    (record,) = feed(changes(), begin(200), relation(), update(None, 1, UNCHANGED))
    assert record.value["after"] == {"id": 1, "note": "???"}
    assert [(each.key, each.value) for each in record.headers] == [(UNCHANGED_HEADER, "note")]


def test_with_a_full_identity_an_untouched_large_value_is_known() -> None:
    data = wal(b"U" + struct.pack(">I", 7) + b"O" + row(1, "large") + b"N" + row(1, UNCHANGED))
    (record,) = feed(changes(), begin(200), relation(), data)
    assert record.value["after"] == {"id": 1, "note": "large"}
    assert record.headers == ()


def test_a_stream_continues_inside_a_transaction() -> None:
    messages = [begin(200), relation(), insert(1, "a"), insert(2, "b"), insert(3, "c"),
                commit(200, 210), begin(220), insert(4, "d"), commit(220, 230)]  # fmt: skip
    for cut in range(len(messages) + 1):
        first = changes()
        before = feed(first, *messages[:cut])
        if first.position == Position(210):
            again = [messages[1], *messages[6:]]
        elif first.position == Position(230):
            again = []
        elif first.position.lsn == 210:
            again = [messages[1], *messages[6:]]
        else:
            again = messages
        second = changes(Position.of(first.position.to_json()))
        after = feed(second, *again)
        assert ops(before + after) == [("c", 1), ("c", 2), ("c", 3), ("c", 4)], cut


def test_a_keepalive_moves_the_position_only_between_transactions() -> None:
    keepalive = b"k" + struct.pack(">QQB", 500, 0, 0)
    stream = changes()
    feed(stream, keepalive)
    assert stream.position == Position(500)
    feed(stream, begin(600), relation(), insert(1, "a"), keepalive)
    assert stream.position == Position(500, 600, 1)
    resumed = changes(stream.position)
    feed(resumed, keepalive)
    assert resumed.position == Position(500, 600, 1)


def test_transactions_are_marked_if_asked_for() -> None:
    messages = [begin(200), relation(), insert(1, "a"), insert(2, "b"), commit(200, 210)]
    start, first, second, end = feed(changes(marks_transactions=True), *messages)
    assert start.topic == end.topic == "shop.transaction"
    assert start.value["status"] == "BEGIN"
    assert first.value["transaction"]["id"] == start.key["id"] == "5:200"
    assert second.value["transaction"]["total_order"] == 2
    assert end.value["event_count"] == 2
    resumed = changes(Position(50, 200, 1), marks_transactions=True)
    second_again, end_again = feed(resumed, *messages)
    assert second_again.value["transaction"] == second.value["transaction"]
    assert end_again.value == end.value


def test_operations_can_be_left_out() -> None:
    stream = changes(skipped=frozenset("dt"))
    records = feed(stream, begin(200), relation(), insert(1, "a"), delete(1, None), truncate(7))
    assert ops(records) == [("c", 1)]


def test_a_new_column_is_in_the_records_from_then_on() -> None:
    wider = Relation(7, "public", "orders", "d", (*ORDERS.columns,
                     RelationColumn("price", 1700, (6 << 16 | 2) + 4, False)))  # fmt: skip
    records = feed(
        changes(), begin(200), relation(), insert(1, "a"), relation(wider), insert(2, "b", "1.50")
    )
    assert list(records[0].value["after"]) == ["id", "note"]
    assert str(records[1].value["after"]["price"]) == "1.50"
    schema = records[1].value_schema
    assert schema is not None
    after = schema.field("after")
    assert after is not None
    assert [each.name for each in after.schema.fields] == ["id", "note", "price"]


def test_lines_of_a_copy_are_unescaped() -> None:
    assert split_line(b"1\t\\N\ta\\tb\\\\c\\n\t\n") == [b"1", None, b"a\tb\\c\n", b""]
    assert split_line(b"1\tplain\n") == [b"1", b"plain"]

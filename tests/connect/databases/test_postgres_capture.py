"""Change capture from a real PostgreSQL: snapshot, streaming, and resuming from an offset."""

from __future__ import annotations

import decimal
import time
import uuid

import pytest
from tests.connect.databases.capture import Capture, connector
from tests.connect.databases.servers import Postgres

from ottla.base.errors import UserError
from ottla.connect.data import check
from ottla.connect.debezium import UNCHANGED_HEADER

PATIENCE_S = 60.0
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text)"


def capture(postgres: Postgres, database: str, **given: str) -> Capture:
    return Capture(connector(postgres, database, **given)).start()


def test_rows_that_are_there_come_first_then_every_change(
    postgres: Postgres, database: str
) -> None:
    postgres.run(ORDERS, "INSERT INTO orders VALUES (1, 'a'), (2, 'b')", database=database)
    capturing = capture(postgres, database)
    try:
        capturing.until(2)
        postgres.run(
            "INSERT INTO orders VALUES (3, 'c')",
            "UPDATE orders SET note = 'B' WHERE id = 2",
            "DELETE FROM orders WHERE id = 1",
            "UPDATE orders SET id = 4 WHERE id = 3",
            "TRUNCATE orders",
            "INSERT INTO orders VALUES (5, NULL)",
            database=database,
        )
        records = capturing.until(11)
        assert capturing.ops() == "rrcud-d-ctc"
        assert [each.key["id"] if each.key else None for each in records] == [
            1, 2, 3, 2, 1, 1, 3, 3, 4, None, 5,
        ]  # fmt: skip
        assert records[0].value["source"]["snapshot"] == "true"
        assert records[3].value["source"]["table"] == "orders"
        assert records[3].value["source"]["txId"] > 0
        assert capturing.rows("orders") == [{"id": 5, "note": None}]
        for each in records:
            if each.value is not None:
                assert each.value_schema is not None
                check(each.value_schema, each.value)
    finally:
        capturing.crash()


TYPES = {
    "numeric(10,2)": ("12.50", decimal.Decimal("12.50")),
    "numeric": ("1e-3", {"scale": 3, "value": b"\x01"}),
    "bigint": ("-9223372036854775808", -(2**63)),
    "boolean": ("true", True),
    "real": ("1.5", 1.5),
    "timestamp": ("2024-02-29 12:34:56.789012", 1709210096789012),
    "timestamptz": ("2024-02-29 12:34:56.789012+02", "2024-02-29T10:34:56.789012Z"),
    "date": ("1999-12-31", 10956),
    "time": ("23:59:59.999999", 86399999999),
    "interval": ("1 year 2 days", "P1Y2D"),
    "json": ('{"b": 1, "a": [1,2]}', '{"b": 1, "a": [1,2]}'),
    "jsonb": ('{"b":1}', '{"b": 1}'),
    "bytea": ("\\x00ff10", b"\x00\xff\x10"),
    "uuid": ("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "int[]": ("{1,NULL,3}", [1, None, 3]),
    "text[]": ('{"a,b","c\\"d",NULL}', ["a,b", 'c"d', None]),
    "mood": ("happy", "happy"),
    "mood[]": ("{sad}", ["sad"]),
    "positive": ("7", 7),
    "inet": ("10.0.0.1/8", "10.0.0.1/8"),
    "varchar(5)": ("äöü", "äöü"),
    "int4range": ("[1,5)", "[1,5)"),
    "point": ("(1,2)", "(1,2)"),
    "text": ("tab\tnew\nline\\back", "tab\tnew\nline\\back"),
}


def test_column_types_are_kept_by_snapshot_and_stream_alike(
    postgres: Postgres, database: str
) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    marks = ", ".join("%s" for _ in TYPES)
    postgres.run(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        f"CREATE TABLE every_type (id int PRIMARY KEY, {columns})",
        database=database,
    )
    texts = [text for text, _ in TYPES.values()]
    insert = f"INSERT INTO every_type VALUES (%s, {marks})"
    with postgres.connect(database) as connection:
        connection.execute(insert, [1, *texts])
        connection.execute("INSERT INTO every_type (id) VALUES (2)")
        capturing = capture(postgres, database)
        try:
            capturing.until(2)
            connection.execute(insert, [3, *texts])
            connection.execute("INSERT INTO every_type (id) VALUES (4)")
            records = capturing.until(4)
        finally:
            capturing.crash()
    wanted = {f"c{number}": value for number, (_, value) in enumerate(TYPES.values())}
    for record, number in zip(records, (1, 2, 3, 4), strict=True):
        row = record.value["after"]
        assert row == {"id": number, **(wanted if number % 2 else dict.fromkeys(wanted))}
        assert record.value_schema is not None
        check(record.value_schema, record.value)


def test_large_values_that_an_update_leaves_alone_are_named(
    postgres: Postgres, database: str
) -> None:
    large = "".join(uuid.uuid4().hex for _ in range(4000))
    postgres.run(
        "CREATE TABLE docs (id int PRIMARY KEY, title text, body text, tags int[])",
        f"INSERT INTO docs VALUES (1, 'a', '{large}', '{{1}}')",
        database=database,
    )
    capturing = capture(postgres, database)
    try:
        capturing.until(1)
        postgres.run("UPDATE docs SET title = 'b'", database=database)
        capturing.until(2)
        update = capturing.records[1]
        assert [(each.key, each.value) for each in update.headers] == [(UNCHANGED_HEADER, "body")]
        assert update.value["after"]["body"] == "__debezium_unavailable_value"
        assert capturing.rows("docs") == [{"id": 1, "title": "b", "body": large, "tags": [1]}]
        postgres.run(
            "ALTER TABLE docs REPLICA IDENTITY FULL",
            "UPDATE docs SET title = 'c'",
            database=database,
        )
        capturing.until(3)
        assert capturing.records[2].headers == ()
        assert capturing.records[2].value["after"]["body"] == large
    finally:
        capturing.crash()


def test_a_transaction_larger_than_a_poll_is_gone_on_with_after_a_crash(
    postgres: Postgres, database: str
) -> None:
    postgres.run(ORDERS, database=database)
    capturing = capture(postgres, database, max_batch_size="40")
    capturing.poll()
    with postgres.connect(database) as connection, connection.transaction():
        for first in (0, 60):
            connection.execute(
                "INSERT INTO orders SELECT i, i::text FROM generate_series(%s::int, %s::int) i",
                [first, first + 59],
            )
            connection.execute("UPDATE orders SET note = 'x' WHERE id < %s", [first + 10])
    until = time.monotonic() + PATIENCE_S
    while len(capturing.records) < 120 + 10 + 70:
        assert time.monotonic() < until
        capturing.poll()
        capturing.crash()
        capturing.start()
    capturing.until(200)
    capturing.crash()
    ids = [each.value["after"]["id"] for each in capturing.records if each.value["op"] == "c"]
    assert ids == list(range(120))
    assert capturing.ops().count("u") == 80


def test_an_interrupted_snapshot_continues_after_the_last_key(
    postgres: Postgres, database: str
) -> None:
    postgres.run(
        ORDERS,
        "INSERT INTO orders SELECT i, 'old' FROM generate_series(1, 100) i",
        database=database,
    )
    capturing = capture(postgres, database, max_batch_size="30")
    capturing.poll()
    assert len(capturing.records) == 30
    capturing.crash()
    postgres.run(
        "UPDATE orders SET note = 'new' WHERE id IN (5, 80)",
        "DELETE FROM orders WHERE id IN (6, 81)",
        "INSERT INTO orders VALUES (0, 'new'), (101, 'new')",
        database=database,
    )
    capturing.start()
    read = 30 + 70
    capturing.until(read + 2 + 2 * 2 + 2)
    capturing.crash()
    ids = [each.key["id"] for each in capturing.records[:read]]
    assert ids == [*range(1, 81), *range(82, 102)]
    wanted = postgres.run("SELECT id, note FROM orders ORDER BY id", database=database)
    found = sorted((row["id"], row["note"]) for row in capturing.rows("orders"))
    assert found == wanted


def test_nothing_is_lost_or_duplicated_when_the_database_restarts(
    postgres: Postgres, database: str
) -> None:
    postgres.run(ORDERS, database=database)
    capturing = capture(postgres, database)
    for turn in range(2):
        postgres.run(f"INSERT INTO orders VALUES ({turn}, 'x')", database=database)
        capturing.until(turn + 1)
        postgres.stop(crash=turn == 0)
        with pytest.raises(UserError, match="cannot be reached"):
            capturing.poll()
        capturing.crash()
        postgres.start()
        capturing.start()
    postgres.run("INSERT INTO orders VALUES (2, 'x')", database=database)
    capturing.until(3)
    assert [each.key["id"] for each in capturing.records] == [0, 1, 2]
    postgres.stop()
    postgres.start()
    # PostgreSQL is up again before the task polls, so the task reconnects without failing.
    postgres.run("INSERT INTO orders VALUES (3, 'x')", database=database)
    capturing.until(4)
    capturing.crash()


def test_new_columns_and_new_tables_are_followed(postgres: Postgres, database: str) -> None:
    postgres.run(ORDERS, database=database)
    capturing = capture(postgres, database, heartbeat_interval_ms="200", skipped_operations="t")
    try:
        postgres.run(
            "INSERT INTO orders VALUES (1, 'a')",
            "ALTER TABLE orders ADD price numeric(6,2), DROP note",
            "INSERT INTO orders VALUES (2, 1.5)",
            "CREATE TABLE later (id int PRIMARY KEY)",
            "INSERT INTO later VALUES (7)",
            database=database,
        )
        until = time.monotonic() + PATIENCE_S
        while len(capturing.rows("later")) < 1:
            assert time.monotonic() < until
            capturing.poll()
        postgres.run("INSERT INTO later VALUES (8)", database=database)
        while len(capturing.rows("later")) < 2:
            assert time.monotonic() < until
            capturing.poll()
        assert capturing.rows("orders") == [
            {"id": 1, "note": "a"},
            {"id": 2, "price": decimal.Decimal("1.50")},
        ]
        assert capturing.rows("later") == [{"id": 7}, {"id": 8}]
    finally:
        capturing.crash()


def test_a_table_without_a_key_can_still_be_updated_by_its_users(
    postgres: Postgres, database: str
) -> None:
    postgres.run("CREATE TABLE notes (said text)", ORDERS, database=database)
    capturing = capture(postgres, database)
    try:
        capturing.poll()
        postgres.run(
            "INSERT INTO notes VALUES ('a')",
            "UPDATE notes SET said = 'b'",
            "DELETE FROM notes",
            "INSERT INTO orders VALUES (1, 'x')",
            database=database,
        )
        capturing.until(2)
        assert [each.key for each in capturing.records] == [None, {"id": 1}]
        (notice,) = capturing.offset["notices"]
        assert "public.notes has no primary key" in notice
    finally:
        capturing.crash()


def test_idle_tables_do_not_pin_what_others_write(postgres: Postgres, database: str) -> None:
    postgres.run(ORDERS, "CREATE TABLE busy (id int)", database=database)
    capturing = capture(
        postgres, database, table_include_list="public.orders", heartbeat_interval_ms="100"
    )
    slot = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name='slot_{database}'"
    try:
        capturing.poll()
        (before,) = postgres.run(slot)
        ((written,),) = postgres.run(
            "INSERT INTO busy SELECT generate_series(1, 10000)",
            "SELECT pg_current_wal_lsn()",
            database=database,
        )
        until = time.monotonic() + PATIENCE_S
        while not postgres.run(
            f"SELECT FROM pg_replication_slots WHERE slot_name = 'slot_{database}' "
            f"AND confirmed_flush_lsn >= '{written}'"
        ):
            assert time.monotonic() < until, before
            capturing.poll()
        assert {each.topic for each in capturing.records} == {"__debezium-heartbeat.shop"}
        assert capturing.records[-1].value["slot_lag_bytes"] >= 0
        assert capturing.offset["slot_lag_bytes"] >= 0
    finally:
        capturing.crash()

"""The snapshot modes of `PostgresSource`: each at the first start and at later ones."""

from __future__ import annotations

import time

import pytest
from tests.connect.databases.capture import Capture, connector
from tests.connect.databases.servers import Postgres

ROWS = (
    "CREATE TABLE orders (id int PRIMARY KEY, note text)",
    "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
)


def kept_by_database(postgres: Postgres, database: str) -> tuple[int, int]:
    """Return the number of replication slots and publications."""
    slots = postgres.run(f"SELECT FROM pg_replication_slots WHERE database = '{database}'")
    return len(slots), len(postgres.run("SELECT FROM pg_publication", database=database))


def test_always_reads_the_rows_at_each_start(postgres: Postgres, database: str) -> None:
    postgres.run(*ROWS, database=database)
    capturing = Capture(connector(postgres, database, snapshot_mode="always")).start()
    try:
        capturing.until(2)
        postgres.run("INSERT INTO orders VALUES (3, 'c')", database=database)
        capturing.until(3)
        capturing.crash()
        postgres.run(
            "UPDATE orders SET note = 'B' WHERE id = 2",
            "DELETE FROM orders WHERE id = 1",
            database=database,
        )
        capturing.start()
        # First the current rows, then the changes that led to them: an update, a delete, its
        # tombstone.
        capturing.until(3 + 2 + 3)
        assert capturing.ops() == "rrcrrud-"
        assert capturing.rows("orders") == [{"id": 2, "note": "B"}, {"id": 3, "note": "c"}]
    finally:
        capturing.crash()


def test_always_continues_with_a_snapshot_that_was_interrupted(
    postgres: Postgres, database: str
) -> None:
    postgres.run(*ROWS, database=database)
    given = {"snapshot_mode": "always", "max_batch_size": "1"}
    capturing = Capture(connector(postgres, database, **given)).start()
    capturing.poll()
    assert len(capturing.records) == 1
    capturing.crash()
    capturing.start()
    try:
        capturing.until(2)
        assert [each.key["id"] for each in capturing.records] == [1, 2]
    finally:
        capturing.crash()


def test_always_begins_anew_when_changes_were_lost(postgres: Postgres, database: str) -> None:
    postgres.run(*ROWS, database=database)
    capturing = Capture(connector(postgres, database, snapshot_mode="always")).start()
    capturing.until(2)
    capturing.crash()
    postgres.drop_slot(f"slot_{database}")
    postgres.run("DELETE FROM orders WHERE id = 1", database=database)
    capturing.start()
    try:
        capturing.until(2 + 2)
        assert capturing.ops() == "rrtr"
    finally:
        capturing.crash()


def test_initial_only_reads_the_rows_and_leaves_nothing_in_the_database(
    postgres: Postgres, database: str
) -> None:
    postgres.run(*ROWS, database=database)
    given = {"snapshot_mode": "initial_only", "max_batch_size": "1"}
    capturing = Capture(connector(postgres, database, **given)).start()
    capturing.poll()
    capturing.crash()
    capturing.start()
    capturing.until(2)
    assert kept_by_database(postgres, database) == (0, 0)
    postgres.run("INSERT INTO orders VALUES (3, 'c')", database=database)
    for _ in range(5):
        assert capturing.poll() == []
    capturing.crash()
    capturing.start()
    assert capturing.poll() == []
    assert "snapshot" not in capturing.offset
    capturing.crash()
    assert capturing.ops() == "rr"


def test_a_slot_that_initial_only_does_not_read_from_is_reported(
    postgres: Postgres, database: str
) -> None:
    postgres.run(*ROWS, database=database)
    before = Capture(connector(postgres, database)).start()
    before.until(2)
    before.crash()
    capturing = Capture(connector(postgres, database, snapshot_mode="initial_only"))
    capturing.offsets = before.offsets
    capturing.start()
    try:
        until = time.monotonic() + 30
        while "notices" not in capturing.offset:
            assert time.monotonic() < until
            capturing.poll()
        assert "exists and retains WAL" in capturing.offset["notices"][0]
    finally:
        capturing.crash()


@pytest.mark.parametrize("mode", ["no_data", "never"])
def test_no_data_captures_changes_only(postgres: Postgres, database: str, mode: str) -> None:
    postgres.run(*ROWS, database=database)
    capturing = Capture(connector(postgres, database, snapshot_mode=mode)).start()
    try:
        postgres.run("INSERT INTO orders VALUES (3, 'c')", database=database)
        capturing.until(1)
        assert capturing.ops() == "c"
    finally:
        capturing.crash()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("configuration_based", "its switches are not supported.* initial, when_needed, always"),
        ("custom", "custom snapshotters are not supported"),
        ("exported", "it is now called initial"),
        ("schema_only", "it is now called no_data"),
        ("initial-only", r"did you mean initial_only\?"),
        ("sometimes", "cannot be sometimes: "),
    ],
)
def test_a_mode_that_is_not_known_is_refused_with_the_nearest(
    postgres: Postgres, mode: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        connector(postgres, "x", snapshot_mode=mode)

"""Faults of a capture: the error is one clear sentence, and the database is not harmed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.connect.databases.capture import Capture, connector
from tests.connect.databases.servers import Postgres

from ottla.base.errors import UserError
from ottla.connect.connectors.postgres import task
from ottla.connect.data import FailedRecord

PATIENCE_S = 60.0
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text)"


def repeated(do: Callable[[], Any]) -> None:
    """Call `do` until it raises, or until the time is up."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        do()
        time.sleep(0.01)


def refused(postgres: Postgres, database: str, message: str, **given: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        Capture(connector(postgres, database, **given)).start()
    assert "\n" not in str(raised.value)


def test_what_cannot_be_captured_is_reported(postgres: Postgres, database: str) -> None:
    postgres.run(
        ORDERS,
        "DROP ROLE IF EXISTS nobody",
        "CREATE ROLE nobody LOGIN PASSWORD 'x'",
        database=database,
    )
    refused(postgres, database, "password authentication failed", database_password="wrong")
    refused(postgres, "nowhere", 'database "nowhere" does not exist')
    refused(postgres, database, "Connection refused|cannot be reached", database_port="1")
    refused(postgres, database, "No table .* matches", table_include_list="public.nothing")
    refused(
        postgres, database, "ALTER ROLE nobody REPLICATION", database_user="nobody",
        database_password="x",
    )  # fmt: skip
    refused(
        postgres, database, "The publication mine does not exist",
        publication_autocreate_mode="disabled", publication_name="mine",
    )  # fmt: skip
    postgres.run("ALTER ROLE nobody REPLICATION", database=database)
    refused(
        postgres, database,
        "lacks .* and SELECT on public.orders and ownership .*CREATE PUBLICATION slot_test",
        database_user="nobody", database_password="x",
    )  # fmt: skip
    assert postgres.run(f"SELECT FROM pg_replication_slots WHERE database='{database}'") == []
    postgres.run("DROP ROLE nobody", database=database)


def test_a_slot_that_is_in_use_is_reported(
    postgres: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "BUSY_TURNS", 2)
    postgres.run(ORDERS, database=database)
    first = Capture(connector(postgres, database, snapshot_mode="no_data")).start()
    try:
        first.poll()
        refused(
            postgres,
            database,
            r"in use by another reader \(PID \d+, role postgres.*: SELECT pg_terminate_backend",
            snapshot_mode="no_data",
        )
    finally:
        first.crash()


def test_a_worker_that_is_asleep_loses_the_slot_to_the_next(
    postgres: Postgres, database: str
) -> None:
    postgres.run(ORDERS, database=database)
    given = {"snapshot_mode": "no_data", "status_update_interval_ms": "200"}
    asleep = Capture(connector(postgres, database, **given)).start()
    awake = Capture(connector(postgres, database, **given))
    try:
        asleep.poll()
        awake.offsets = asleep.offsets
        # From here on nothing polls the first capture.
        awake.start()
        postgres.run("INSERT INTO orders VALUES (1, 'a')", database=database)
        awake.until(1)
    finally:
        awake.crash()
        asleep.crash()


def test_invalid_settings_are_reported_before_anything_is_done(postgres: Postgres) -> None:
    with pytest.raises(ValueError, match="is not a valid regular expression"):
        connector(postgres, "x", table_include_list="(")
    with pytest.raises(
        ValueError, match=re.escape("slot.name must have at most 63 lower-case letters")
    ):
        connector(postgres, "x", slot_name="My-Slot")


def test_a_lost_slot_is_reported_and_a_new_snapshot_offered(
    postgres: Postgres, database: str
) -> None:
    postgres.run(ORDERS, "INSERT INTO orders VALUES (1, 'a'), (2, 'b')", database=database)
    capturing = Capture(connector(postgres, database)).start()
    capturing.until(2)
    capturing.crash()
    postgres.drop_slot(f"slot_{database}")
    postgres.run("DELETE FROM orders WHERE id = 1", database=database)
    with pytest.raises(UserError, match=r"were lost with the slot.*snapshot\.mode=when_needed"):
        capturing.start()
    again = Capture(connector(postgres, database, snapshot_mode="when_needed"))
    again.offsets, again.records = capturing.offsets, capturing.records
    again.start()
    try:
        again.until(2 + 1 + 1)
        assert again.ops() == "rrtr"
        postgres.run("INSERT INTO orders VALUES (3, 'c')", database=database)
        again.until(5)
        assert again.rows("orders") == [{"id": 2, "note": "b"}, {"id": 3, "note": "c"}]
    finally:
        again.crash()


def test_a_slot_that_somebody_else_has_moved_is_a_loss(postgres: Postgres, database: str) -> None:
    postgres.run(ORDERS, database=database)
    capturing = Capture(connector(postgres, database)).start()
    capturing.poll()
    postgres.run("INSERT INTO orders VALUES (1, 'a')", database=database)
    capturing.until(1)
    capturing.crash()
    postgres.run(
        "INSERT INTO orders VALUES (2, 'b')",
        f"SELECT pg_replication_slot_advance('slot_{database}', pg_current_wal_lsn())",
        database=database,
    )
    with pytest.raises(UserError, match="the slot was recreated, or has another reader"):
        capturing.start()


@pytest.mark.parametrize("policy", ["pause", "drop"])
def test_what_a_slot_keeps_back_is_bounded_by_the_policy(
    postgres: Postgres, database: str, policy: str
) -> None:
    postgres.run(ORDERS, database=database)
    given = {
        "slot_lag_max_bytes": "3000000",
        "slot_lag_policy": policy,
        "slot_lag_check_interval_ms": "50",
        "snapshot_mode": "when_needed",
    }
    capturing = Capture(connector(postgres, database, **given)).start()
    try:
        capturing.poll()
        # Do not poll while this is written, like a worker that is busy elsewhere.
        postgres.run(
            "INSERT INTO orders SELECT i, repeat('x', 500) FROM generate_series(1, 10000) i",
            database=database,
        )
        with pytest.raises(UserError, match=f"slot.lag.policy={policy}"):
            repeated(capturing.task._watch.check)
    finally:
        capturing.crash()
    slots = postgres.run(f"SELECT FROM pg_replication_slots WHERE database = '{database}'")
    assert len(slots) == (1 if policy == "pause" else 0)
    if policy == "pause":
        with pytest.raises(UserError, match=r"Increase slot\.lag\.max\.bytes"):
            capturing.start()
        return
    capturing.start()
    capturing.until(10_001)
    capturing.crash()
    assert capturing.ops() == "t" + "r" * 10_000


def test_a_value_that_fits_no_schema_is_reported_with_its_column(
    postgres: Postgres, database: str
) -> None:
    postgres.run("CREATE TABLE odd (id int PRIMARY KEY, n numeric)", database=database)
    capturing = Capture(connector(postgres, database)).start()
    try:
        capturing.poll()
        postgres.run("INSERT INTO odd VALUES (1, 'NaN')", database=database)
        postgres.run("INSERT INTO odd VALUES (2, 2)", database=database)
        capturing.until(2)
        failed, fine = capturing.records
        assert isinstance(failed, FailedRecord)
        assert "cannot convert 'NaN' in column n of public.odd" in failed.error
        assert fine.key == {"id": 2}
    finally:
        capturing.crash()


def test_the_retained_wal_of_a_stopped_capture_is_visible_at_once(
    postgres: Postgres, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.run(ORDERS, database=database)
    capturing = Capture(connector(postgres, database, slot_lag_warn_bytes="1000000")).start()
    capturing.poll()
    capturing.crash()
    postgres.run(
        "INSERT INTO orders SELECT i, repeat('x', 500) FROM generate_series(1, 5000) i",
        database=database,
    )
    capturing.start()
    try:
        capturing.until(5000)
        assert capturing.offset["slot_lag_bytes"] > 1_000_000
        assert "makes PostgreSQL keep" in caplog.text
    finally:
        capturing.crash()

"""One PostgreSQL and one MariaDB for all tests of this folder; tests keep apart by databases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.connect.databases.servers import MariaDb, Postgres, running

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running(Postgres()) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    with running(MariaDb()) as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """A database of the test's own."""
    name = f"test_{next(_numbers)}"
    postgres.run(f"CREATE DATABASE {name}")
    yield name
    for (slot,) in postgres.run(
        f"SELECT slot_name FROM pg_replication_slots WHERE database = '{name}'"
    ):
        postgres.run(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE slot_name = '{slot}'"
        )
        postgres.drop_slot(slot)

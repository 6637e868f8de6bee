"""Fixtures: one PostgreSQL and one MariaDB for all tests of this folder, emptied for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.connect.databases.servers import MariaDb, Postgres, running


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
    """Return the name of an empty database.

    All tests share one, because creating a database takes longer than most of them."""
    name = "test"
    if not postgres.run(f"SELECT FROM pg_database WHERE datname = '{name}'"):
        postgres.run(f"CREATE DATABASE {name}")
    for (publication,) in postgres.run("SELECT pubname FROM pg_publication", database=name):
        postgres.run(f"DROP PUBLICATION {publication}", database=name)
    postgres.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", database=name)
    yield name
    for (slot,) in postgres.run(
        f"SELECT slot_name FROM pg_replication_slots WHERE database = '{name}'"
    ):
        postgres.run(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE slot_name = '{slot}'"
        )
        postgres.drop_slot(slot)

"""A capture by an unprivileged role: each error names the cause and the statement that fixes it.

Every test runs the statements of the messages, as an administrator would copy them, until the
capture starts. A statement that does not help, or a wrong cause, fails the test."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.connect.databases.capture import Capture, connector
from tests.connect.databases.servers import Postgres, running

from ottla.base.errors import UserError
from ottla.connect.connectors.postgres.connection import KEYWORDS, identifier

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text)"
ROW = "INSERT INTO orders VALUES (1, 'a')"
_RUN = re.compile(r"Run as (?:a superuser|its owner): (.*)")
CREATE_PUBLICATION = (
    "CREATE PUBLICATION capture FOR TABLE public.orders WITH (publish_via_partition_root = true);"
)


@pytest.fixture
def shop(postgres: Postgres, database: str) -> Iterator[Shop]:
    found = Shop(postgres, database)
    yield found
    found.close()


class Shop:
    """A database with a table of another owner, and a role that may only connect."""

    def __init__(self, postgres: Postgres, database: str) -> None:
        self.postgres, self.database = postgres, database
        self.message: list[str] = []
        self.run("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN REPLICATION PASSWORD 'x'")
        self.run("GRANT USAGE ON SCHEMA public TO reader", ORDERS, ROW)

    def run(self, *statements: str) -> None:
        self.postgres.run(*statements, database=self.database)

    def refusal(self, **given: str) -> str:
        with pytest.raises(UserError) as raised:
            self._capture(**given).start()
        assert "\n" not in str(raised.value)
        return str(raised.value)

    def helped(self, *causes: str, **given: str) -> Capture:
        """Run the statements that the refusal for each cause suggests, then start a capture."""
        for cause in causes:
            message = self.refusal(**given)
            assert cause in message
            found = _RUN.search(message)
            assert found, message
            self.message += [f"{each.strip()};" for each in found[1].split(";") if each.strip()]
            self.run(*self.message[-found[1].count(";") :])
        return self._capture(**given).start()

    def captures(self, *causes: str, **given: str) -> None:
        """Check that an existing row and one that is inserted later are captured."""
        capture = self.helped(*causes, **given)
        try:
            capture.until(1)
            self.run("INSERT INTO orders VALUES (2, 'b')")
            capture.until(2)
            assert [each.value["after"]["id"] for each in capture.records] == [1, 2]
        finally:
            capture.crash()

    def close(self) -> None:
        self.postgres.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
        )
        for (name,) in self.postgres.run(
            "SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'capture'"
        ):
            self.postgres.drop_slot(name)
        self.run("DROP TABLE IF EXISTS orders CASCADE")
        for (name,) in self.postgres.run(
            "SELECT pubname FROM pg_publication", database=self.database
        ):
            self.run(f"DROP PUBLICATION {name}")
        self.run("DROP OWNED BY reader", "DROP ROLE reader")

    def _capture(self, **given: str) -> Capture:
        properties = {"database_user": "reader", "database_password": "x", "slot_name": "capture"}
        properties["table_include_list"] = "public\\.orders"
        return Capture(connector(self.postgres, self.database, **(properties | given)))


def test_all_that_a_role_lacks_is_one_message_with_all_statements(shop: Shop) -> None:
    shop.run("REVOKE USAGE ON SCHEMA public FROM reader, public")
    shop.captures(
        "lacks USAGE on the schema public and SELECT on public.orders and ownership of "
        "public.orders (needed to add it to the publication capture)"
    )
    assert shop.message == [
        "GRANT USAGE ON SCHEMA public TO reader;",
        "GRANT SELECT ON public.orders TO reader;",
        CREATE_PUBLICATION,
    ]


def test_an_owner_that_may_not_create_publications_is_granted_create(shop: Shop) -> None:
    shop.run("ALTER TABLE orders OWNER TO reader")
    shop.captures(f"lacks CREATE on the database {shop.database}.")
    assert shop.message == [f"GRANT CREATE ON DATABASE {shop.database} TO reader;"]


def test_an_owner_that_may_create_publications_needs_nothing_more(shop: Shop) -> None:
    shop.run(
        "ALTER TABLE orders OWNER TO reader", f"GRANT CREATE ON DATABASE {shop.database} TO reader"
    )
    shop.captures()


def test_a_publication_without_the_table_is_extended(shop: Shop) -> None:
    shop.run("GRANT SELECT ON orders TO reader", "CREATE PUBLICATION capture")
    shop.captures("ownership of the publication capture (needed to add public.orders)")
    assert shop.message == ["ALTER PUBLICATION capture ADD TABLE public.orders;"]


def test_somebody_elses_publication_that_is_missing_is_created(shop: Shop) -> None:
    shop.run("GRANT SELECT ON orders TO reader")
    shop.captures("The publication capture does not exist", publication_autocreate_mode="disabled")
    assert shop.message == [CREATE_PUBLICATION]


def test_somebody_elses_publication_without_the_table_is_extended(shop: Shop) -> None:
    shop.run("GRANT SELECT ON orders TO reader", "CREATE PUBLICATION capture")
    shop.captures(
        "The publication capture does not contain public.orders",
        publication_autocreate_mode="disabled",
    )
    assert shop.message == ["ALTER PUBLICATION capture ADD TABLE public.orders;"]


def test_a_table_that_somebody_elses_publication_lacks_is_noticed(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.run("GRANT SELECT ON orders TO reader", CREATE_PUBLICATION)
    shop.run("CREATE TABLE items (id int PRIMARY KEY)")
    shop.captures(publication_autocreate_mode="disabled", table_include_list="public\\..*")
    assert (
        "the publication capture does not contain public.items, so its changes are not captured; "
        "run: ALTER PUBLICATION capture ADD TABLE public.items;"
    ) in caplog.text


def test_partitions_that_are_published_as_such_are_published_by_their_root(shop: Shop) -> None:
    shop.run(
        "DROP TABLE orders",
        "CREATE TABLE orders (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (100)",
        ROW,
        "GRANT SELECT ON orders TO reader",
        "CREATE PUBLICATION capture FOR TABLE orders",
    )
    shop.captures(
        "The publication capture publishes public.orders by partition",
        publication_autocreate_mode="disabled",
    )


def test_all_tables_need_a_superuser_once(shop: Shop) -> None:
    shop.run("GRANT SELECT ON orders TO reader")
    shop.captures("permission denied", publication_autocreate_mode="all_tables")
    assert shop.message == [
        "CREATE PUBLICATION capture FOR ALL TABLES WITH (publish_via_partition_root = true);"
    ]


def test_rows_that_a_policy_hides_are_no_silent_gap(shop: Shop) -> None:
    shop.run(
        "GRANT SELECT ON orders TO reader",
        CREATE_PUBLICATION,
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
    )
    shop.captures("lacks BYPASSRLS (row-level security hides rows of public.orders)")


def test_errors_of_roles_and_databases_name_the_remedy(shop: Shop) -> None:
    shop.run(
        "ALTER ROLE reader NOLOGIN NOREPLICATION",
        "GRANT SELECT ON orders TO reader",
        CREATE_PUBLICATION,
        f"REVOKE CONNECT ON DATABASE {shop.database} FROM public",
    )
    shop.captures(
        'role "reader" is not permitted to log in. ',
        f'permission denied for database "{shop.database}". ',
        "lacks the REPLICATION attribute",
    )
    assert shop.message == [
        "ALTER ROLE reader LOGIN;",
        f"GRANT CONNECT ON DATABASE {shop.database} TO reader;",
        "ALTER ROLE reader REPLICATION;",
    ]
    assert "Check database.user and database.password" in shop.refusal(database_password="y")
    assert "Check database.dbname" in shop.refusal(database_dbname="replication")
    shop.run(f"GRANT CONNECT ON DATABASE {shop.database} TO public")


def test_a_new_table_without_privileges_is_noticed_and_the_others_continue(shop: Shop) -> None:
    shop.run("GRANT SELECT ON orders TO reader", CREATE_PUBLICATION)
    given = {"table_include_list": "public\\..*", "heartbeat_interval_ms": "100"}
    capture = shop.helped(**given)
    try:
        capture.until(1)
        shop.run("CREATE TABLE items (id int PRIMARY KEY)")
        while not (notices := capture.offset.get("notices", [])):
            capture.poll()
        assert "Run as a superuser: GRANT SELECT ON public.items TO reader; " in notices[0]
        assert "ALTER PUBLICATION capture ADD TABLE public.items;" in notices[0]
        # A restart does not fail because of the missing privilege either.
        capture.crash()
        capture.start()
        shop.run("INSERT INTO orders VALUES (2, 'b')")
        while not any(each.value.get("op") == "c" for each in capture.records):
            capture.poll()
    finally:
        capture.crash()


@pytest.mark.parametrize(
    ("pattern", "made", "message"),
    [
        ("public\\.order", "", "table is public.orders: set table.include.list=public\\\\.orders."),
        ("orders", "", "the nearest table is public.orders"),
        ("sales\\.x", "", "patterns match whole names (SCHEMA.TABLE), and it has public.orders."),
        ("public\\.v", "CREATE VIEW v AS SELECT 1", "public.v of {place} is a view, whose changes"),
        ("public\\.u", "CREATE UNLOGGED TABLE u ()", "public.u of {place} is an unlogged table"),
    ],
)  # fmt: skip
def test_why_no_table_matches_is_reported(
    shop: Shop, pattern: str, made: str, message: str
) -> None:
    if made:
        shop.run(made)
    place = f"{shop.database} at 127.0.0.1:{shop.postgres.port}"
    assert message.format(place=place) in shop.refusal(table_include_list=pattern)


def test_a_partition_is_captured_by_its_root(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (9)",
    )
    message = shop.refusal(table_include_list="public\\.parts_1")
    assert "is a partition of public.parts, whose changes" in message
    assert "set table.include.list=public\\\\.parts." in message


def test_a_database_without_tables_is_named(shop: Shop) -> None:
    shop.run("DROP TABLE orders")
    assert "has no tables. Check database.dbname" in shop.refusal()


def test_slots_of_others_are_named_with_what_to_run(shop: Shop) -> None:
    shop.run(
        "GRANT SELECT ON orders TO reader",
        CREATE_PUBLICATION,
        "SELECT pg_create_logical_replication_slot('capture', 'test_decoding')",
    )
    message = shop.refusal()
    assert "decodes with test_decoding instead of pgoutput" in message
    shop.run(message.rpartition(": ")[2])
    shop.postgres.run("SELECT pg_create_logical_replication_slot('capture', 'pgoutput')")
    message = shop.refusal()
    assert "belongs to another database of this server" in message
    shop.postgres.run(message.rpartition(": ")[2])
    shop.captures()


def test_names_are_quoted_where_postgresql_requires_it(postgres: Postgres) -> None:
    reserved = postgres.run("SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T')")
    assert {word for (word,) in reserved} <= KEYWORDS
    assert [identifier(each) for each in ("orders", "user", "Mixed", 'a"b', "1st")] == [
        "orders", '"user"', '"Mixed"', '"a""b"', '"1st"',
    ]  # fmt: skip


def test_a_server_that_cannot_serve_a_capture_is_reported_with_what_to_set() -> None:
    server = Postgres()
    settings = "wal_level = replica\nmax_replication_slots = 1\nmax_wal_senders = 1\n"
    with open(server.folder / "data" / "postgresql.conf", "a") as file:
        file.write(settings)
    with running(server) as postgres:
        shop = Shop(postgres, "postgres")
        shop.run("GRANT SELECT ON orders TO reader", CREATE_PUBLICATION)
        message = shop.refusal()
        assert "has wal_level=replica, but change capture needs wal_level=logical" in message
        restarted(postgres, message)
        shop.run("SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
        message = shop.refusal()
        assert "all replication slots are in use" in message
        assert "SELECT pg_drop_replication_slot('NAME');" in message
        restarted(postgres, message)
        first = shop.helped()
        message = shop.refusal(slot_name="second")
        assert "max_wal_senders" in message
        first.crash()
        restarted(postgres, message)
        shop.run("DELETE FROM orders WHERE id = 2")
        shop.postgres.drop_slot("capture")
        shop.captures()


def restarted(postgres: Postgres, message: str) -> None:
    statement = re.search(r"Run as a superuser: (ALTER SYSTEM [^;]*;)", message, re.IGNORECASE)
    assert statement, message
    assert message.endswith("and restart PostgreSQL.")
    with open(postgres.folder / "data" / "postgresql.conf", "r+") as file:
        kept = [line for line in file if not line.startswith(statement[1].split()[3])]
        file.seek(0)
        file.writelines(kept)
        file.truncate()
    postgres.run(statement[1])
    postgres.stop()
    postgres.start()

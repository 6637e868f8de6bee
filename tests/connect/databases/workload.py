"""Random transactions on PostgreSQL from several connections at once, and their result.

The database may restart meanwhile. A transaction whose commit was not confirmed may or may not have
happened, so tests take the expected rows from the tables themselves."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from tests.connect.databases.servers import Postgres

TABLES = (
    """CREATE TABLE orders (id int PRIMARY KEY, note text, price numeric(10,2), at timestamptz,
       tags text[], mood mood)""",
    "CREATE TABLE lines (order_id int, number int, what jsonb, PRIMARY KEY (order_id, number))",
    "CREATE TABLE docs (id uuid PRIMARY KEY, title text, body text, data bytea)",
)
SETUP = ("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')", *TABLES)
SELECTS = {
    "orders": "SELECT id, note, price::text, at::text, tags, mood::text FROM orders",
    "lines": "SELECT order_id, number, what::text FROM lines",
    "docs": "SELECT id::text, title, body, data FROM docs",
}


class Workload:
    def __init__(
        self, postgres: Postgres, seed: int, threads: int = 4, database: str = "postgres"
    ) -> None:
        self._postgres = postgres
        self._database = database
        self._chances = [random.Random(seed * 100 + number) for number in range(threads)]
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.changes = [0] * threads
        self.errors: list[str] = []

    def start(self) -> None:
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(len(self._chances))
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._stopping.set()
        for each in self._threads:
            each.join(timeout=120)
            assert not each.is_alive()

    @property
    def count(self) -> int:
        return sum(self.changes)

    def _run(self, number: int) -> None:
        import psycopg

        chance = self._chances[number]
        connection: Any = None
        while not self._stopping.is_set():
            try:
                if connection is None or connection.closed:
                    connection = self._postgres.connect(self._database)
                self.changes[number] += self._transaction(connection, chance)
            except (psycopg.OperationalError, psycopg.IntegrityError):
                # The server restarts, or two transactions collided.
                time.sleep(0.01)
            except psycopg.Error as error:
                self.errors.append(str(error))
                return

    def _transaction(self, connection: Any, chance: random.Random) -> int:
        count = chance.choice((1, 2, 5, 30))
        is_undone = chance.random() < 0.1
        with connection.transaction(force_rollback=is_undone):
            done = sum(self._change(connection, chance) for _ in range(count))
        return 0 if is_undone else done

    def _change(self, connection: Any, chance: random.Random) -> int:
        do = chance.choice((self._orders, self._orders, self._lines, self._docs))
        done: int = do(connection, chance)
        return done

    def _orders(self, connection: Any, chance: random.Random) -> int:
        number, kind = chance.randrange(400), chance.random()
        if kind < 0.25:
            return int(connection.execute("DELETE FROM orders WHERE id = %s", [number]).rowcount)
        if kind < 0.3:
            statement = "UPDATE orders SET id = id + 1000 WHERE id = %s"
            return int(connection.execute(statement, [number % 5]).rowcount)
        row = [
            number,
            chance.choice((None, "", "plain", "tab\tand\\ ž'\"")),
            f"{chance.uniform(-1000, 1000):.2f}",
            chance.choice((None, "2024-02-29 12:34:56.789012+02", "1999-01-01 00:00+00")),
            chance.choice((None, [], ["a", "b,c"], ['quo"te', "x"])),
            chance.choice((None, "sad", "ok", "happy")),
        ]
        statement = (
            "INSERT INTO orders (id, note, price, at, tags, mood) VALUES (%s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (id) DO UPDATE SET "
            "note = excluded.note, price = excluded.price, at = excluded.at, "
            "tags = excluded.tags, mood = excluded.mood"
        )
        return int(connection.execute(statement, row).rowcount)

    def _lines(self, connection: Any, chance: random.Random) -> int:
        order = chance.randrange(50)
        if chance.random() < 0.3:
            statement = "DELETE FROM lines WHERE order_id = %s"
            return int(connection.execute(statement, [order]).rowcount)
        statement = (
            "INSERT INTO lines SELECT %s, i, jsonb_build_object('n', i * %s) "
            "FROM generate_series(1, %s) i ON CONFLICT (order_id, number) "
            "DO UPDATE SET what = excluded.what"
        )
        row = [order, chance.randrange(1000), chance.randrange(1, 6)]
        return int(connection.execute(statement, row).rowcount)

    def _docs(self, connection: Any, chance: random.Random) -> int:
        identity = f"00000000-0000-0000-0000-{chance.randrange(40):012d}"
        kind = chance.random()
        if kind < 0.5:
            statement = "UPDATE docs SET title = %s WHERE id = %s"
            row: list[Any] = [f"title {chance.random()}", identity]
        elif kind < 0.6:
            statement, row = "DELETE FROM docs WHERE id = %s", [identity]
        else:
            statement = (
                "INSERT INTO docs VALUES (%s, 'new', %s, %s) ON CONFLICT (id) DO UPDATE SET "
                "body = excluded.body"
            )
            body = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=4000))
            row = [identity, body, chance.randbytes(3000)]
        return int(connection.execute(statement, row).rowcount)


def tables_of(postgres: Postgres, database: str = "postgres") -> dict[str, list[Any]]:
    return {
        name: sorted(postgres.run(select, database=database), key=repr)
        for name, select in SELECTS.items()
    }

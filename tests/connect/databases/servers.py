"""Real PostgreSQL and MariaDB servers for tests, each with its own folder and port.

They come from the system's packages. `make test` installs these where it may; otherwise the tests
are skipped."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 90.0
POSTGRES_SETTINGS = """
wal_level = logical
fsync = off
listen_addresses = '127.0.0.1'
max_replication_slots = 10
max_wal_senders = 10
shared_buffers = 32MB
max_connections = 40
"""


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _user(name: str) -> dict[str, Any]:
    """Return the `Popen` arguments that run a server as this user, because servers refuse root."""
    if os.getuid() != 0:
        return {}
    found = pwd.getpwnam(name)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def _folder(name: str, owner: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"ottla-{name}-"))
    if os.getuid() == 0:
        shutil.chown(folder, owner)
    return folder


class Postgres:
    """PostgreSQL server of a test.

    `connect` returns a psycopg connection; `password` is that of the role postgres."""

    password = "let me in"

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        initdb = str(found[-1]) if found else shutil.which("initdb")
        if initdb is None:
            pytest.skip("PostgreSQL is not installed (make test installs it, as root)")
        pytest.importorskip("psycopg")
        self._bin = Path(initdb).parent
        self.folder = _folder("postgres", "postgres")
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        secret = self.folder / "secret"
        secret.write_text(self.password)
        secret.chmod(0o644)
        command = [
            initdb, "-D", self.folder / "data", "-U", "postgres", "--pwfile", secret, "-E", "UTF8",
            "--locale=C", "--auth-host=scram-sha-256", "--auth-local=trust", "--no-sync",
        ]  # fmt: skip
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, **_user("postgres")
        )
        with open(self.folder / "data" / "postgresql.conf", "a") as file:
            file.write(f"{POSTGRES_SETTINGS}port = {self.port}\n")
            file.write(f"unix_socket_directories = '{self.folder}'\n")

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.folder / "data"],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                **_user("postgres"),
            )
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.connect().close()
                return
            except Exception:
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
                assert time.monotonic() < until, "PostgreSQL does not start"
                time.sleep(0.05)

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server; `crash` stops it immediately, without a checkpoint."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            self._process.wait(timeout=PATIENCE_S)
            self._process = None

    def close(self) -> None:
        self.stop(crash=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str = "postgres", **options: Any) -> Any:
        import psycopg

        options = {"user": "postgres", "password": self.password, **options}
        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname=database, autocommit=True,
            connect_timeout=10, **options,
        )  # fmt: skip

    def run(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run the statements and return the rows of the last one."""
        with self.connect(database) as connection:
            rows: list[tuple[Any, ...]] = []
            for each in statements:
                cursor = connection.execute(each)
                rows = cursor.fetchall() if cursor.description is not None else []
            return rows

    def drop_slot(self, name: str) -> None:
        """Drop a replication slot, with retries while a disconnected client still holds it."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.run(f"SELECT pg_drop_replication_slot('{name}')")
                return
            except Exception:
                assert time.monotonic() < until
                time.sleep(0.05)

    def url(self, database: str = "postgres") -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}"


class MariaDb:
    password = "open sesame"

    def __init__(self) -> None:
        server, install = shutil.which("mariadbd"), shutil.which("mariadb-install-db")
        server = server or next((p for p in ("/usr/sbin/mariadbd",) if Path(p).exists()), None)
        if server is None or install is None:
            pytest.skip("MariaDB is not installed (make test installs it, as root)")
        pytest.importorskip("pymysql")
        self._server = server
        self.folder = _folder("mariadb", "mysql")
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        command = [
            install, "--no-defaults", f"--datadir={self.folder}/data", "--skip-test-db",
            "--auth-root-authentication-method=normal", f"--tmpdir={self.folder}",
        ]  # fmt: skip
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=self.folder, **_user("mysql"),
        )  # fmt: skip

    def start(self) -> None:
        command = [
            self._server, "--no-defaults", f"--datadir={self.folder}/data",
            f"--socket={self.folder}/socket", f"--port={self.port}", "--bind-address=127.0.0.1",
            f"--pid-file={self.folder}/pid", "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=32M", "--skip-name-resolve", f"--tmpdir={self.folder}",
        ]  # fmt: skip
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
                **_user("mysql"),
            )  # fmt: skip
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._connect_root().close()
                break
            except Exception:
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
                assert time.monotonic() < until, "MariaDB does not start"
                time.sleep(0.05)
        with self._connect_root() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4")
            cursor.execute(
                f"CREATE USER IF NOT EXISTS ottla@'127.0.0.1' IDENTIFIED BY '{self.password}'"
            )
            cursor.execute("GRANT ALL ON *.* TO ottla@'127.0.0.1'")

    def _connect_root(self) -> Any:
        import pymysql

        return pymysql.connect(unix_socket=f"{self.folder}/socket", user="root", autocommit=True)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        import pymysql

        with (
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="ottla", password=self.password,
                database="shop", autocommit=True, charset="utf8mb4",
            ) as connection,
            connection.cursor() as cursor,
        ):  # fmt: skip
            rows: list[tuple[Any, ...]] = []
            for each in statements:
                cursor.execute(each)
                rows = list(cursor.fetchall())
            return rows

    def stop(self, *, crash: bool = False) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if crash else signal.SIGTERM)
            self._process.wait(timeout=PATIENCE_S)
            self._process = None

    def close(self) -> None:
        self.stop(crash=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"jdbc:mariadb://127.0.0.1:{self.port}/shop"


@contextmanager
def running(server: Any) -> Iterator[Any]:
    try:
        server.start()
        yield server
    finally:
        server.close()

"""Memory that an open connection costs the broker."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator

from bench.measure import Figure, resident_bytes
from bench.startup import _ask
from ottla.testing.broker import BrokerProcess

COUNT = 5_000


def run() -> Iterator[Figure]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with BrokerProcess() as broker:
        warm = [_open(broker.port) for _ in range(10)]
        before = resident_bytes(broker.pid)
        opened = [_open(broker.port) for _ in range(COUNT)]
        time.sleep(0.5)
        each = (resident_bytes(broker.pid) - before) / COUNT / 1_000
        yield Figure(f"each of {COUNT} open connections", each, "KB", budget=20.0)
        for connection in [*warm, *opened]:
            connection.close()


def _open(port: int) -> socket.socket:
    """Open a connection and exchange ApiVersions on it, as a client does."""
    connection = socket.create_connection(("127.0.0.1", port))
    _ask(connection, 18, 3, {"client_software_name": "bench", "client_software_version": "1"})
    return connection

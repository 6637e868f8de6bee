"""A broker without free file descriptors rejects new clients, serves the others, and recovers."""

from __future__ import annotations

import os
import resource
import socket
import struct

from tests.raw_client import RawClient, eventually

from ottla.testing.broker import BrokerProcess

# ApiVersions version 0: API key, version, correlation ID, no client ID.
QUESTION = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def test_running_out_of_files_sheds_load_and_recovers() -> None:
    with BrokerProcess() as broker, RawClient(broker.port) as friend:
        friend.create_topic("t")
        assert friend.produce("t", [(None, b"before", (), 1)]).error_code == 0
        before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        limit = (limit_that_leaves(30, broker.pid), before[1])
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limit)
        visitors = [visit(broker.port) for _ in range(100)]
        assert 5 < sum(map(is_served, visitors)) < 100
        assert friend.produce("t", [(None, b"meanwhile", (), 1)]).error_code == 0
        for visitor in visitors:
            visitor.close()
        eventually(lambda: is_served(visit(broker.port)), bool)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)


def limit_that_leaves(count: int, pid: int) -> int:
    """Return the limit on open files under which the process can open exactly `count` more."""
    taken = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    limit = 0
    while count:
        count -= limit not in taken
        limit += 1
    return limit


def visit(port: int) -> socket.socket:
    visitor = socket.create_connection(("127.0.0.1", port))
    visitor.settimeout(2)
    return visitor


def is_served(visitor: socket.socket) -> bool:
    try:
        visitor.sendall(QUESTION)
        return bool(visitor.recv(1))
    except OSError:
        return False

"""Startup: time until a new broker acknowledges a record, and memory of an idle one."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from bench.measure import Figure, resident_bytes
from ottla.testing.broker import BrokerProcess
from ottla.wire import codec
from ottla.wire.records.builder import build_batch

ROUNDS = 5
IDLE_AFTER_S = 2.0


def run() -> Iterator[Figure]:
    taken = sorted(_start_to_first_record() for _ in range(ROUNDS))
    yield Figure("start to first acknowledged record", taken[ROUNDS // 2], "s", budget=0.5)
    with BrokerProcess() as broker:
        time.sleep(IDLE_AFTER_S)
        megabytes = resident_bytes(broker.pid) / 1_000_000
        yield Figure("memory of an idle broker", megabytes, "MB", budget=60)


def _start_to_first_record() -> float:
    """Return the seconds from the start of a broker to its first acknowledged record.

    It uses a bare socket, so that no client's retry interval counts as the broker's.
    """
    broker = BrokerProcess(port=_free_port(), overrides={"auto.create.topics.enable": "true"})
    try:
        start = time.monotonic()
        broker.start(wait=False)
        connection = _connect(broker.port)
        name = "first"
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        _ask(connection, 19, 7, {"topics": [topic], "timeout_ms": 5_000})
        data = {"index": 0, "records": build_batch([(None, b"hello", (), 0)])}
        topics = [{"name": name, "partition_data": [data]}]
        response = _ask(connection, 0, 9, {"acks": -1, "timeout_ms": 5_000, "topic_data": topics})
        taken = time.monotonic() - start
        error = response.responses[0].partition_responses[0].error_code
        assert error == 0, f"the broker rejected the record with error {error}"
        connection.close()
        return taken
    finally:
        broker.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _connect(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.002)


def _ask(connection: socket.socket, api_key: int, version: int, body: dict[str, Any]) -> Any:
    connection.sendall(b"".join(codec.encode_request(api_key, version, 1, "bench", body)))
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return codec.decode_response(api_key, version, memoryview(_receive(connection, size)))[1]


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data

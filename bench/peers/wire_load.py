"""Load that costs the client next to nothing: prepared requests, sent over plain sockets.

A client such as librdkafka builds and parses every record, so on two cores a benchmark with it
measures the client. Here all requests have the same bytes, and of a fetched batch only the header
is parsed. Produce v9 and Fetch v12 are used, which both brokers support.
"""

from __future__ import annotations

import random
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.wire import codec
from ottla.wire.records.builder import build_batch

Address = tuple[str, int]
Tls = ssl.SSLContext | None
PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
PRODUCE_VERSION, FETCH_VERSION, CREATE_TOPICS_VERSION = 9, 12, 7
IN_FLIGHT = 5
TIMEOUT_S = 120.0
PARTITION_MAX_BYTES = 1_048_576
_BATCH_HEAD = struct.Struct(">qi11xi")
"""Base offset, length of the rest of the batch, …, last offset delta."""
_WORDS = 400


def values(size_bytes: int, count: int) -> list[bytes]:
    """Return texts that compress about as well as logs and JSON, the same in every run."""
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(_WORDS)]
    made = []
    for _ in range(count):
        text = f'{{"id": {chance.randrange(10**9)}, "text": "'
        while len(text) < size_bytes:
            text += chance.choice(words) + " "
        made.append(text[:size_bytes].encode())
    return made


def batch_of(size_bytes: int, batch_bytes: int, compression: str) -> tuple[bytes, int]:
    """Return a batch of about `batch_bytes` before compression, and its number of records."""
    count = max(1, batch_bytes // (size_bytes + 10))
    now = int(time.time() * 1000)
    records = [(None, value, (), now) for value in values(size_bytes, count)]
    return build_batch(records, compression=compression), count


def produce(
    leaders: Mapping[int, Address],
    topic: str,
    batch: bytes,
    batches: int,
    acks: int = -1,
    tls: Tls = None,
) -> float:
    """Produce a number of batches to each partition, and return the seconds taken.

    There is a connection per leader with five requests in flight, each with a batch for every
    partition of that leader.
    """
    by_leader: dict[Address, list[int]] = {}
    for partition, address in leaders.items():
        by_leader.setdefault(address, []).append(partition)
    start = time.perf_counter()
    _all(
        [
            (lambda at=address, of=partitions: _produce(at, topic, of, batch, batches, acks, tls))
            for address, partitions in by_leader.items()
        ]
    )
    return time.perf_counter() - start


def _produce(
    address: Address,
    topic: str,
    partitions: Sequence[int],
    batch: bytes,
    batches: int,
    acks: int,
    tls: Tls,
) -> None:
    request = produce_request(topic, dict.fromkeys(partitions, batch), acks)
    with Connection(address, tls) as connection:
        for number in range(batches):
            if number >= IN_FLIGHT:
                _check_produced(connection.receive())
            connection.send(request)
        for _ in range(min(batches, IN_FLIGHT)):
            _check_produced(connection.receive())


def consume(
    leaders: Mapping[int, Address], topic: str, until: Mapping[int, int], tls: Tls = None
) -> float:
    """Fetch everything from the beginning to the given offsets, and return the seconds taken."""
    by_leader: dict[Address, list[int]] = {}
    for partition, address in leaders.items():
        by_leader.setdefault(address, []).append(partition)
    start = time.perf_counter()
    _all(
        [
            (lambda at=address, of=partitions: _consume(at, topic, {p: until[p] for p in of}, tls))
            for address, partitions in by_leader.items()
        ]
    )
    return time.perf_counter() - start


def _consume(address: Address, topic: str, until: Mapping[int, int], tls: Tls) -> None:
    offsets = dict.fromkeys(until, 0)
    with Connection(address, tls) as connection:
        while offsets:
            connection.send(fetch_request(topic, offsets))
            response = codec.decode_response(FETCH, FETCH_VERSION, connection.receive())[1]
            for found in response.responses[0].partitions:
                _check(found.error_code)
                if found.records:
                    offsets[found.partition_index] = _next_offset(memoryview(found.records))
            offsets = {each: at for each, at in offsets.items() if at < until[each]}


def _next_offset(records: memoryview) -> int:
    """Return the offset after the last complete batch."""
    position, following = 0, -1
    while position + 61 <= len(records):
        base, length, last_delta = _BATCH_HEAD.unpack_from(records, position)
        if position + 12 + length > len(records):
            break
        following = base + last_delta + 1
        position += 12 + length
    return following


def requests_per_s(
    leaders: Mapping[int, Address], topic: str, request_of_one: bytes, seconds: float
) -> float:
    """Return the rate of one-record requests, with a connection per partition, five in flight."""
    selector = selectors.DefaultSelector()
    connections = []
    for partition, address in leaders.items():
        connection = Connection(address)
        connections.append(connection)
        request = produce_request(topic, {partition: request_of_one}, 1)
        selector.register(connection.socket, selectors.EVENT_READ, (connection, request))
        connection.send(request * IN_FLIGHT)
    responses, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for key, _ in selector.select(1.0):
            connection, request = key.data
            found = connection.received()
            for frame in found:
                _check_produced(frame)
            responses += len(found)
            if found:
                connection.send(request * len(found))
    for connection in connections:
        connection.close()
    return responses / elapsed


# -------------------------------------------------------------------------------------- requests


def produce_request(topic: str, batches: Mapping[int, bytes], acks: int) -> bytes:
    data = [{"index": partition, "records": batch} for partition, batch in batches.items()]
    body = {
        "acks": acks,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }
    return b"".join(codec.encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", body))


def fetch_request(topic: str, offsets: Mapping[int, int]) -> bytes:
    partitions = [
        {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": PARTITION_MAX_BYTES,
        }
        for partition, offset in offsets.items()
    ]
    body = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 52_428_800,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": partitions}],
    }
    return b"".join(codec.encode_request(FETCH, FETCH_VERSION, 1, "bench", body))


def produced_error(frame: memoryview) -> int:
    response = codec.decode_response(PRODUCE, PRODUCE_VERSION, frame)[1]
    for each in response.responses:
        for partition in each.partition_responses:
            if partition.error_code:
                return int(partition.error_code)
    return 0


def _check_produced(frame: memoryview) -> None:
    _check(produced_error(frame))


def _check(error: int) -> None:
    if error:
        raise RuntimeError(f"the broker returned error {error}")


class Connection:
    """Blocking connection that sends and receives frames."""

    def __init__(self, address: Address, tls: Tls = None) -> None:
        self.socket = socket.create_connection(address, TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self._buffer = bytearray()

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive(self) -> memoryview:
        """Return the next frame, without its size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return memoryview(self._exactly(size))

    def received(self) -> list[memoryview]:
        """Return all frames that one read completes."""
        data = self.socket.recv(262_144)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._buffer += data
        frames, position = [], 0
        while position + 4 <= len(self._buffer):
            (size,) = struct.unpack_from(">i", self._buffer, position)
            if position + 4 + size > len(self._buffer):
                break
            frames.append(memoryview(bytes(self._buffer[position + 4 : position + 4 + size])))
            position += 4 + size
        del self._buffer[:position]
        return frames

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, position = memoryview(data), 0
        while position < size:
            count = self.socket.recv_into(view[position:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            position += count
        return data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _all(works: Sequence[Any]) -> None:
    """Run functions concurrently, each in a thread, and raise the first failure."""
    if len(works) == 1:
        works[0]()
        return
    failures: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]

"""Startup: time from nothing to the first acknowledged record, and memory, idle and after load."""

from __future__ import annotations

import time
from pathlib import Path

from bench.peers import topics, wire_load
from bench.peers.brokers import HOST, Peer, both, megabytes_of
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale
from ottla.wire import codec

TIMEOUT_S = 300.0
IDLE_AFTER_S = 5.0
RETRY_S = 0.005
TOPIC_EXISTS = 36
LOAD_SIZE, LOAD_PARTITIONS = 1_000, 4


def run(scale: Scale) -> list[Row]:
    rows = Rows("startup")
    for number in range(scale.starts):
        with both(start=False) as peers:
            for peer in peers if number % 2 else peers[::-1]:
                seconds = start_to_first_ack(peer)
                name = "start to the first acknowledged record, empty directory"
                rows.add(name, "s", seconds, is_ours=peer.is_ours, higher_is_better=False)
                time.sleep(IDLE_AFTER_S)
                memory(rows, peer, "memory, idle after start")
                if not number:
                    _load(rows, peer, scale.load_bytes)
                peer.stop()
    return rows.whole()


def start_to_first_ack(peer: Peer, topic: str = "first", *, create: bool = True) -> float:
    """Return the seconds from the start of a peer to its first acknowledged record.

    It uses a bare socket that retries at once, so that no client's retry interval is included.
    """
    start = time.perf_counter()
    peer.start(wait=False)
    deadline = start + TIMEOUT_S
    request = wire_load.produce_request(topic, {0: wire_load.batch_of(100, 1, "none")[0]}, -1)
    is_created = not create
    while time.perf_counter() < deadline:
        try:
            with wire_load.Connection((HOST, next(iter(peer.ports.values())))) as connection:
                while time.perf_counter() < deadline:
                    if not is_created:
                        is_created = _create(connection, topic)
                    else:
                        connection.send(request)
                        if not wire_load.produced_error(connection.receive()):
                            return time.perf_counter() - start
                    time.sleep(RETRY_S)
        except (ConnectionError, TimeoutError):
            time.sleep(RETRY_S)
    raise TimeoutError(f"{peer.name} acknowledged nothing within {TIMEOUT_S:.0f} s")


def _create(connection: wire_load.Connection, topic: str) -> bool:
    topic_body = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    body = {"topics": [topic_body], "timeout_ms": 5_000}
    key, version = wire_load.CREATE_TOPICS, wire_load.CREATE_TOPICS_VERSION
    connection.send(b"".join(codec.encode_request(key, version, 1, "bench", body)))
    response = codec.decode_response(key, version, connection.receive())[1]
    return response.topics[0].error_code in (0, TOPIC_EXISTS)


def memory(rows: Rows, peer: Peer, what: str) -> None:
    rows.add(what, "MB", megabytes_of(peer), is_ours=peer.is_ours, higher_is_better=False)


def _load(rows: Rows, peer: Peer, load_bytes: int) -> None:
    batch, records = wire_load.batch_of(LOAD_SIZE, 65_536, "none")
    batches = load_bytes // (len(batch) * LOAD_PARTITIONS)
    with topics.topic(peer.bootstrap, "load", LOAD_PARTITIONS) as (name, leaders):
        wire_load.produce(leaders, name, batch, batches)
        wire_load.consume(leaders, name, dict.fromkeys(leaders, batches * records))
        peak = sum(map(_peak_bytes, peer.pids())) / 1_000_000
    rows.add("peak memory under load", "MB", peak, is_ours=peer.is_ours, higher_is_better=False)


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not report VmHWM")

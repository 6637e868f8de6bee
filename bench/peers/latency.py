"""End-to-end latency at fixed rates, and the rate of one-record requests.

The latency of a record is the time from `produce` in one process to `poll` in another.
"""

from __future__ import annotations

import multiprocessing
import statistics
import struct
import time
from collections.abc import Mapping

from bench.peers import topics, wire_load
from bench.peers.brokers import Peer, alternating, both, cpu_of
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale

RATES = (1_000, 5_000, 10_000)
SIZE_BYTES = 1_000
CONNECTIONS = 8
WARM_SHARE = 0.2
"""Share of the records, at the beginning, that do not count."""
NO_SECURITY: Mapping[str, str] = {}
_STAMP = struct.Struct(">d")
_fork = multiprocessing.get_context("fork")


def run(scale: Scale) -> list[Row]:
    rows = Rows("latency")
    with both() as peers:
        for rate in RATES:
            for number, peer in alternating(peers, scale.rounds):
                with topics.topic(peer.bootstrap, "latency", 1) as (name, _):
                    found = end_to_end_ms(peer.bootstrap, name, rate, scale.latency_s)
                if number:
                    add_quantiles(rows, peer, f"end to end, 1 KB, {rate:,}/s", found)
        for number, peer in alternating(peers, scale.rounds):
            _requests(rows if number else Rows(""), peer, scale.requests_s)
    return rows.whole()


def add_quantiles(rows: Rows, peer: Peer, what: str, found: list[float]) -> None:
    cut = statistics.quantiles(found, n=1_000)
    for name, value in (("p50", cut[499]), ("p99", cut[989]), ("p99.9", cut[998])):
        rows.add(f"{what}, {name}", "ms", value, is_ours=peer.is_ours, higher_is_better=False)


def end_to_end_ms(
    bootstrap: str,
    topic: str,
    rate: int,
    seconds: float,
    security: Mapping[str, str] = NO_SECURITY,
) -> list[float]:
    from confluent_kafka import Consumer, TopicPartition

    total = int(rate * seconds)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            **security,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(0.5)
    feeder = _fork.Process(target=_feed, args=(bootstrap, topic, rate, total, security))
    feeder.start()
    found: list[float] = []
    deadline = time.monotonic() + seconds + 60
    while len(found) < total:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append((time.time() - _STAMP.unpack_from(message.value())[0]) * 1000)
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {total} records were read")
    feeder.join()
    consumer.close()
    return found[int(total * WARM_SHARE) :]


def _feed(bootstrap: str, topic: str, rate: int, total: int, security: Mapping[str, str]) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 0,
            "acks": "all",
            "log_level": 2,
            **security,
        }
    )
    producer.list_topics(topic, timeout=30)
    padding = bytes(SIZE_BYTES - _STAMP.size)
    start, sent = time.perf_counter(), 0
    while sent < total:
        due = min(total, int((time.perf_counter() - start) * rate) + 1)
        while sent < due:
            producer.produce(topic, _STAMP.pack(time.time()) + padding, partition=0)
            sent += 1
        producer.poll(0)
        ahead = start + sent / rate - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
    producer.flush(60)


def _requests(rows: Rows, peer: Peer, seconds: float) -> None:
    batch, _ = wire_load.batch_of(100, 1, "none")
    with topics.topic(peer.bootstrap, "one-record", CONNECTIONS) as (name, leaders):
        before = cpu_of(peer)
        rate = wire_load.requests_per_s(leaders, name, batch, seconds)
        spent = cpu_of(peer) - before
    what = f"one-record requests, {CONNECTIONS} connections"
    rows.add(what, "requests/s", rate, is_ours=peer.is_ours)
    per_cpu = rate * seconds / max(spent, 0.01)
    rows.add(f"{what}: per CPU second", "requests", per_cpu, is_ours=peer.is_ours)

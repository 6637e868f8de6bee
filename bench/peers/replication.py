"""Three brokers: replicated produce with acks=all, and failover of a leader."""

from __future__ import annotations

import time

from bench.peers import topics, wire_load
from bench.peers.brokers import Peer, alternating, both, cpu_of
from bench.peers.latency import add_quantiles, end_to_end_ms
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale

REPLICAS = 3
PARTITIONS = 6
SIZE_BYTES = 1_000
BATCH_BYTES = 65_536
RATE = 1_000
SEND_EVERY_S = 0.005
LONGEST_S = 120.0
MB, GB = 1_000_000, 1_000_000_000


def run(scale: Scale) -> list[Row]:
    rows = Rows("replication")
    with both(nodes=REPLICAS) as peers:
        for number, peer in alternating(peers, scale.rounds):
            _throughput(rows if number else Rows(""), peer, scale.load_bytes)
        for number, peer in alternating(peers, scale.rounds):
            with topics.topic(peer.bootstrap, "latency", 1, REPLICAS) as (name, _):
                found = end_to_end_ms(peer.bootstrap, name, RATE, scale.latency_s)
            if number:
                add_quantiles(rows, peer, f"end to end, RF 3, acks=all, 1 KB, {RATE:,}/s", found)
        for peer in peers:
            topics.create(peer.bootstrap, "failover", 1, REPLICAS)
            for _ in range(scale.failovers):
                topics.wait_until_in_sync(peer.bootstrap, "failover", REPLICAS)
                seconds = failover_s(peer, "failover")
                rows.add(
                    "kill -9 of a leader to the next acknowledged record",
                    "s",
                    seconds,
                    is_ours=peer.is_ours,
                    higher_is_better=False,
                )
                peer.start()
    return rows.whole()


def _throughput(rows: Rows, peer: Peer, load_bytes: int) -> None:
    batch, records = wire_load.batch_of(SIZE_BYTES, BATCH_BYTES, "none")
    batches = max(1, load_bytes // (records * SIZE_BYTES * PARTITIONS))
    total_bytes = batches * records * SIZE_BYTES * PARTITIONS
    with topics.topic(peer.bootstrap, "replicated", PARTITIONS, REPLICAS) as (name, leaders):
        topics.wait_until_in_sync(peer.bootstrap, name, REPLICAS)
        before = cpu_of(peer)
        seconds = wire_load.produce(leaders, name, batch, batches)
        spent = cpu_of(peer) - before
    what = "produce, sockets, RF 3, acks=all, 1000 B"
    rows.add(what, "MB/s", total_bytes / MB / seconds, is_ours=peer.is_ours)
    rows.add(
        f"{what}: CPU of all",
        "CPU s/GB",
        spent / (total_bytes / GB),
        is_ours=peer.is_ours,
        higher_is_better=False,
    )


def failover_s(peer: Peer, topic: str) -> float:
    """Return the time from the kill of a leader to the next acknowledged record.

    A producer with short retry intervals sends all the time. The first acknowledgement of a record
    that was sent after the kill counts.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": peer.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "message.timeout.ms": int(LONGEST_S * 1000),
            "log_level": 0,
        }
    )
    killed_at, acked_at = 0.0, 0.0

    def acknowledged(sent_at: float, error: object) -> None:
        nonlocal acked_at
        if error is None and killed_at and sent_at > killed_at and not acked_at:
            acked_at = time.perf_counter()

    def send() -> None:
        sent_at = time.perf_counter()
        producer.produce(
            topic,
            b"x" * 100,
            partition=0,
            on_delivery=lambda error, message: acknowledged(sent_at, error),
        )
        producer.poll(SEND_EVERY_S)

    steady_until = time.perf_counter() + 1.0
    while time.perf_counter() < steady_until:
        send()
    leader = topics.leader_id(peer.bootstrap, topic)
    peer.kill(leader)
    killed_at = time.perf_counter()
    while not acked_at:
        send()
        if time.perf_counter() - killed_at > LONGEST_S:
            raise TimeoutError(f"{peer.name}: no new leader within {LONGEST_S:.0f} s")
    producer.flush(30)
    return acked_at - killed_at

"""Produce and consume: throughput, and CPU time of the broker.

*Sockets* is load that was prepared beforehand (`wire_load`), so that the broker is the limit.
*librdkafka* is what a program with confluent-kafka sees; it builds and parses every record, and
takes most of two cores itself. Batches have 64 KB, topics 4 partitions, and acks=all.
"""

from __future__ import annotations

from functools import partial

from bench.load import in_processes
from bench.measure import touch_memory
from bench.peers import topics, wire_load
from bench.peers.brokers import Peer, alternating, both, cpu_of
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale

PARTITIONS = 4
BATCH_BYTES = 65_536
SIZES = (100, 1_000)
CODECS = ("none", "lz4", "zstd")
READS = 4
"""Number of reads: a single one takes only a few ticks of the CPU clock."""
MB, GB = 1_000_000, 1_000_000_000


def run(scale: Scale) -> list[Row]:
    rows = Rows("throughput")
    with both() as peers:
        for size in SIZES:
            for codec in CODECS:
                for number, peer in alternating(peers, scale.rounds):
                    _sockets(rows if number else Rows(""), peer, size, codec, scale.load_bytes)
        for size in SIZES:
            for codec in CODECS:
                for number, peer in alternating(peers, scale.rounds):
                    _librdkafka(
                        rows if number else Rows(""), peer, size, codec, scale.librdkafka_records
                    )
    return rows.whole()


def _sockets(rows: Rows, peer: Peer, size: int, codec: str, load_bytes: int) -> None:
    batch, records = wire_load.batch_of(size, BATCH_BYTES, codec)
    batches = max(1, load_bytes // (records * size * PARTITIONS))
    total_bytes = batches * records * size * PARTITIONS
    what = f"{size} B, {codec}"
    touch_memory(2 * load_bytes)  # memory of the page cache, so that the host's work is not charged
    with topics.topic(peer.bootstrap, "sockets", PARTITIONS) as (name, leaders):
        before = cpu_of(peer)
        seconds = wire_load.produce(leaders, name, batch, batches)
        written_s = cpu_of(peer) - before
        _add_rate(rows, peer, f"produce, sockets, {what}", total_bytes, seconds)
        _add_cpu(rows, peer, f"produce, sockets, {what}", total_bytes, written_s)
        ends = dict.fromkeys(leaders, batches * records)
        before = cpu_of(peer)
        seconds = sum(wire_load.consume(leaders, name, ends) for _ in range(READS)) / READS
        read_s = (cpu_of(peer) - before) / READS
        _add_rate(rows, peer, f"consume, sockets, {what}", total_bytes, seconds)
        _add_cpu(rows, peer, f"consume, sockets, {what}", total_bytes, read_s)
        _add_cpu(rows, peer, f"produce and consume once, {what}", total_bytes, written_s + read_s)


def _add_rate(rows: Rows, peer: Peer, what: str, total_bytes: int, seconds: float) -> None:
    rows.add(what, "MB/s", total_bytes / MB / seconds, is_ours=peer.is_ours)


def _add_cpu(rows: Rows, peer: Peer, what: str, total_bytes: int, cpu_s: float) -> None:
    rows.add(
        f"{what}: broker's CPU",
        "CPU s/GB",
        max(cpu_s, 0.01) / (total_bytes / GB),
        is_ours=peer.is_ours,
        higher_is_better=False,
    )


def _librdkafka(rows: Rows, peer: Peer, size: int, codec: str, wanted: dict[int, int]) -> None:
    what, records = f"{size} B, {codec}", wanted[size]
    with topics.topic(peer.bootstrap, "librdkafka", PARTITIONS) as (name, _):
        produce = partial(_produce, peer.bootstrap, name, size, codec, records)
        consume = partial(_consume, peer.bootstrap, name, records)
        for verb, work in (("produce", produce), ("consume", consume)):
            (seconds,) = in_processes(1, work)
            rate = records * size / MB / seconds
            rows.add(f"{verb}, librdkafka, {what}", "MB/s", rate, is_ours=peer.is_ours)


def _produce(bootstrap: str, topic: str, size: int, codec: str, records: int, number: int) -> float:
    import time

    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "linger.ms": 5,
            "acks": "all",
            "compression.type": codec,
            "queue.buffering.max.messages": 200_000,
        }
    )
    values = wire_load.values(size, 500)
    per_batch = max(1, BATCH_BYTES // (size + 20))
    start = time.perf_counter()
    for count in range(records):
        while True:
            try:
                producer.produce(
                    topic, values[count % 500], partition=count // per_batch % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.005)
        if not count % 1_000:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError("records were not acknowledged within 120 s")
    return time.perf_counter() - start


def _consume(bootstrap: str, topic: str, records: int, number: int) -> float:
    """Return the seconds from the first record to the last.

    The client's own pauses are disabled (queued.min.messages, fetch.queue.backoff.ms).
    """
    import time

    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": 200_000,
            "fetch.queue.backoff.ms": 1,
            "fetch.message.max.bytes": wire_load.PARTITION_MAX_BYTES,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    deadline = time.monotonic() + 120
    seen, start = 0, 0.0
    while seen < records:
        found = len(consumer.consume(5_000, 0.2))
        if found and not start:
            start = time.perf_counter()
        seen += found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{seen} of {records} records were read")
    seconds = time.perf_counter() - start
    consumer.close()
    return max(seconds, 1e-3)

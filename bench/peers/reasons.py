"""Why a row is below 1, where it may be: said beneath the table, and only while it is so."""

from __future__ import annotations

import re

from bench.peers.rows import Row

REASONS = (
    (
        "throughput",
        r"(sockets).*(100 B|1000 B), (none|lz4|zstd)$",
        "One Python thread serves all connections of a broker, where Kafka uses several on both "
        "cores; what it spends per GB is in the rows of CPU. More brokers on the machine scale up.",
    ),
    (
        "throughput",
        r"consume, sockets.*CPU$",
        "Kafka hands files to the socket (`sendfile`) without looking at them; Ottla reads each "
        "batch and verifies its CRC before it is sent, and pays for the copy.",
    ),
    (
        "throughput",
        r"librdkafka",
        "The client takes most of both cores here, and the broker what is left.",
    ),
    (
        "latency",
        r"one-record requests, \d+ connections$",
        "One broker has one thread for requests, in Python; Kafka's threads share both cores.",
    ),
    (
        "latency",
        r"end to end",
        "The broker shares two cores with both clients, and Python takes longer than compiled Java "
        "for each of many small requests.",
    ),
    (
        "replication",
        r"produce|end to end",
        "Three brokers and ZooKeeper share two cores with the clients; each copy of a batch costs "
        "its broker a request in Python.",
    ),
    (
        "clients",
        r"record by record",
        "Others make and read records in C; ours does so in Python. Tables are the way around: no "
        "Python object per record.",
    ),
    (
        "spark",
        r"through a stream",
        "A micro-batch asks Python for its offsets, starts readers and writers there and commits "
        "there: steps between processes that a connector in the JVM does not have.",
    ),
    (
        "spark",
        r".",
        "Rows cross between the JVM and Python workers by Arrow; Spark's own connector stays in "
        "the JVM. No jar, predicate pushdown and group offsets are what one gets for it.",
    ),
    ("partitions", r".", "One Python process does it; Kafka's threads share both cores."),
    ("restart", r".", "One Python process does it; Kafka's threads share both cores."),
)


def reason(row: Row) -> str | None:
    for part, pattern, text in REASONS:
        if row.part == part and re.search(pattern, row.name):
            return text
    return None

"""Explanations of ratios below 1, or far above it, printed beneath the table while they apply."""

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
        "Both hand files to the socket (`sendfile`); what is left is the time that a request takes "
        "in Python, and how often the system wakes up broker and client for each other.",
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
        "A micro-batch asks Python for its offsets, reads and writes and commits there: steps "
        "between processes that a connector in the JVM does not have.",
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
FAR_ABOVE = 50
FAR_ABOVE_REASONS = (
    (
        "latency",
        r"end to end",
        "At this rate records queue at Kafka, which answers one request of a connection at a time; "
        "a ratio of a queue to none says little. The lower rates compare the brokers.",
    ),
    (
        "replication",
        r"end to end",
        "Three JVMs, and clients, are more than two cores carry: records queue at Kafka. On a "
        "larger machine the ratio is smaller.",
    ),
)


def far_above_reason(row: Row) -> str | None:
    return _found(FAR_ABOVE_REASONS, row) if row.ratio >= FAR_ABOVE else None


def below_reason(row: Row) -> str | None:
    return _found(REASONS, row) if row.ratio < 1 else None


def _found(reasons: tuple[tuple[str, str, str], ...], row: Row) -> str | None:
    for part, pattern, text in reasons:
        if row.part == part and re.search(pattern, row.name):
            return text
    return None

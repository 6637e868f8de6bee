"""Explanations of ratios below 1, or far above it, printed beneath the table while they apply."""

from __future__ import annotations

import re

from bench.peers.rows import Row

REASONS = (
    (
        "throughput",
        r"(sockets).*(100 B|1000 B), (none|lz4|zstd)$",
        "One Python thread serves all connections of an Ottla broker; Kafka uses several threads "
        "on both cores. The CPU rows show the cost per GB. Several brokers per machine "
        "scale further.",
    ),
    (
        "throughput",
        r"consume, sockets.*CPU$",
        "Both brokers send files with `sendfile`. The remaining cost is the handling of requests "
        "in Python, and the wake-ups of broker and client.",
    ),
    (
        "throughput",
        r"librdkafka",
        "The client uses most of both cores, which leaves little for the broker.",
    ),
    (
        "latency",
        r"one-record requests, \d+ connections$",
        "An Ottla broker handles requests in one Python thread; Kafka's threads share both cores.",
    ),
    (
        "latency",
        r"end to end",
        "The broker shares two cores with both clients, and Python needs more time than compiled "
        "Java for each of many small requests.",
    ),
    (
        "replication",
        r"produce|end to end",
        "Three brokers and ZooKeeper share two cores with the clients, and each replica of a batch "
        "costs its broker a request in Python.",
    ),
    (
        "clients",
        r"record by record",
        "Other clients encode and decode records in C; Ottla does so in Python. The table API "
        "avoids a Python object per record.",
    ),
    (
        "spark",
        r"through a stream",
        "Each micro-batch plans offsets, reads, writes and commits in Python processes. A "
        "connector inside the JVM does not need these steps between processes.",
    ),
    (
        "spark",
        r".",
        "Rows cross between the JVM and Python workers as Arrow data; Spark's own connector stays "
        "in the JVM. In return, Ottla's needs no jar and has predicate pushdown and group offsets.",
    ),
    (
        "partitions",
        r".",
        "Ottla does this in one Python process; Kafka's threads share both cores.",
    ),
    ("restart", r".", "Ottla does this in one Python process; Kafka's threads share both cores."),
)
FAR_ABOVE = 50
FAR_ABOVE_REASONS = (
    (
        "latency",
        r"end to end",
        "At this rate records queue in Kafka, which handles one request per connection at a time, "
        "so the ratio mostly measures the queue. Compare the brokers at the lower rates.",
    ),
    (
        "replication",
        r"end to end",
        "Three JVMs and the clients overload two cores, so records queue in Kafka. On a larger "
        "machine the ratio is smaller.",
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

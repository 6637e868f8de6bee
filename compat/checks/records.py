"""Checks of Java's producers and consumers."""

from __future__ import annotations

import json
import re

from compat.checks.tools import Tools

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def performance_of_producers(tools: Tools) -> None:
    """kafka-producer-perf-test sends with acks 0, 1 and all, with and without idempotence."""
    name = tools.new_topic(2)
    for properties in (
        ("acks=all", "enable.idempotence=true"),
        ("acks=1", "enable.idempotence=false", "batch.size=65536", "linger.ms=5"),
        ("acks=0", "enable.idempotence=false"),
    ):
        line = tools.produce(name, 10_000, 200, *properties)
        assert re.search(r"records/sec \(.* MB/sec\), .* ms avg latency", line), line
    assert sum(tools.offsets(name).values()) == 30_000


def every_codec_comes_back(tools: Tools) -> None:
    """kafka-producer-perf-test sends with every codec, and kafka-console-consumer reads it all."""
    name = tools.new_topic()
    for codec in CODECS:
        tools.produce(name, 500, 300, f"compression.type={codec}")
    output = tools.succeed(
        "kafka-console-consumer",
        *("--topic", name, "--partition", "0", "--offset", "earliest", "--max-messages", "2500"),
        *("--timeout-ms", "20000", "--command-property", "check.crcs=true"),
    )
    assert len(output.lines) == 2_500, output.err
    assert {len(line) for line in output.lines} == {300}


def keys_headers_and_nulls(tools: Tools) -> None:
    """kafka-console-producer sends keys, headers and nulls; kafka-console-consumer shows them."""
    name = tools.new_topic()
    tools.succeed(
        "kafka-console-producer",
        *("--topic", name, "--reader-property", "parse.key=true"),
        *("--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL"),
        stdin="h1:v1,h2:v2\tkey-1\tvalue one\nh:\tkey-2\tNULL\nh:x\tNULL\tü → 日本\n",
    )
    lines = tools.succeed(
        "kafka-console-consumer",
        *("--topic", name, "--partition", "0", "--offset", "0", "--max-messages", "3"),
        *(
            each
            for what in ("key", "headers", "offset", "partition")
            for each in ("--formatter-property", f"print.{what}=true")
        ),
        *("--timeout-ms", "20000"),
    ).lines
    assert lines == [
        "Partition:0\tOffset:0\th1:v1,h2:v2\tkey-1\tvalue one",
        "Partition:0\tOffset:1\th:\tkey-2\tnull",
        "Partition:0\tOffset:2\th:x\tnull\tü → 日本",
    ], lines


def reads_from_an_offset(tools: Tools) -> None:
    """kafka-console-consumer reads a partition from an offset, also with read_committed."""
    name = tools.new_topic(2)
    text = "".join(f"line {number}\n" for number in range(50))
    tools.succeed("kafka-console-producer", "--topic", name, stdin=text)
    ends = tools.offsets(name)
    assert sum(ends.values()) == 50, ends
    partition, end = max(ends.items(), key=lambda item: item[1])
    lines = tools.succeed(
        "kafka-console-consumer",
        *("--topic", name, "--partition", str(partition), "--offset", str(end - 2)),
        *("--max-messages", "2", "--timeout-ms", "20000", "--isolation-level", "read_committed"),
    ).lines
    assert len(lines) == 2, lines
    assert set(lines) <= set(text.splitlines()), lines


def verifiable_producer(tools: Tools) -> None:
    """kafka-verifiable-producer sees every record acknowledged, in order."""
    name = tools.new_topic()
    output = tools.succeed("kafka-verifiable-producer", "--topic", name, "--max-messages", "300")
    events = [json.loads(line) for line in output.lines]
    offsets = [each["offset"] for each in events if each["name"] == "producer_send_success"]
    assert offsets == list(range(300)), offsets
    assert events[-1]["name"] == "tool_data", events[-1]
    assert events[-1]["acked"] == 300, events[-1]


def performance_of_consumers(tools: Tools) -> None:
    """kafka-consumer-perf-test reads a topic in a group."""
    tools.require_groups()
    name = tools.new_topic(2)
    tools.fill(name, 20_000, 500)
    output = tools.succeed(
        "kafka-consumer-perf-test",
        *("--topic", name, "--num-records", "20000", "--timeout", "20000"),
    )
    header, values = (line.split(", ") for line in output.lines[-2:])
    row = dict(zip(header, values, strict=True))
    assert int(row["data.consumed.in.nMsg"]) == 20_000, row


def a_group_reads_a_topic(tools: Tools) -> None:
    """kafka-console-consumer reads a topic in a group and resumes from its offsets."""
    tools.require_groups()
    name = tools.new_topic()
    read = (
        *("kafka-console-consumer", "--topic", name, "--group", "compat-readers"),
        *("--timeout-ms", "20000", "--command-property", "auto.offset.reset=earliest"),
    )
    tools.succeed("kafka-console-producer", "--topic", name, stdin="one\ntwo\nthree\n")
    assert tools.succeed(*read, "--max-messages", "2").lines == ["one", "two"]
    assert tools.succeed(*read, "--max-messages", "1").lines == ["three"]
    listed = tools.succeed("kafka-consumer-groups", "--list").lines
    assert "compat-readers" in listed, listed
    described = tools.succeed("kafka-consumer-groups", "--describe", "--group", "compat-readers")
    assert re.search(rf"compat-readers\s+{name}\s+0\s+3\s+3\s+0\s", described.out), described.out


def verifiable_consumer(tools: Tools) -> None:
    """kafka-verifiable-consumer reads each record exactly once, in a group."""
    tools.require_groups()
    name = tools.new_topic()
    tools.fill(name, 1_000)
    output = tools.succeed(
        "kafka-verifiable-consumer",
        *("--topic", name, "--group-id", "compat-verifiable", "--max-messages", "1000"),
        *("--reset-policy", "earliest"),
    )
    events = [json.loads(line) for line in output.lines]
    consumed = sum(each["count"] for each in events if each["name"] == "records_consumed")
    assert consumed == 1_000, consumed


CHECKS = [
    performance_of_producers,
    every_codec_comes_back,
    keys_headers_and_nulls,
    reads_from_an_offset,
    verifiable_producer,
    performance_of_consumers,
    a_group_reads_a_topic,
    verifiable_consumer,
]

"""Interoperability of our client and tools with others: all read the same, whichever wrote it.

The others are librdkafka (confluent-kafka), kafka-python, and Java's console tools.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import kafka

import ottla
from compat.checks.tools import Tools
from compat.contents import read_records
from compat.java import TIMEOUT_S

SOURCE = Path(__file__).parents[2] / "src"
PARTITIONS = 6
COUNT = 200
FIRST_TIMESTAMP = int(time.time() * 1000) - 3_600_000
"""One hour ago: distinct from now, and within the range that any broker accepts."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHOW_ALL = (
    "print.timestamp=true", "print.partition=true", "print.offset=true", "print.headers=true",
    "print.key=true", "key.separator=|",
)  # fmt: skip


class SeenRecord(NamedTuple):
    """Record as every client must see it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _records() -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]]:
    """Return records of key, value, headers and timestamp.

    They are text, because Java's console tools read and show text.
    """
    return [
        (
            f"key-{number % 50}-é".encode(),
            f"value {number}".encode(),
            [("h", b"%d" % number), ("again", b"x"), ("again", b"y")],
            FIRST_TIMESTAMP + number,
        )
        for number in range(COUNT)
    ]


# ------------------------------------------------------------------------------------ readers


def _read_by_ours(tools: Tools, topic: str) -> list[SeenRecord]:
    found: list[SeenRecord] = []
    with ottla.Consumer(tools.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in range(PARTITIONS)])
        while len(found) < COUNT:
            records = consumer.poll(TIMEOUT_S)
            assert records, f"only {len(found)} records were read"
            found += [
                SeenRecord(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                for r in records
            ]
    return sorted(found, key=lambda seen: seen[:2])


def _read_by_librdkafka(tools: Tools, topic: str) -> list[SeenRecord]:
    partitions = [(topic, partition) for partition in range(PARTITIONS)]
    contents = read_records(tools.bootstrap, partitions, "read_committed")
    return sorted(
        (
            SeenRecord(partition, r.offset, r.timestamp[1], r.key, r.value, r.headers)
            for (_, partition), records in contents.items()
            for r in records
        ),
        key=lambda seen: seen[:2],
    )


def _read_by_kafka_python(tools: Tools, topic: str) -> list[SeenRecord]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=tools.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
        found = []
        for record in consumer:
            headers = tuple((key, value) for key, value in record.headers)
            found.append(
                SeenRecord(
                    record.partition, record.offset, record.timestamp, record.key, record.value,
                    headers,
                )
            )  # fmt: skip
            if len(found) == COUNT:
                break
    finally:
        consumer.close()
    return sorted(found, key=lambda seen: seen[:2])


def _shown_by(run: Callable[..., str], topic: str) -> list[str]:
    """Return everything that a console consumer shows of a topic."""
    properties = [word for each in SHOW_ALL for word in ("--formatter-property", each)]
    shown = run(
        "kafka-console-consumer",
        *("--topic", topic, "--from-beginning", "--max-messages", str(COUNT)),
        *("--timeout-ms", str(int(TIMEOUT_S * 1000)), *properties),
    )
    return sorted(shown.splitlines())


def _line(seen: SeenRecord) -> str:
    headers = ",".join(f"{key}:{(value or b'null').decode()}" for key, value in seen.headers)
    key = (seen.key or b"null").decode()
    value = (seen.value or b"null").decode()
    return (
        f"CreateTime:{seen.timestamp}|Partition:{seen.partition}|Offset:{seen.offset}|"
        f"{headers or 'NO_HEADERS'}|{key}|{value}"
    )


def _our_tool(tools: Tools) -> Callable[..., str]:
    """Return a function that runs our tool of a given name."""

    def run(tool: str, *arguments: str, stdin: str = "") -> str:
        module = f"ottla.cli.{tool.replace('-', '_')}"
        result = subprocess.run(
            [sys.executable, "-c", f"from {module} import main; main()", *tools.where, *arguments],
            input=stdin.encode(),
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert not result.returncode, result.stderr.decode()
        return result.stdout.decode()

    return run


def _java_tool(tools: Tools) -> Callable[..., str]:
    return lambda tool, *arguments, stdin="": tools.succeed(tool, *arguments, stdin=stdin).out


# ------------------------------------------------------------------------------------- checks


def everybody_reads_what_ours_writes(tools: Tools) -> None:
    """Records of our producer, in every codec, are the same to all who read them."""
    for codec in CODECS:
        name = tools.new_topic(PARTITIONS)
        _write_by_ours(tools, name, compression_type=codec)
        expected = _read_by_ours(tools, name)
        assert {(seen.key, seen.value, seen.timestamp) for seen in expected} == {
            (key, value, timestamp) for key, value, _, timestamp in _records()
        }
        assert _read_by_librdkafka(tools, name) == expected
        assert _read_by_kafka_python(tools, name) == expected
    assert _shown_by(_java_tool(tools), name) == sorted(map(_line, expected))
    assert _shown_by(_our_tool(tools), name) == sorted(map(_line, expected))


def ours_reads_what_everybody_writes(tools: Tools) -> None:
    """Records of librdkafka, kafka-python and Java's console producer are the same to ours."""
    for write in (_write_by_librdkafka, _write_by_kafka_python, _write_by_java):
        name = tools.new_topic(PARTITIONS)
        write(tools, name)
        expected = _read_by_librdkafka(tools, name)
        assert len(expected) == COUNT, len(expected)
        assert _read_by_ours(tools, name) == expected, write.__name__


def keys_lie_on_the_same_partitions(tools: Tools) -> None:
    """A key is on the same partition whichever client writes it."""
    places: dict[str, dict[bytes | None, int]] = {}
    for write in (_write_by_ours, _write_by_librdkafka, _write_by_kafka_python, _write_by_java):
        name = tools.new_topic(PARTITIONS)
        write(tools, name)
        places[write.__name__] = {
            seen.key: seen.partition for seen in _read_by_librdkafka(tools, name)
        }
    expected = places["_write_by_java"]
    assert len(set(expected.values())) == PARTITIONS, expected
    for writer, found in places.items():
        assert found == expected, writer


def console_tools_are_alike(tools: Tools) -> None:
    """Our console producer and consumer behave like Java's with the same options."""
    lines = "a:1,b:\tk\tv one\nNULL\tNULL\tNULL\nc:NULL\tk2\té → 日本\n"
    reading = (
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
    )
    showing = [
        word
        for each in (*SHOW_ALL, "null.literal=-", "headers.separator=;")
        for word in ("--formatter-property", each)
    ]
    for write in (_our_tool(tools), _java_tool(tools)):
        name = tools.new_topic()
        write("kafka-console-producer", "--topic", name, *reading, stdin=lines)
        read = (
            *("kafka-console-consumer", "--topic", name, "--partition", "0", "--offset", "0"),
            *("--max-messages", "3", "--timeout-ms", "20000"),
        )
        plain = _java_tool(tools)(*read)
        assert plain.splitlines() == ["v one", "null", "é → 日本"], plain
        assert _our_tool(tools)(*read) == plain
        ours, theirs = _our_tool(tools)(*read, *showing), _java_tool(tools)(*read, *showing)
        assert ours == theirs, f"ours: {ours}\nJava's: {theirs}"


def committed_offsets_are_shown_alike(tools: Tools) -> None:
    """Our OffsetsMessageFormatter prints what Java's prints."""
    tools.require_groups()
    name = tools.new_topic()
    tools.fill(name, 5)
    group = f"shown-{name}"
    with ottla.Consumer(tools.bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.assign([(name, 0)])
        assert consumer.poll(TIMEOUT_S)
        consumer.commit()
    read = (
        *("kafka-console-consumer", "--topic", "__consumer_offsets", "--from-beginning"),
        *("--timeout-ms", "15000"),
        *("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"),
    )
    # Java's prints the objects without separators, ours one per line.
    objects = _java_tool(tools)(*read).replace('}{"key"', '}\n{"key"').splitlines()
    theirs = [each for each in objects if group in each]
    ours = [line for line in _our_tool(tools)(*read).splitlines() if group in line]
    assert theirs, f"Java's shows no group {group}"
    assert ours == theirs, f"Java's: {theirs}\nours: {ours}"


# ------------------------------------------------------------------------------------ writers


def _write_by_ours(tools: Tools, topic: str, **properties: str) -> None:
    with ottla.Producer(tools.bootstrap, **properties) as producer:
        sent = [
            producer.send(topic, value, key=key, headers=headers, timestamp=timestamp)
            for key, value, headers, timestamp in _records()
        ]
        for future in sent:
            future.result(TIMEOUT_S)


def _write_by_librdkafka(tools: Tools, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": tools.bootstrap, "partitioner": "murmur2_random"}
    )
    for key, value, headers, timestamp in _records():
        producer.produce(topic, value, key, headers=headers, timestamp=timestamp)
    assert producer.flush(TIMEOUT_S) == 0


def _write_by_kafka_python(tools: Tools, topic: str) -> None:
    producer: Any = kafka.KafkaProducer(bootstrap_servers=tools.bootstrap)
    try:
        for key, value, headers, timestamp in _records():
            producer.send(topic, value, key, headers=headers, timestamp_ms=timestamp)
        producer.flush(TIMEOUT_S)
    finally:
        producer.close()


def _write_by_java(tools: Tools, topic: str) -> None:
    """Write with the console producer, which cannot set timestamps."""
    lines = []
    for key, value, headers, _ in _records():
        shown = ",".join(f"{name}:{content.decode()}" for name, content in headers)
        lines.append(f"{shown}\t{(key or b'').decode()}\t{(value or b'').decode()}\n")
    tools.succeed(
        "kafka-console-producer",
        *("--topic", topic, "--reader-property", "parse.key=true"),
        *("--reader-property", "parse.headers=true"),
        stdin="".join(lines),
    )


CHECKS = [
    everybody_reads_what_ours_writes,
    ours_reads_what_everybody_writes,
    keys_lie_on_the_same_partitions,
    console_tools_are_alike,
    committed_offsets_are_shown_alike,
]

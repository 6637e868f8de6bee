"""Checks of kafka-get-offsets and kafka-delete-records."""

from __future__ import annotations

import json

from compat.checks.tools import Tools

FAR_FUTURE = "4102444800000"


def lists_offsets_by_every_spec(tools: Tools) -> None:
    """kafka-get-offsets returns offsets for every kind of time, by name and by number."""
    name = tools.new_topic(2)
    tools.fill(name, 1_000)
    latest = tools.offsets(name)
    assert sum(latest.values()) == 1_000, latest
    assert tools.offsets(name, "--time", "-1") == tools.offsets(name, "--time", "latest") == latest
    for earliest in ("earliest", "-2", "earliest-local", "-4", "0"):
        assert tools.offsets(name, "--time", earliest) == {0: 0, 1: 0}, earliest
    for largest in ("max-timestamp", "-3"):
        found = tools.offsets(name, "--time", largest)
        assert all(0 <= offset < latest[index] for index, offset in found.items()), found
        assert found.keys() == latest.keys()
    for nothing in (FAR_FUTURE, "latest-tiered", "-5"):
        assert tools.offsets(name, "--time", nothing) == {}, nothing


def lists_offsets_of_some_partitions(tools: Tools) -> None:
    """kafka-get-offsets returns the offsets of the requested partitions only."""
    name = tools.new_topic(4)
    assert tools.offsets(name, "--partitions", "1,3") == {1: 0, 3: 0}
    lines = tools.succeed("kafka-get-offsets", "--topic-partitions", f"{name}:1-3").lines
    assert lines == [f"{name}:1:0", f"{name}:2:0"], lines
    missing = tools.run("kafka-get-offsets", "--topic", "no-such-topic")
    assert missing.code == 1, missing.all


def finds_a_record_by_its_time(tools: Tools) -> None:
    """kafka-get-offsets finds the first record at or after a time."""
    name = tools.new_topic(message_timestamp_type="LogAppendTime")
    send = ("kafka-console-producer", "--topic", name)
    tools.succeed(*send, stdin="first\nsecond\n")
    tools.succeed(*send, stdin="third\n")
    lines = tools.succeed(
        "kafka-console-consumer",
        *("--topic", name, "--partition", "0", "--offset", "earliest", "--max-messages", "3"),
        *("--formatter-property", "print.timestamp=true"),
    ).lines
    times = [int(line.split("\t")[0].removeprefix("LogAppendTime:")) for line in lines]
    assert times == sorted(times), times
    assert tools.offsets(name, "--time", str(times[2])) == {0: times.index(times[2])}
    assert tools.offsets(name, "--time", str(times[1] + 1)) == {0: 2}
    assert tools.offsets(name, "--time", str(times[2] + 1)) == {}


def deletes_records(tools: Tools) -> None:
    """kafka-delete-records advances the log start offset of a partition."""
    name = tools.new_topic(2)
    tools.fill(name, 2_000)
    latest = tools.offsets(name)
    plan = tools.scratch / "delete-records.json"
    partitions = [
        {"topic": name, "partition": 0, "offset": 10},
        {"topic": name, "partition": 1, "offset": -1},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    output = tools.succeed("kafka-delete-records", "--offset-json-file", str(plan)).out
    assert f"partition: {name}-0\tlow_watermark: 10" in output, output
    assert f"partition: {name}-1\tlow_watermark: {latest[1]}" in output, output
    assert tools.offsets(name, "--time", "earliest") == {0: 10, 1: latest[1]}
    partitions[0]["offset"] = latest[0] + 1
    plan.write_text(json.dumps({"version": 1, "partitions": partitions[:1]}))
    refused = tools.run("kafka-delete-records", "--offset-json-file", str(plan))
    assert "OffsetOutOfRangeException" in refused.all, refused.all


CHECKS = [
    lists_offsets_by_every_spec,
    lists_offsets_of_some_partitions,
    finds_a_record_by_its_time,
    deletes_records,
]

"""kafka-console-producer and kafka-console-consumer against a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.integration.cli.running import Fail, Run, running_on, tool

from ottla.testing.broker import BrokerProcess, _environment

TIMEOUT_S = 30.0
FROM_BEGINNING = ("--from-beginning", "--timeout-ms", "10000")


def test_lines_become_records_and_records_lines(succeed: Run, topic: str) -> None:
    succeed("console-producer", "--topic", topic, stdin="one\ntwo\n\n")
    read = succeed("console-consumer", "--topic", topic, *FROM_BEGINNING, "--max-messages", "3")
    assert read.out == "one\ntwo\n\n"
    assert read.err == "Processed a total of 3 messages\n"


def test_keys_and_headers_go_there_and_back(succeed: Run, topic: str) -> None:
    reading = {
        "parse.key": "true", "key.separator": ":", "parse.headers": "true",
        "headers.delimiter": "|", "headers.key.separator": "=", "null.marker": "NULL",
    }  # fmt: skip
    options = [word for pair in reading.items() for word in ("--property", "=".join(pair))]
    lines = "a=1,b=NULL|k:v\nNULL|NULL:NULL\n"
    succeed("console-producer", "--topic", topic, *options, "--sync", stdin=lines)
    shown = [
        word
        for name in ("key", "headers", "offset", "partition")
        for word in ("--formatter-property", f"print.{name}=true")
    ]
    read = succeed(
        "console-consumer", "--topic", topic, *FROM_BEGINNING, "--max-messages", "2", *shown
    )
    assert read.lines == [
        "Partition:0\tOffset:0\ta:1,b:null\tk\tv",
        "Partition:0\tOffset:1\tNO_HEADERS\tnull\tnull",
    ]
    as_json = succeed(
        "console-consumer", "--topic", topic, *FROM_BEGINNING, "--max-messages", "2", "--json"
    )
    first, second = map(json.loads, as_json.lines)
    assert (first["key"], first["headers"]) == ("k", [["a", "1"], ["b", None]])
    assert (second["key"], second["value"], second["offset"]) == (None, None, 1)


def test_a_partition_is_read_from_an_offset(succeed: Run, fail: Fail, topic: str) -> None:
    succeed("topics", "--create", "--topic", topic, "--partitions", "2")
    succeed("console-producer", "--topic", topic, "--compression-codec", "zstd", stdin="a\nb\nc\n")
    records = [
        json.loads(line)
        for line in succeed(
            "console-consumer", "--topic", topic, *FROM_BEGINNING, "--max-messages", "3", "--json"
        ).lines
    ]
    last = records[-1]
    where = ("--topic", topic, "--partition", str(last["partition"]))
    read = succeed(
        "console-consumer", *where, "--offset", str(last["offset"]), "--max-messages", "1"
    )
    assert read.out == f"{last['value']}\n"
    ended = succeed("console-consumer", *where, "--offset", "latest", "--timeout-ms", "300")
    assert (ended.out, ended.err) == ("", "Processed a total of 0 messages\n")
    for arguments, message in (
        (("--offset", "-5"), "The provided offset value '-5' is incorrect"),
        (("--offset", "1", "--from-beginning"), "from-beginning and offset cannot be specified"),
        (("--group", "g"), "group and partition cannot be specified together"),
    ):
        assert message in fail("console-consumer", *where, *arguments)
    assert "The partition is required" in fail(
        "console-consumer", "--topic", topic, "--offset", "1"
    )
    assert "Exactly one of --topic and --include" in fail("console-consumer")


def test_a_group_resumes_after_what_was_printed(succeed: Run, topic: str) -> None:
    succeed("console-producer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(10)))
    options = ("--topic", topic, "--group", f"group-of-{topic}", *FROM_BEGINNING)
    first = succeed("console-consumer", *options, "--max-messages", "4")
    assert first.lines == ["0", "1", "2", "3"]
    rest = succeed("console-consumer", *options, "--max-messages", "6")
    assert rest.lines == ["4", "5", "6", "7", "8", "9"]


def test_a_pattern_reads_many_topics(succeed: Run, topic: str) -> None:
    for number in range(2):
        succeed("console-producer", "--topic", f"{topic}-many-{number}", stdin=f"{number}\n")
    read = succeed(
        "console-consumer", "--include", f"{topic}-many-.*", *FROM_BEGINNING, "--max-messages", "2"
    )
    assert sorted(read.lines) == ["0", "1"]


def test_what_groups_committed_is_shown(succeed: Run, topic: str) -> None:
    succeed("console-producer", "--topic", topic, stdin="a\n")
    group = f"shown-{topic}"
    options = ("--topic", topic, "--group", group, *FROM_BEGINNING, "--max-messages", "1")
    succeed("console-consumer", *options)
    read = succeed(
        "console-consumer", "--topic", "__consumer_offsets", "--from-beginning",
        "--timeout-ms", "1500",
        "--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
    )  # fmt: skip
    found = [json.loads(line) for line in read.lines if f'"group":"{group}"' in line]
    assert found[-1]["key"]["data"] == {"group": group, "topic": topic, "partition": 0}
    assert found[-1]["value"]["data"]["offset"] == 1


def test_a_record_that_cannot_be_shown_ends_it_or_is_skipped(
    succeed: Run, fail: Fail, topic: str
) -> None:
    succeed("console-producer", "--topic", topic, stdin="four\nno number\nfive\n")
    options = ("--topic", topic, *FROM_BEGINNING, "--value-deserializer", "integer")
    message = fail("console-consumer", *options)
    assert f"Cannot format the record at offset 1 of {topic}-0: an integer has 4 bytes" in message
    read = succeed("console-consumer", *options, "--skip-message-on-error", "--max-messages", "3")
    assert read.lines == [str(int.from_bytes(b"four", "big")), str(int.from_bytes(b"five", "big"))]
    assert f"Skipped the record at offset 1 of {topic}-0: an integer has 4 bytes" in read.err


def test_properties_come_from_files_and_options(
    succeed: Run, fail: Fail, topic: str, tmp_path: Path
) -> None:
    client, reader = tmp_path / "client.properties", tmp_path / "reader.properties"
    client.write_text("compression.type=gzip\nacks=1\n")
    reader.write_text("parse.key=true\nkey.separator=;\n")
    options = ("--topic", topic, "--producer.config", str(client), "--reader-config", str(reader))
    succeed("console-producer", *options, "--producer-property", "linger.ms=0", stdin="k;v\n")
    assert "acks" in fail("console-producer", *options, "--request-required-acks", "2", stdin="")
    assert "Unknown reader property" in fail(
        "console-producer", *options, "--property", "nonsense=1", stdin=""
    )
    consumer = tmp_path / "consumer.properties"
    consumer.write_text(f"group.id=of-{topic}\nauto.offset.reset=earliest\n")
    reading = ("--topic", topic, "--consumer.config", str(consumer), "--timeout-ms", "10000")
    shown = ("--max-messages", "1", "--property", "print.key=true")
    assert succeed("console-consumer", *reading, *shown).lines == ["k\tv"]
    assert "do not match" in fail("console-consumer", *reading, "--group", "another")
    assert "Can't simultaneously" in fail(
        "console-consumer", *reading, "--from-beginning",
        "--consumer-property", "auto.offset.reset=latest",
    )  # fmt: skip


def test_what_cannot_be_sent_is_reported_and_the_rest_is_sent(
    broker: BrokerProcess, succeed: Run, topic: str
) -> None:
    command = tool(
        "console-producer", "--broker-list", broker.bootstrap, "--topic", topic,
        "--command-property", "max.request.size=500",
    )  # fmt: skip
    lines = b"first\n" + b"x" * 1000 + b"\nlast\n"
    ran = subprocess.run(
        command, input=lines, env=_environment(), capture_output=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert b"Error when sending message to topic" in ran.stderr
    assert b"value: 1000 bytes" in ran.stderr
    read = succeed("console-consumer", "--topic", topic, *FROM_BEGINNING, "--max-messages", "2")
    assert read.lines == ["first", "last"]


def test_brokers_that_are_not_there_are_named() -> None:
    for name, more in (
        ("console-producer", ("--max-block-ms", "500")),
        ("console-consumer", ("--command-property", "default.api.timeout.ms=500")),
    ):
        command = tool(name, "--bootstrap-server", "127.0.0.1:1", "--topic", "t", *more)
        ran = subprocess.run(
            command, input=b"x\n", env=_environment(), capture_output=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 1
        assert b"127.0.0.1:1" in ran.stderr
        assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_commits_what_it_printed_and_prints_the_count(
    broker: BrokerProcess, succeed: Run, topic: str, number: int, code: int
) -> None:
    succeed("console-producer", "--topic", topic, stdin="a\nb\n")
    group = f"interrupted-{topic}"
    command = tool(
        "console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--group", group, "--from-beginning",
    )  # fmt: skip
    with subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
        time.sleep(0.2)  # most likely it is polling again; the test holds either way
        process.send_signal(number)
        _, message = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code
    assert message == b"Processed a total of 2 messages\n"
    succeed("console-producer", "--topic", topic, stdin="c\n")
    options = ("--topic", topic, "--group", group, *FROM_BEGINNING, "--max-messages", "1")
    assert succeed("console-consumer", *options).lines == ["c"]


def test_an_interrupted_producer_has_sent_what_it_read(
    broker: BrokerProcess, succeed: Run, topic: str
) -> None:
    command = tool("console-producer", "--bootstrap-server", broker.bootstrap, "--topic", topic)
    with subprocess.Popen(
        command, env=_environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"typed\n")
        process.stdin.flush()
        read = succeed("console-consumer", "--topic", topic, *FROM_BEGINNING, "--max-messages", "1")
        assert read.lines == ["typed"]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_reader_that_has_enough_is_no_failure_to_speak_of(
    broker: BrokerProcess, succeed: Run, topic: str
) -> None:
    succeed("console-producer", "--topic", topic, stdin="line\n" * 50_000)
    command = tool(
        "console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        *FROM_BEGINNING, "--max-messages", "50000",
    )  # fmt: skip
    reading, writing = os.pipe()
    with subprocess.Popen(
        command, env=_environment(), stdout=writing, stderr=subprocess.PIPE
    ) as process:
        os.close(writing)
        assert os.read(reading, 5) == b"line\n"
        os.close(reading)
        _, message = process.communicate(timeout=TIMEOUT_S)
    assert message.startswith(b"Processed a total of ")
    assert len(message.splitlines()) == 1


def test_a_pipe_that_its_reader_closes_ends_a_consumer_that_waits(
    broker: BrokerProcess, succeed: Run, topic: str
) -> None:
    succeed("console-producer", "--topic", topic, stdin="only\n")
    command = tool(
        "console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--from-beginning",
    )  # fmt: skip
    with subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"only\n"
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 1
        assert process.stderr.read() == b"Processed a total of 1 messages\n"


def test_a_topic_that_a_tool_creates_is_noted(succeed: Run, topic: str) -> None:
    def note(name: str) -> str:
        return f"Topic '{name}' did not exist and was created with 1 partition.\n"

    once = ("--from-beginning", "--timeout-ms", "300")
    read = succeed("console-consumer", "--topic", topic, *once)
    assert (read.out, read.err) == ("", f"{note(topic)}Processed a total of 0 messages\n")
    assert "did not exist" not in succeed("console-consumer", "--topic", topic, *once).err

    part = f"{topic}-part"
    read = succeed("console-consumer", "--topic", part, "--partition", "0", "--timeout-ms", "300")
    assert read.err.startswith(note(part))

    written = f"{topic}-written"
    assert succeed("console-producer", "--topic", written, stdin="a\nb\n").err == note(written)
    assert succeed("console-producer", "--topic", written, stdin="a\n").err == ""

    load = f"{topic}-load"
    arguments = ("--topic", load, "--num-records", "1", "--throughput", "-1", "--record-size", "1")
    assert note(load) in succeed("producer-perf-test", *arguments, "--json").err

    read_load = f"{topic}-read"
    arguments = ("--topic", read_load, "--num-records", "1", "--timeout", "100")
    assert note(read_load) in succeed("consumer-perf-test", *arguments).err


def test_a_topic_of_another_partition_count_is_noted(topic: str) -> None:
    with BrokerProcess(overrides={"num.partitions": "3"}) as broker:
        ran = running_on(broker.bootstrap)("console-producer", "--topic", topic, stdin="a\n")
    assert ran.err == f"Topic '{topic}' did not exist and was created with 3 partitions.\n"


def test_a_topic_that_the_broker_refuses_to_create_is_not_noted(topic: str) -> None:
    with BrokerProcess(overrides={"auto.create.topics.enable": "false"}) as broker:
        ran = running_on(broker.bootstrap)(
            "console-producer", "--topic", topic, "--max-block-ms", "500", stdin="a\n"
        )
    assert ran.code == 1
    assert "was created" not in ran.err

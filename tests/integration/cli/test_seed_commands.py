"""The command lines that Kafka tutorials teach, exactly as written there.

A shell runs them verbatim against a broker on Kafka's default port; the port is replaced only if
it is already in use. The commands are found on the PATH under the names that pyproject.toml
gives them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest

from ottla.testing.broker import BrokerProcess, _environment

ROOT = Path(__file__).parents[3]
KAFKAS_PORT = 9092
TIMEOUT_S = 60.0
TYPING_S = 0.5

LIST = "kafka-topics --list --bootstrap-server localhost:9092"
CREATE = (
    "kafka-topics --create --bootstrap-server localhost:9092 --replication-factor 1 "
    "--partitions 1 --topic first-topic"
)
DESCRIBE = "kafka-topics --describe --bootstrap-server localhost:9092 --topic first-topic"
CONSUME = "kafka-console-consumer --bootstrap-server localhost:9092 --topic first-topic"
PRODUCE = "kafka-console-producer --broker-list localhost:9092 --topic first-topic"
DELETE = "kafka-topics --delete --bootstrap-server localhost:9092 --topic first-topic"

Shell = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def port() -> Iterator[int]:
    overrides = {"delete.topic.enable": "true", "group.initial.rebalance.delay.ms": "0"}
    wanted = KAFKAS_PORT if _is_free(KAFKAS_PORT) else 0
    with BrokerProcess(port=wanted, overrides=overrides) as broker:
        yield broker.port


@pytest.fixture
def start(port: int, tmp_path: Path) -> Iterator[Shell]:
    """Yield a function that starts a command line in a shell."""
    commands = tmp_path / "bin"
    commands.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, place in project["scripts"].items():
        module, _, function = place.partition(":")
        script = commands / name
        script.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        script.chmod(0o755)
    environment = _environment()
    environment["PATH"] = f"{commands}{os.pathsep}{environment['PATH']}"
    started: list[subprocess.Popen[bytes]] = []

    def start(line: str) -> subprocess.Popen[bytes]:
        line = line.replace(str(KAFKAS_PORT), str(port))
        process = subprocess.Popen(
            # With exec the process is the command itself, so that signals reach it.
            ["/bin/sh", "-c", f"exec {line}"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def run(start: Shell, line: str) -> str:
    process = start(line)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err.decode()
    return out.decode()


def test_topics_are_listed_created_described_and_deleted(start: Shell) -> None:
    assert run(start, LIST) == ""
    assert run(start, CREATE) == "Created topic first-topic.\n"
    assert run(start, LIST) == "first-topic\n"
    described = run(start, DESCRIBE)
    assert described.startswith("Topic: first-topic\t")
    assert "PartitionCount: 1\tReplicationFactor: 1\t" in described
    run(start, DELETE)
    assert "first-topic" not in run(start, LIST)


def test_what_is_typed_into_the_producer_is_visible_for_the_consumer(start: Shell) -> None:
    run(start, CREATE)
    consumer, producer = start(CONSUME), start(PRODUCE)
    shown = _lines_of(consumer)
    first = _type_until_shown(producer, shown)
    assert first.startswith("message ")
    producer.stdin.write(b"one more\n")
    producer.stdin.close()
    while (line := shown.get(timeout=TIMEOUT_S)) != "one more":
        assert line.startswith("message ")
    assert producer.wait(TIMEOUT_S) == 0
    consumer.terminate()
    consumer.wait(TIMEOUT_S)


def _lines_of(process: subprocess.Popen[bytes]) -> Queue[str]:
    lines: Queue[str] = Queue()

    def read() -> None:
        for line in process.stdout:
            lines.put(line.decode().removesuffix("\n"))

    Thread(target=read, daemon=True).start()
    return lines


def _type_until_shown(producer: subprocess.Popen[bytes], shown: Queue[str]) -> str:
    """Keep sending lines until the consumer shows one.

    Without --from-beginning a consumer shows only what is written after it has joined, and gives
    no sign of when that is."""
    deadline = time.monotonic() + TIMEOUT_S
    number = 0
    while time.monotonic() < deadline:
        number += 1
        producer.stdin.write(f"message {number}\n".encode())
        producer.stdin.flush()
        try:
            return shown.get(timeout=TYPING_S)
        except Empty:
            continue
    raise AssertionError("the consumer showed nothing")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

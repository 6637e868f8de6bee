"""Starting and stopping the process: its output, and the files that it leaves."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.raw_client import Api, ConnectionClosed, RawClient, values

from ottla.testing.broker import BrokerFailed, BrokerProcess

MENDED = re.compile(r"recover|mend|cut |rebuilt|damaged|truncat", re.IGNORECASE)


def refusal(broker: BrokerProcess) -> str:
    """Return the one-line error of a broker that refuses to start."""
    try:
        broker.start(wait=False)
        assert broker.wait() == 1, broker.log()
        said = broker.log()
    finally:
        broker.close()
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if not line.startswith("[")]
    assert len(lines) == 1, said
    assert lines[0].rstrip().endswith(".")
    return lines[0]


@pytest.fixture
def own_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process


# ----------------------------------------------------------------------------------- refusals


def test_a_port_in_use_is_reported_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(BrokerProcess(port=port))
    assert f"127.0.0.1:{port}" in said
    assert "in use" in said


def test_a_directory_in_use_is_reported_in_one_sentence(own_broker: BrokerProcess) -> None:
    said = refusal(BrokerProcess(own_broker.data_dir))
    assert str(own_broker.data_dir) in said
    assert "another broker" in said
    with RawClient(own_broker.port) as client:
        client.create_topic("still-served")


def test_an_unwritable_directory_is_reported_in_one_sentence(tmp_path: Path) -> None:
    """A file in place of the directory is something that even root cannot write to."""
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    said = refusal(BrokerProcess(in_the_way / "data"))
    assert str(in_the_way) in said
    assert "cannot be written" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every directory")
def test_a_read_only_directory_is_reported_in_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    said = refusal(BrokerProcess(tmp_path))
    assert "cannot be written" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "many"),
        ("num.partitions", "0"),
        ("log.segment.bytes", "-1"),
        ("listeners", "PLAINTEXT://nowhere"),
        ("compression.type", "rar"),
        ("auto.create.topics.enable", "perhaps"),
    ],
)
def test_a_wrong_value_is_reported_in_one_sentence(name: str, value: str) -> None:
    said = refusal(BrokerProcess(overrides={name: value}))
    assert name in said
    assert value in said


def test_a_directory_of_another_node_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data"):
        pass
    said = refusal(BrokerProcess(tmp_path / "data", overrides={"node.id": "7"}))
    assert "node.id" in said


def test_an_unknown_property_gets_a_warning_with_the_nearest_name() -> None:
    overrides = {"log.retention.hour": "3", "auto.create.topic.enable": "false"}
    with BrokerProcess(overrides=overrides) as process:
        said = process.log()
    for wrong, right in (
        ("log.retention.hour ", "log.retention.hours"),
        ("auto.create.topic.enable ", "auto.create.topics.enable"),
    ):
        (line,) = [line for line in said.splitlines() if wrong in line]
        assert "WARNING" in line
        assert right in line


def test_kafkas_own_start_command_reads_a_properties_file(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"# Kafka's names\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
        "num.partitions=3\n"
    )
    program = "from ottla.cli.kafka_server_start import main; main()"
    command = [sys.executable, "-c", program, str(properties), "--override", "num.partitions=4"]
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        port = 0
        for line in process.stdout:
            listening = re.search(r"listening on \w+://[^:]*:(\d+)", line)
            port = int(listening[1]) if listening else port
            if "is ready" in line:
                break
        with RawClient(port) as client:
            answer = client.call(Api.METADATA, 4, topics=[{"name": "t"}],
                                 allow_auto_topic_creation=True)  # fmt: skip
            assert len(answer.topics[0].partitions) == 4
        counts = [len(list((tmp_path / each).glob("t-*"))) for each in ("a", "b")]
        assert counts == [2, 2]
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stdout.close()


# ------------------------------------------------------------------------------------ stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(own_broker: BrokerProcess, number: signal.Signals) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t", 3)
        for partition in range(3):
            client.produce("t", [(None, b"%d" % partition, (), 1)], partition)
        os.kill(own_broker.pid, number)
        assert own_broker.wait() == 0
        with pytest.raises((ConnectionClosed, OSError)):
            client.call(Api.METADATA, 4, topics=None)
    assert (own_broker.data_dir / ".kafka_cleanshutdown").exists()
    own_broker.start()
    assert not (own_broker.data_dir / ".kafka_cleanshutdown").exists()
    assert not MENDED.search(own_broker.log()), own_broker.log()
    with RawClient(own_broker.port) as client:
        for partition in range(3):
            assert values(client.records("t", 0, partition)) == [b"%d" % partition]


def test_it_stops_although_clients_are_connected(own_broker: BrokerProcess) -> None:
    clients = [RawClient(own_broker.port) for _ in range(20)]
    clients[0].create_topic("t")
    for client in clients:
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        client.send(
            Api.FETCH, 11, max_wait_ms=60_000, min_bytes=1, max_bytes=1000, session_epoch=-1,
            topics=[{"topic": "t", "partitions": [asked]}],
        )  # fmt: skip
    assert own_broker.stop(timeout_s=20) == 0
    for client in clients:
        client.close()


def test_a_second_start_after_kill_checks_the_logs_and_serves_them(
    own_broker: BrokerProcess,
) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t")
        for number in range(50):
            client.produce("t", [(None, b"%d" % number, (), 1)])
    own_broker.restart(kill=True)
    with RawClient(own_broker.port) as client:
        assert values(client.records("t")) == [b"%d" % number for number in range(50)]


def test_the_lock_of_a_killed_broker_is_free(own_broker: BrokerProcess) -> None:
    for _ in range(2):
        own_broker.restart(kill=True)


def test_a_broker_that_cannot_start_fails_its_test_with_its_words() -> None:
    with (
        pytest.raises(BrokerFailed, match=r"num\.partitions"),
        BrokerProcess(overrides={"num.partitions": "x"}),
    ):
        pass

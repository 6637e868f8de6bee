"""`kafka-server-stop`, and how brokers are found.

No test here looks for brokers and stops what it finds: they may be somebody's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import kafka_server_stop, processes


@pytest.mark.parametrize(
    "command_line",
    [
        "/usr/bin/python3 /venv/bin/ottla broker --listen 127.0.0.1:0",
        "/usr/bin/python3.12 -u -X dev /venv/bin/ottla broker",
        "python -m ottla broker",
        "/usr/bin/python3 /venv/bin/kafka-server-start server.properties",
        "Python /venv/bin/kafka-server-start -daemon server.properties",
        "/opt/ottla/bin/ottla broker",
    ],
)
def test_a_broker_is_known_by_its_command_line(command_line: str) -> None:
    assert processes.is_broker(command_line.split())


@pytest.mark.parametrize(
    "command_line",
    [
        "",
        "python -m ottla version",
        "python -m ottla",
        "grep kafka-server-start",
        "vi /src/ottla broker",
        "bash /kafka/bin/kafka-server-stop",
        "python -m pytest tests/broker",
        "java -cp x kafka.Kafka server.properties",
    ],
)
def test_another_process_is_not_taken_for_a_broker(command_line: str) -> None:
    assert not processes.is_broker(command_line.split())


@pytest.fixture
def fake_broker(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that looks like a broker; it says how it ended."""
    script = tmp_path / "kafka-server-start"
    script.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('asked to stop'))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_running_broker_is_found(fake_broker: subprocess.Popen[str]) -> None:
    assert fake_broker.pid in processes.broker_pids()
    fake_broker.communicate(timeout=60)
    assert fake_broker.pid not in processes.broker_pids()


def test_a_running_broker_is_found_by_ps_too(fake_broker: subprocess.Popen[str]) -> None:
    try:
        subprocess.run(["ps"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("ps is not installed")
    found = dict(processes._from_ps())
    assert processes.is_broker(found[fake_broker.pid])
    fake_broker.communicate(timeout=60)


def stop(monkeypatch: pytest.MonkeyPatch, pids: list[int]) -> int:
    monkeypatch.setattr(processes, "broker_pids", lambda: pids)
    monkeypatch.setattr(sys, "argv", ["kafka-server-stop"])
    with pytest.raises(SystemExit) as exit_request:
        kafka_server_stop.main()
    assert isinstance(exit_request.value.code, int)
    return exit_request.value.code


def test_stopping_sends_sigterm(
    fake_broker: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert stop(monkeypatch, [fake_broker.pid]) == 0
    _, err = fake_broker.communicate(timeout=60)
    assert err == "asked to stop\n"
    assert capsys.readouterr().out == f"Stopping the broker with process id {fake_broker.pid}.\n"


def test_nothing_to_stop_is_told_as_kafka_tells_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stop(monkeypatch, []) == 1
    assert capsys.readouterr().err == "No kafka server to stop\n"


def test_a_broker_that_ended_meanwhile_is_nothing_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(pid: int, signal_number: int) -> None:
        assert signal_number == signal.SIGTERM
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    assert stop(monkeypatch, [12345]) == 1

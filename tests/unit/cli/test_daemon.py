"""Tests of `kafka-server-start -daemon`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SCRIPT = """
import os, sys, types
broker = types.ModuleType("ottla.broker.main")
def run(config):
    print("said to stdout")
    print("said to stderr", file=sys.stderr)
    with open(os.environ["REPORT"], "w") as report:
        report.write(f"{os.getpid()} {os.getsid(0)} {config.num_partitions}")
        if "PID_FILE" in os.environ:
            report.write(" " + open(os.environ["PID_FILE"]).read())
    return 0
broker.run = run
sys.modules["ottla.broker.main"] = broker
from ottla.cli.kafka_server_start import main
main()
"""


def start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_returns_and_the_broker_runs_in_a_session_of_its_own(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=5\nlog.dirs=/data\n")
    report = tmp_path / "report"
    os.mkfifo(report)
    environment = {"REPORT": str(report), "LOG_DIR": str(tmp_path / "logs")}

    process = start(["-daemon", str(properties)], environment)
    # Reading the pipe blocks until the broker has started, however long that takes.
    broker_pid, session, partitions = report.read_text().split()
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (0, "", "")
    assert int(broker_pid) != process.pid
    assert int(session) not in (int(broker_pid), os.getsid(0))
    assert partitions == "5"
    output = (tmp_path / "logs" / "kafkaServer.out").read_text()
    assert "said to stderr" in output


def test_a_mistake_is_reported_before_the_command_leaves_the_terminal(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=x\n")
    process = start(["-daemon", str(properties)], {"LOG_DIR": str(tmp_path / "logs")})
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("Invalid value x for configuration num.partitions")
    assert not (tmp_path / "logs").exists()


def test_output_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("")
    process = start(["-daemon", str(properties)], {"LOG_DIR": str(properties)})
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("Cannot write the broker's output to ")
    assert err.count("\n") == 1


def test_the_pid_file_has_the_process_id_of_the_background_process(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.dirs=/data\n")
    report, pid_file = tmp_path / "report", tmp_path / "broker.pid"
    os.mkfifo(report)
    environment = {"REPORT": str(report), "LOG_DIR": str(tmp_path), "PID_FILE": str(pid_file)}

    process = start(["-daemon", str(properties), "--pid-file", str(pid_file)], environment)
    broker_pid, _, _, written = report.read_text().split()
    assert process.communicate(timeout=60) == ("", "")

    assert written == broker_pid
    assert int(written) != process.pid


def test_a_pid_file_that_cannot_be_written_is_reported_in_the_foreground(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.dirs=/data\n")
    environment = {"REPORT": str(tmp_path / "report"), "LOG_DIR": str(tmp_path)}
    process = start(["-daemon", str(properties), "--pid-file", "no/such/pid"], environment)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err == "Cannot write the pid file no/such/pid: no such file or directory.\n"

"""Tests of `kafka-server-stop` and of finding running brokers.

No test here stops every broker it finds, because other brokers may run on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.errors import UserError
from ottla.cli import kafka_server_stop, processes
from ottla.cli.pid_file import PidFile

FIRST_ID = 1_000_000 + 3 * os.getpid()
SECOND_ID, NO_ID = FIRST_ID + 1, FIRST_ID + 2
"""Node IDs that brokers of other test runs on this machine do not use."""


@pytest.mark.parametrize(
    "command_line",
    [
        "/usr/bin/python3 /venv/bin/ottla broker --listen 127.0.0.1:0",
        "/usr/bin/python3.12 -u -X dev /venv/bin/ottla broker",
        "python -m ottla broker",
        "/usr/bin/python3 /venv/bin/kafka-server-start server.properties",
        "Python /venv/bin/kafka-server-start -daemon server.properties",
        "/usr/bin/python3 /venv/bin/kafka-server-start.sh server.properties",
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
    """Start a process that looks like a broker and reports how it ended."""
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
    assert capsys.readouterr().out == f"Stopping the broker with process ID {fake_broker.pid}.\n"


def test_nothing_to_stop_is_reported_as_kafka_does(
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


# ------------------------------------------------------------------------------- one of several


class Stopping:
    """Runner of `kafka-server-stop` with options, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *options: str) -> tuple[int, str, str]:
        assert options, "without options every broker of the user would be stopped"
        self._monkeypatch.setattr(sys, "argv", ["kafka-server-stop", *options])
        with pytest.raises(SystemExit) as ended:
            kafka_server_stop.main()
        assert isinstance(ended.value.code, int)
        captured = self._capsys.readouterr()
        return ended.value.code, captured.out, captured.err


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Stopping:
    return Stopping(monkeypatch, capsys)


def start_broker(data_dir: Path, *options: str, **popen: object) -> subprocess.Popen[str]:
    """Start a real broker from the command line and wait until it is ready."""
    command = [sys.executable, "-m", "ottla", "broker", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [*command, "--data-dir", str(data_dir), *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **popen,  # type: ignore[call-overload]
    )
    assert process.stderr is not None
    output = []
    for line in process.stderr:
        output.append(line)
        if " is ready" in line:
            return process
    raise AssertionError("".join(output))


def is_running(process: subprocess.Popen[str]) -> bool:
    return process.poll() is None


@pytest.fixture
def two_brokers(
    tmp_path: Path,
) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    (tmp_path / "work").mkdir()
    # A relative path that is resolved in a directory other than the test's own.
    first = start_broker(
        Path("../first"), "--override", f"node.id={FIRST_ID}", "--pid-file", "first.pid",
        cwd=tmp_path / "work",
    )  # fmt: skip
    second = start_broker(tmp_path / "second", "--override", f"node.id={SECOND_ID}")
    yield first, second
    for process in (first, second):
        if is_running(process):
            process.kill()
        process.communicate()


@pytest.mark.parametrize("selection", ["data-dir", "symbolic link", "node-id", "pid-file", "all"])
def test_one_of_two_brokers_is_stopped(
    selection: str,
    two_brokers: tuple[subprocess.Popen[str], subprocess.Popen[str]],
    stopping: Stopping,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = two_brokers
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "link").symlink_to("first")
    options = {
        "data-dir": ["--data-dir", "../first/"],
        "symbolic link": ["--data-dir", str(tmp_path / "link")],
        "node-id": [f"--node-id={FIRST_ID}", "--process-role=broker"],
        "pid-file": ["--pid-file", "first.pid"],
        "all": ["--pid-file", "first.pid", "--node-id", str(FIRST_ID), "--data-dir", "../first"],
    }
    assert (tmp_path / "work/first.pid").read_text() == f"{first.pid}\n"
    code, out, err = stopping(*options[selection])
    assert (code, out, err) == (0, f"Stopping the broker with process ID {first.pid}.\n", "")
    assert first.wait(timeout=60) == 0
    assert is_running(second)
    assert not (tmp_path / "work/first.pid").exists()


def test_a_selection_without_a_match_is_one_sentence_and_stops_nothing(
    two_brokers: tuple[subprocess.Popen[str], subprocess.Popen[str]],
    stopping: Stopping,
    tmp_path: Path,
) -> None:
    mismatch = ("--node-id", str(SECOND_ID), "--data-dir", str(tmp_path / "first"))
    for options, output in (
        (("--data-dir", str(tmp_path)), "no running broker uses the data directory"),
        (("--data-dir", str(tmp_path / "none")), "no running broker uses the data directory"),
        (("--node-id", str(NO_ID)), f"no running broker has node.id {NO_ID}."),
        (("--pid-file", str(tmp_path / "none")), "no running broker was started with --pid-file"),
        (("--process-role", "controller"), "No controller to stop: "),
        (mismatch, "no running broker matches all of these options."),
    ):
        code, out, err = stopping(*options)
        assert (code, out) == (1, "")
        assert output in err
        assert err.count("\n") == 1
    assert all(map(is_running, two_brokers))


def test_a_pid_file_left_behind_stops_no_other_process(
    tmp_path: Path, stopping: Stopping, fake_broker: subprocess.Popen[str]
) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stale = tmp_path / "broker.pid"
    # The second process is a broker, but not the one that wrote the PID file.
    for process in (stranger, fake_broker):
        stale.write_text(f"{process.pid}\n")
        code, out, err = stopping("--pid-file", str(stale))
        assert (code, out) == (1, "")
        assert err.startswith("No broker to stop: ")
        assert process.poll() is None
    assert stranger.communicate(b"\n") == (None, None)
    assert stranger.returncode == 0
    fake_broker.communicate(timeout=60)


def test_a_process_that_has_the_files_open_but_is_no_broker_is_left_alone(
    tmp_path: Path, stopping: Stopping
) -> None:
    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open() as opened:
        assert processes.uses_data_directory(os.getpid(), str(tmp_path))
        for options in (("--data-dir", str(tmp_path)), ("--pid-file", opened.name)):
            assert stopping(*options)[0] == 1


def test_open_files_are_found_by_lsof_too(tmp_path: Path) -> None:
    try:
        subprocess.run(["lsof", "-v"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("lsof is not installed")
    with (tmp_path / ".lock").open("w") as opened:
        assert os.path.realpath(opened.name) in processes._open_by_lsof(os.getpid())


def test_a_pid_file_of_a_running_broker_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "broker.pid"
    with PidFile(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(UserError, match="belongs to another running broker"):
            PidFile(str(path))
    assert not path.exists()


def test_a_stale_pid_file_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "broker.pid"
    path.write_text("123456789012\nmore")
    with PidFile(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_pid_file_that_another_one_replaced_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "broker.pid"
    with PidFile(str(path)):
        path.unlink()
        path.write_text("1\n")
    assert path.read_text() == "1\n"


def test_a_pid_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Cannot write the pid file .*: no such file or directory"):
        PidFile(str(tmp_path / "no/broker.pid"))

"""Tests of ending child processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ottla.base.child_process import end_process, wait_or_kill

OBEDIENT = "print('ready', flush=True); import time; time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEDIENT}"

Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_process_ends_with_the_signal(start: Start) -> None:
    process = start(OBEDIENT)
    end_process(process, signal.SIGTERM, 30)
    assert process.returncode == -signal.SIGTERM


def test_a_process_that_ignores_the_signal_is_killed(start: Start) -> None:
    process = start(STUBBORN)
    end_process(process, signal.SIGTERM, 0.1)
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_has_exited_keeps_its_code(start: Start) -> None:
    process = start("print('ready', flush=True); raise SystemExit(3)")
    process.wait()
    end_process(process, signal.SIGTERM, 1)
    assert process.returncode == 3


def test_waiting_sends_no_signal_in_time(start: Start) -> None:
    process = start("print('ready', flush=True)")
    wait_or_kill(process, 30)
    assert process.returncode == 0

"""Tests that PySpark's Python processes exit quietly when Spark closes their connection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ottla.spark.pyspark_launcher import SOCKET_CLOSED_EXIT_CODE, ignoring_closed_sockets


def test_a_worker_whose_spark_hung_up_ends_without_a_word() -> None:
    def hung_up(sock: object, authenticated: bool) -> int:
        raise BrokenPipeError

    assert ignoring_closed_sockets(hung_up)(None, True) == SOCKET_CLOSED_EXIT_CODE
    assert ignoring_closed_sockets(lambda sock, authenticated: 0)(None, True) == 0


def test_a_program_whose_spark_hung_up_ends_without_a_word(tmp_path: Path) -> None:
    Path(tmp_path, "planner.py").write_text(
        "import sys; print(sys.argv[1:]); raise BrokenPipeError"
    )
    ended = _run(tmp_path, "planner", "an argument")
    assert ended.returncode == SOCKET_CLOSED_EXIT_CODE
    assert ended.stderr == b""


def test_a_program_that_fails_is_reported_with_its_reason(tmp_path: Path) -> None:
    Path(tmp_path, "planner.py").write_text("import sys; raise ValueError(sys.argv[1:])")
    ended = _run(tmp_path, "planner", "an argument")
    assert ended.returncode == 1
    assert b"ValueError: ['an argument']" in ended.stderr


def _run(folder: Path, *given: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ottla.spark.pyspark_launcher", *given]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False)

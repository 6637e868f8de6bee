"""`ottla demo` as a user runs it: the full run, and a cluster whose leader is killed midway."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("brokers", [1, 3])
def test_the_demo_proves_that_nothing_was_lost_and_cleans_up(tmp_path: Path, brokers: int) -> None:
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    result = subprocess.run(
        [sys.executable, "-m", "ottla", "demo", "--brokers", str(brokers), "--lines", "200"],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No losses, no duplicates" in result.stdout
    assert "✗" not in result.stdout
    assert ("was killed" in result.stdout) == (brokers > 1)
    assert not list(tmp_path.glob("ottla-demo-*"))

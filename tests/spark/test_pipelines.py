"""Declarative pipelines of Spark, with topics as sources and sinks: the example, run twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.spark.conftest import SOURCE, Topic

from ottla.testing.broker_thread import BrokerThread

pytest.importorskip("grpc_status")

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
RUN_TIMEOUT_S = 900
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(2 * RUN_TIMEOUT_S + 40)]


def run(home: Path, *arguments: str) -> tuple[int, str]:
    """Run the command, and return its exit code and its output."""
    source = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.spark.pipelines", *arguments],
        cwd=home,
        # A free port, so that several servers can run at the same time.
        env={**os.environ, "PYTHONPATH": source, "SPARK_TESTING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output


def test_two_runs_write_each_record_exactly_once(broker: BrokerThread, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    spec = tmp_path / "spark-pipeline.yml"
    text = spec.read_text().replace("localhost:9092", broker.bootstrap)
    spec.write_text(text.replace("/tmp/ottla-pipeline", str(tmp_path)))
    orders, large = Topic(broker, "orders", 2), Topic(broker, "large", 1)
    for first, last in ((0, 150), (150, 160)):
        amounts = range(first, last)
        orders.fill([json.dumps({"item": "tea", "amount": amount}) for amount in amounts])
        code, output = run(tmp_path, "run")
        assert code == 0, output[-8000:]
        written = [json.loads(value)["amount"] for value in large.values()]
        assert sorted(written) == list(range(100, last))

"""Our client's own integration tests, on Apache Kafka's broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from compat.apache_kafka import ApacheKafka

ROOT = Path(__file__).parents[2]
TESTS = "tests/integration/client"
TIMEOUT_S = 900.0
TAIL = 6_000
OVERRIDES = {
    # The tests write very old records, and the members of their groups have short sessions.
    "log.retention.ms": "-1",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "1500",
}


def holds_on_kafka(broker: ApacheKafka) -> None:
    """Our client's integration tests pass on it."""
    environment = {
        **os.environ,
        "OTTLA_TEST_BOOTSTRAP": broker.bootstrap,
        "PYTHONPATH": str(ROOT / "src"),
    }
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "tests/integration/client",
            "-q",
            "-p",
            "no:cacheprovider",
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-TAIL:] + result.stderr[-TAIL:]
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None, result.stdout[-TAIL:]
    assert int(passed[1]) >= 50, result.stdout[-TAIL:]


CHECKS = [holds_on_kafka]

"""All tests as `make test` runs them, in three parts with a final line of counts.

A later part runs even if an earlier one failed. Many tests wait more than they compute: two
processes, each running whole files, take little more than half the time. Spark's tests run in
processes of their own: its session lives until the process ends, and would disturb tests that
count files, threads or log lines."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

IN_PARALLEL = ("-n", "2", "--dist", "loadfile", "--max-worker-restart", "1")
SPARK_TESTS = ("tests/spark", "tests/streams", "tests/connect")
WORLDS = 200
"""Number of simulated clusters, the same ones each time; `make sim` runs others, and more."""


class Counts(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def counts_in(report: Path) -> Counts:
    """Return the counts in a JUnit report.

    A missing or incomplete report counts as one failure: the run did not finish."""
    try:
        suites = ElementTree.parse(report).getroot().iter("testsuite")
    except (OSError, ElementTree.ParseError):
        return Counts(failed=1)
    return Counts(*map(sum, zip(*map(_counts_of_suite, suites), strict=True)))


def _counts_of_suite(suite: ElementTree.Element) -> Counts:
    ran, failures, errors, skipped = (
        int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return Counts(ran - failed - skipped, failed, skipped)


def run_tests(report: Path, *arguments: str) -> Counts:
    command = (sys.executable, "-m", "pytest", f"--junitxml={report}", *IN_PARALLEL, *arguments)
    ended_with = subprocess.run(command, check=False).returncode
    counts = counts_in(report)
    # A run may also fail without a failed test: a collection error, a worker that died.
    return counts if ended_with == 0 or counts.failed else counts.plus(Counts(failed=1))


def simulate_clusters() -> Counts:
    """Run the simulated clusters, which count as one test that fails if any of them does."""
    command = (sys.executable, "-m", "tests.sim.cluster.sweep", "--seeds", str(WORLDS))
    held = subprocess.run(command, check=False).returncode == 0
    return Counts(passed=int(held), failed=int(not held))


def main(arguments: Sequence[str] = ()) -> int:
    with tempfile.TemporaryDirectory(prefix="ottla-tests-") as folder:
        reports = Path(folder)
        without_spark = (f"--ignore={each}" for each in SPARK_TESTS)
        total = run_tests(reports / "most.xml", *without_spark, *arguments)
        total = total.plus(simulate_clusters())
        total = total.plus(run_tests(reports / "spark.xml", *SPARK_TESTS, *arguments))
    print(total.line(), flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

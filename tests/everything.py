"""All tests, as `make test` runs them: in three parts, the later ones whatever became of the
earlier, and one closing line of counts.

Many tests wait more than they work: two processes, each with whole files, take little more than
half the time. Spark's tests have processes of their own: its session lives until the end of the
process, and would be in the way of tests that count files, threads or log lines."""

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
"""Simulated clusters, the same ones each time; `make sim` runs others, and more of them."""


class Counts(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def counts_in(report: Path) -> Counts:
    """Of a report in JUnit's form. One that is not there, or not whole, is of a run that did not
    end."""
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
    # A run may fail for other reasons than a test: collection, a worker that died.
    return counts if ended_with == 0 or counts.failed else counts.plus(Counts(failed=1))


def simulate_clusters() -> Counts:
    """They count as one test, which fails if one of them breaks."""
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

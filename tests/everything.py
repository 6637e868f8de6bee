"""All tests as `make test` runs them: three parts, the slowest tests, and a last line of counts.

A later part runs even if an earlier one failed. Many tests wait more than they compute, so three
processes, each running whole files, keep two cores busy. Spark's tests run in processes of their
own: its session lives until the process ends, and would disturb tests that count files, threads or
log lines. Two of them are enough, because Spark uses all cores."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

IN_PARALLEL = ("--dist", "loadfile", "--max-worker-restart", "1")
PROCESSES = 3
SPARK_TESTS = ("tests/spark", "tests/streams", "tests/connect")
SPARK_PROCESSES = 2
SLOWEST = 20
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


def slowest_in(reports: Iterable[Path], count: int = SLOWEST) -> list[str]:
    """Return a line for each of the tests that took longest, with its seconds and its name."""
    cases = [
        (float(case.attrib["time"]), f"{case.attrib['classname']}::{case.attrib['name']}")
        for report in reports
        for case in ElementTree.parse(report).getroot().iter("testcase")
    ]
    return [f"{seconds:7.1f}  {name}" for seconds, name in sorted(cases, reverse=True)[:count]]


def run_tests(report: Path, processes: int, *arguments: str) -> Counts:
    run = (sys.executable, "-m", "pytest", f"--junitxml={report}", "-n", str(processes))
    command = (*run, *IN_PARALLEL, *arguments)
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
        most, spark = reports / "most.xml", reports / "spark.xml"
        total = run_tests(most, PROCESSES, *without_spark, *arguments)
        total = total.plus(simulate_clusters())
        total = total.plus(run_tests(spark, SPARK_PROCESSES, *SPARK_TESTS, *arguments))
        slowest = slowest_in(report for report in (most, spark) if counts_in(report).passed)
    print(f"The {len(slowest)} slowest tests, in seconds:", *slowest, sep="\n")
    print(total.line(), flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

"""Tests of the counts that `make test` reports."""

from __future__ import annotations

from pathlib import Path

from tests.everything import Counts, counts_in, slowest_in

REPORT = (
    '<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" '
    'tests="10"></testsuite></testsuites>'
)


def test_counts_of_a_report_are_those_of_its_tests(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert counts_in(report) == Counts(passed=4, failed=3, skipped=3)


def test_a_run_without_a_whole_report_has_failed(tmp_path: Path) -> None:
    assert counts_in(tmp_path / "none.xml") == Counts(failed=1)
    (tmp_path / "half.xml").write_text(REPORT[:-20])
    assert counts_in(tmp_path / "half.xml") == Counts(failed=1)


def test_the_slowest_tests_are_those_of_all_reports(tmp_path: Path) -> None:
    times = {"a": ("0.5", "12.25"), "b": ("3.0", "0.1")}
    for name, seconds in times.items():
        cases = "".join(
            f'<testcase classname="tests.{name}" name="test_{number}" time="{time}" />'
            for number, time in enumerate(seconds)
        )
        (tmp_path / f"{name}.xml").write_text(f"<testsuite>{cases}</testsuite>")
    assert slowest_in(sorted(tmp_path.glob("*.xml")), count=2) == [
        "   12.2  tests.a::test_1",
        "    3.0  tests.b::test_0",
    ]


def test_the_closing_line_has_all_parts() -> None:
    total = Counts(5, 0, 1).plus(Counts(2, 1, 0))
    assert total.line() == "7 passed, 1 failed, 1 skipped"

"""The lines of the log."""

from __future__ import annotations

import logging
import sys

import pytest

from ottla.cli.log_output import LogFormatter


def line_of(message: str) -> str:
    return LogFormatter().format(logging.LogRecord("a", 30, "", 0, "%s", (message,), None))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mallory\n[2026-01-01 00:00:00,000] INFO all is well", r"mallory\n[2026"),
        ("a\r\x1b[2Kb", r"a\r\x1b[2Kb"),
        ("a\ud800b", r"a\ud800b"),
        ("a\x85b\u2028c\u202ed", r"a\x85b\u2028c\u202ed"),
    ],
)
def test_a_name_cannot_add_lines_to_the_log_or_control_the_terminal(name: str, shown: str) -> None:
    line = line_of(name)
    assert shown in line
    assert line.isprintable()


def test_other_characters_are_logged_as_they_are() -> None:
    assert line_of("tab\there, accents éü, 日本").endswith("tab\there, accents éü, 日本 (a)")


def test_the_traceback_of_an_error_keeps_its_lines() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        record = logging.LogRecord("a", 40, "", 0, "failed", (), sys.exc_info())
    assert LogFormatter().format(record).count("\n") > 1

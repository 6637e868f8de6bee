"""Checks that docstrings, comments, messages and pages follow the style in CONTRIBUTING.md."""

from __future__ import annotations

import pytest
from tests.arch.voice import (
    findings,
    findings_in,
    findings_in_help,
    findings_in_messages,
    findings_in_page,
    help_texts_in,
    messages_in,
    sentences_in,
)


def test_no_sentence_has_a_shape_that_the_project_does_not_use() -> None:
    found = [str(each) for each in findings()]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    ['"""Of one partition."""', 'x = 1\n"""What is left."""', "x = 1  # nobody is told about it"],
)
def test_the_checker_names_file_and_line(source: str) -> None:
    (found,) = findings_in(sentences_in(source, "module.py"))
    assert found.place == f"module.py:{1 + source.count(chr(10))}"


def test_the_checker_reads_pages() -> None:
    (found,) = findings_in_page("# Title\n\nAsk whoever knows.\n", "page.md")
    assert found.place == "page.md:3"


def test_the_checker_accepts_plain_sentences() -> None:
    source = '"""The records of one partition."""\n# The broker closes the connection.\n'
    assert not [*findings_in(sentences_in(source, "module.py"))]


@pytest.mark.parametrize(
    "line",
    [
        'raise UserError("the client is told to wait")',
        'raise UserError(f"{name} begins anew after {count} records")',
        'logger.warning("the connector %s goes on without it", name)',
        'reason = "Another worker leads the group by now."',
        'key("size", INT, 1, "Size, for whoever asks.")',
    ],
)
def test_the_checker_reads_messages(line: str) -> None:
    (found,) = findings_in_messages(messages_in(f"x = 1\n{line}\n", "module.py"))
    assert found.place == "module.py:2"


def test_docstrings_are_not_messages() -> None:
    assert not [*messages_in('"""A module of several words."""\n', "module.py")]


@pytest.mark.parametrize(
    "line",
    [
        'option("--rows", help="number of rows.")',
        'option("--rows", help="Number of rows")',
        'option("--rows", help="Between reports, in milliseconds.")',
        'option("--rows", help=f"How many of {limit}.")',
        'key("rows", INT, 1, "Of that topic.")',
        'key("rows", INT, 1, "the number of rows.")',
    ],
)
def test_the_checker_reads_help_texts(line: str) -> None:
    (found,) = findings_in_help(help_texts_in(f"x = 1\n{line}\n", "module.py"))
    assert found.place == "module.py:2"


@pytest.mark.parametrize(
    "text",
    [
        "Number of rows.",
        "Number of rows.  [default: all of them]",
        "Properties, as name=value, …",
        "segment.bytes without its minimum, in bytes.",
    ],
)
def test_the_checker_accepts_help_texts_that_stand_alone(text: str) -> None:
    assert not [*findings_in_help(help_texts_in(f'option("-x", help={text!r})', "module.py"))]

"""Checks that docstrings, comments and pages follow the style in CONTRIBUTING.md."""

from __future__ import annotations

import pytest
from tests.arch.voice import findings, findings_in, findings_in_page, sentences_in


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

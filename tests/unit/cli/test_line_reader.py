"""Tests of parsing lines into records by the rules of Kafka's console producer."""

from __future__ import annotations

import pytest

from ottla.base.errors import UserError
from ottla.cli.line_reader import LineReader, LineRecord


def reader(**properties: str) -> LineReader:
    return LineReader({name.replace("_", "."): value for name, value in properties.items()})


def test_a_line_is_a_value() -> None:
    assert reader().parse(b"a\tb\r\n") == LineRecord(None, b"a\tb", [])
    assert reader().parse(b"\n") == LineRecord(None, b"", [])
    assert reader().parse(b"\xff no end") == LineRecord(None, b"\xff no end", [])


def test_a_key_ends_at_the_first_separator() -> None:
    assert reader(parse_key="true").parse(b"k\tv\tw\n") == LineRecord(b"k", b"v\tw", [])
    found = reader(parse_key="True ", key_separator="=>").parse(b"a=>b=>c")
    assert found == LineRecord(b"a", b"b=>c", [])


def test_headers_come_before_the_key() -> None:
    both = reader(parse_key="true", parse_headers="true")
    assert both.parse(b"h1:v1,h2:v:2\tkey\tvalue") == LineRecord(
        b"key", b"value", [("h1", b"v1"), ("h2", b"v:2")]
    )
    alone = reader(parse_headers="true", headers_separator=r"\|", headers_key_separator="=")
    assert alone.parse(b"a=1|b=\tvalue|x") == LineRecord(
        None, b"value|x", [("a", b"1"), ("b", b"")]
    )


def test_a_marked_field_is_null() -> None:
    marked = reader(parse_key="true", parse_headers="true", null_marker="NULL")
    assert marked.parse(b"h:NULL\tNULL\tNULL") == LineRecord(None, None, [("h", None)])
    assert marked.parse(b"NULL\tk\tv") == LineRecord(b"k", b"v", [])
    with pytest.raises(UserError, match="A header key equals the null marker on line number"):
        marked.parse(b"NULL:1\tk\tv")


def test_a_line_without_separator_is_reported_with_its_number() -> None:
    strict = reader(parse_key="true")
    strict.parse(b"k\tv")
    with pytest.raises(UserError, match="No key separator found on line number 2: 'alone'"):
        strict.parse(b"alone\n")
    with pytest.raises(UserError, match="No headers delimiter found on line number 1"):
        reader(parse_headers="true").parse(b"x")
    with pytest.raises(UserError, match="No header key separator found in pair 'x'"):
        reader(parse_headers="true").parse(b"x\tv")


def test_errors_are_ignored_if_asked() -> None:
    lenient = reader(parse_key="true", parse_headers="true", ignore_error="true")
    assert lenient.parse(b"alone") == LineRecord(None, b"alone", [])
    assert lenient.parse(b"h\tk\tv") == LineRecord(b"k", b"v", [("h", None)])


def test_separators_must_differ_and_properties_exist() -> None:
    with pytest.raises(UserError, match=r"headers\.delimiter and headers\.separator must not be"):
        reader(headers_delimiter=",")
    with pytest.raises(UserError, match=r"null\.marker and key\.separator must not be equal"):
        reader(null_marker="\t")
    with pytest.raises(UserError, match=r"Unknown reader property parse\.keys"):
        reader(parse_keys="true")
    with pytest.raises(UserError, match=r"headers\.separator is not a valid regular expression"):
        reader(headers_separator="(")
    with pytest.raises(UserError, match="Separators of the line reader must not be empty"):
        reader(key_separator="")

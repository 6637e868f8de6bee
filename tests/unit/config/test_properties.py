"""Tests of reading Java's .properties files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.config.properties import (
    format_properties,
    load_properties,
    parse_override,
    parse_properties,
)
from ottla.base.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a\t:\tb ", {"a": "b "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a b=c", {"a": "b=c"}),
        ("  a=b", {"a": "b"}),
        ("# a=b\n! c=d\n\n   # e=f\ng=h", {"g": "h"}),
        ("a=b # not a comment", {"a": "b # not a comment"}),
        ("a=b\\\n   c\nd=e", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\n c", {"a": "b\\c"}),
        ("a=b\\\n# still the value", {"a": "b# still the value"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b:c", {"a:b": "c"}),
        (r"a=\t\n\r\f\\\q", {"a": "\t\n\r\f\\q"}),
        (r"a=\u00e9\u20AC", {"a": "é€"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_broken_unicode_escape_names_its_line() -> None:
    with pytest.raises(UserError, match=r"Line 2 of server\.properties cannot be read"):
        parse_properties("a=b\nc=\\u12", "server.properties")


def test_a_file_is_read_in_utf8_with_or_without_a_mark(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("\ufeffbroker.rack=Zürich".encode())
    assert load_properties(str(file)) == {"broker.rack": "Zürich"}


def test_an_old_file_is_read_in_latin_1(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("broker.rack=Zürich".encode("latin-1"))
    assert load_properties(str(file)) == {"broker.rack": "Zürich"}


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^Cannot read the configuration file .*no such file"):
        load_properties(str(tmp_path / "absent"))


def test_an_override_is_split_at_its_first_equals_sign() -> None:
    assert parse_override("listeners = PLAINTEXT://:9092?a=b") == (
        "listeners",
        "PLAINTEXT://:9092?a=b",
    )


@pytest.mark.parametrize("argument", ["a", "=b", "", " =b"])
def test_an_override_that_is_not_key_and_value_is_refused(argument: str) -> None:
    with pytest.raises(UserError, match="must look like key=value"):
        parse_override(argument)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_written_properties_are_read_as_the_same(properties: dict[str, str]) -> None:
    text = format_properties(properties)
    assert text.isascii()
    assert parse_properties(text) == properties

"""Checks that the reference of the Python packages is complete and every entry has a docstring."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from tests.docs.generated import generator

FORBIDDEN = re.compile(r"(Of|By|With|Whose|Where|What)\b")
"""First words that make a docstring a fragment instead of a complete thought."""

BARE = """
class Bare:
    size: int
    limit: int
    '''Largest size.'''

    def grow(self) -> None: ...
"""

reference = generator("reference")


@pytest.fixture(params=sorted(reference.PACKAGES))
def page(request: pytest.FixtureRequest) -> Any:
    return reference.PACKAGES[request.param]


def test_every_public_name_is_on_its_page(page: Any) -> None:
    names = {name for name, _ in reference.entries(page)}
    public = set(importlib.import_module(page.package).__all__) - {"__version__"}
    assert sorted(public - names) == []


def test_every_entry_has_a_docstring(page: Any) -> None:
    assert [name for name, words in reference.entries(page) if not words.strip()] == []


def test_every_docstring_begins_with_a_complete_thought(page: Any) -> None:
    fragments = [
        f"{name}: {words.strip().splitlines()[0]}"
        for name, words in reference.entries(page)
        if FORBIDDEN.match(words.strip())
    ]
    assert fragments == []


def test_entries_include_methods_and_fields_without_a_docstring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ottla_bare.py").write_text(BARE)
    monkeypatch.syspath_prepend(tmp_path)
    bare = importlib.import_module("ottla_bare").Bare
    assert dict(generator("describe").entries("Bare", bare, "ottla_bare")) == {
        "Bare": "",
        "Bare.grow": "",
        "Bare.size": "",
        "Bare.limit": "Largest size.",
    }


def test_members_of_a_base_class_without_a_section_are_shown_in_each_subclass() -> None:
    names = {name for name, _ in reference.entries(reference.STREAMS)}
    assert {"ValueOfKey.clear", "ListOfKey.clear", "MapOfKey.clear"} <= names


def test_inherited_members_are_shown_once() -> None:
    lines = reference.page_of(reference.CONNECT).splitlines()
    headings = [line for line in lines if line.startswith("#")]
    assert "#### ConnectRecord.with_value" in headings
    assert "#### FailedRecord.with_value" not in headings
    assert "Inherits the members of [ConnectRecord](#connectrecord)." in lines
    assert len(headings) == len(set(headings))

"""Tests of the exact output of explain() for each example: columns, Python and state.

The files in `explained` hold the expected output."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import ottla.streams as st

EXPLAINED = sorted(Path(__file__).with_name("explained").glob("*.txt"))


def test_every_example_of_streams_is_explained() -> None:
    examples = Path(__file__).parents[3] / "examples"
    using = [each.stem for each in examples.glob("*.py") if "ottla.streams" in each.read_text()]
    assert sorted(using) == [each.stem for each in EXPLAINED]


@pytest.mark.parametrize("file", EXPLAINED, ids=lambda each: each.stem)
def test_examples_explain_themselves(file: Path) -> None:
    app = st.App(file.stem.replace("_", "-"))
    importlib.import_module(f"examples.{file.stem}").build(app)
    assert app.explain() + "\n" == file.read_text()

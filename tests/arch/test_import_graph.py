"""Checks of the import graph, in which imports for types count as well."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from generator import import_graph


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    found = import_graph.cycles(import_graph.graph())
    assert not found, "\n".join("modules that import each other: " + ", ".join(g) for g in found)


def test_a_cycle_is_found_with_all_of_its_modules() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set(), "e": {"e2"}, "e2": {"e"}}
    assert import_graph.cycles(imports) == [["a", "b", "c"], ["e", "e2"]]


def test_packages_import_only_packages_below_them() -> None:
    level = {package: index for index, row in enumerate(import_graph.LAYERS) for package in row}
    upward = [
        (importer, imported)
        for importer, imported in import_graph.package_imports()
        if level[importer] >= level[imported]
    ]
    assert upward == []


def test_the_drawing_shows_the_imports_of_today() -> None:
    drawing = import_graph.DRAWING.read_text(encoding="utf-8")
    assert drawing == import_graph.svg(), "run: python docs/generator/import_graph.py"

"""Checks that the modules of Connect and of the commands import each other in one direction."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from generator import import_graph


@pytest.mark.parametrize("package", ["ottla.connect", "ottla.cli"])
def test_a_package_has_no_import_cycle(package: str) -> None:
    graph = {
        importer: {each for each in imported if each.startswith(f"{package}.")}
        for importer, imported in import_graph.graph().items()
        if importer.startswith(f"{package}.")
    }
    assert graph
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))

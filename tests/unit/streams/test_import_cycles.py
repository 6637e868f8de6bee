"""Test that no modules of `ottla.streams` import each other, for types either."""

from __future__ import annotations

import sys
from graphlib import TopologicalSorter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "docs"))

from generator import import_graph


def test_the_modules_of_streams_have_an_order() -> None:
    imports = import_graph.graph()
    streams = {name: imports[name] for name in imports if name.startswith("ottla.streams")}
    assert len(streams) > 40
    TopologicalSorter(streams).prepare()

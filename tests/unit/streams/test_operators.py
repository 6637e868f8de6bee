"""Tests that every operator is complete: text, rule of the compiler and pinned topology."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest
from tests.unit.streams.test_topology_text import ORDER, TOPOLOGIES, caught

import ottla.streams as st
from ottla.streams import operators
from ottla.streams.compile import frames
from ottla.streams.operators.stateless import RecordOperator
from ottla.streams.operators.topics import FrameSource, Sink
from ottla.streams.plan.node import Node, ancestors

BASES = {"RecordOperator", "Join"}
"""Classes that only hold what several operators have in common."""


def nodes() -> Iterator[type[Node]]:
    for module in pkgutil.iter_modules(operators.__path__):
        family = importlib.import_module(f"ottla.streams.operators.{module.name}")
        for name, each in vars(family).items():
            is_own = inspect.isclass(each) and each.__module__ == family.__name__
            if is_own and issubclass(each, Node) and name not in BASES:
                yield each


NODES = list(nodes())


@pytest.mark.parametrize("node", NODES, ids=lambda each: each.__name__)
def test_every_operator_has_a_description(node: type[Node]) -> None:
    assert "describe" not in node.__abstractmethods__


@pytest.mark.parametrize(
    "node", [each for each in NODES if not issubclass(each, Sink)], ids=lambda each: each.__name__
)
def test_every_operator_has_a_rule_in_the_module_of_its_family(node: type[Node]) -> None:
    family = node.__module__.rpartition(".")[2]
    assert node in importlib.import_module(f"ottla.streams.compile.{family}").RULES
    assert node in frames.RULES


def test_every_rule_belongs_to_an_operator() -> None:
    assert set(frames.RULES) == {each for each in NODES if not issubclass(each, Sink)}


def test_every_operator_is_in_a_pinned_topology() -> None:
    pinned: set[type[Node]] = set()
    for build in (*TOPOLOGIES.values(), caught):
        app = st.App("pinned", failures=st.DeadLetter("failed") if build is caught else "stop")
        build(app)
        pinned |= {type(node) for sink in app.sinks for node in ancestors(sink)}
    # A DataFrame as a source needs Spark; its text is tested below.
    assert pinned == set(NODES) - {FrameSource}


def test_the_text_of_a_dataframe_as_a_source() -> None:
    node = FrameSource(st.String.shape, st.Long.shape, rows=None)
    assert node.describe() == ("from_df", "key string, value bigint")
    assert node.engine == "DataFrame"


def test_an_error_that_a_node_finds_names_the_line_of_the_call() -> None:
    orders = st.App("lines").stream("orders", value=ORDER)
    with pytest.raises(st.TopologyError, match=r"^repartition \(test_operators\.py:\d+\): "):
        orders.repartition(0)


def test_functions_over_dataframes_have_no_records_for_the_dead_letter_topic() -> None:
    app = st.App("frames", failures=st.DeadLetter("failed"))
    orders = app.stream("orders", value=ORDER)
    orders.transform_df(lambda rows: rows).to("copies")
    assert [each.topic for each in app.sinks] == ["copies"]
    orders.map_values(lambda order: f"{order.id}", schema="string").to("ids")
    assert [each.topic for each in app.sinks] == ["copies", "ids", "failed"]
    caught_nodes = [
        node
        for node in ancestors(app.sinks[1])
        if isinstance(node, RecordOperator) and node.catches_errors
    ]
    assert len(caught_nodes) == 1

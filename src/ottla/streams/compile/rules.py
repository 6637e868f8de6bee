"""Interface between the compiler and the rules of the operators.

A rule takes a node and returns its rows. Each module of a family has a table `RULES` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame

from ottla.streams.operators.topics import Source
from ottla.streams.plan.node import Node


class Topics(Protocol):
    """Provider of the rows of sources: topics of a cluster, or the records of a test.

    The rows have the columns of `format("ottla")`: key, value, timestamp, and offset for tables.
    """

    def stream(self, source: Source, *, with_origin: bool = False) -> DataFrame:
        """Return new rows, on request with their topic, partition and offset."""

    def table(self, source: Source) -> DataFrame:
        """Return all rows of the topic, read again in every micro-batch."""

    def clock(self, every_ms: int) -> DataFrame:
        """Return wall-clock ticks: rows of `ms`, one per interval."""

    def observed(self, node: Node, rows: DataFrame) -> DataFrame:
        """Return the rows, counted as the operator's output if metrics are enabled."""


class Inputs(Protocol):
    """Inputs of a rule: the rows of other nodes, and the topics."""

    @property
    def topics(self) -> Topics: ...

    def frame(self, node: Node) -> DataFrame:
        """Return the rows of a node."""


Rule = Callable[[Any, Inputs], DataFrame]
"""Function of a node, of the type under which it is in the table, and of its inputs."""
Rules = Mapping[type[Node], Rule]

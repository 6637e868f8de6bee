"""Nodes of a plan as values: what every source, operator and sink has in common.

The records of a stream are events; those of a table are the changes of the latest value of each
key. A node with `emits_changes` updates earlier output rather than only appending to it, which
decides how a sink writes it (Spark's update mode) and what may be built on it.

The nodes themselves are in `ottla.streams.operators`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from ottla.streams.plan.shapes import DataShape
from ottla.streams.plan.tracing import InPython, Traced

Function = Traced | InPython


@dataclass(frozen=True, eq=False)
class Node(ABC):
    """Source, operator or sink, with the shapes of its keys and values."""

    key: DataShape
    value: DataShape

    @abstractmethod
    def describe(self) -> tuple[str, str]:
        """Return the name of the operator and a description.

        Applications store both beside their checkpoints and do not start if they differ. A change
        of the text therefore breaks every application that uses the operator.
        """

    @property
    def engine(self) -> str:
        """Engine that runs the operator, in the notation of `explain`, or an empty string."""
        return ""

    @property
    def parents(self) -> tuple[Node, ...]:
        return ()

    @property
    def functions_used(self) -> tuple[Function, ...]:
        """Functions of the user that the operator calls."""
        return ()

    @property
    def fingerprints(self) -> Iterator[str]:
        """Hashes of the user's code. A checkpoint is refused if one differs."""
        for each in self.functions_used:
            if isinstance(each, InPython):
                yield each.fingerprint

    @property
    def emits_changes(self) -> bool:
        return any(parent.emits_changes for parent in self.parents)

    @property
    def is_windowed(self) -> bool:
        """Whether each key has a window."""
        return any(parent.is_windowed for parent in self.parents)

    @property
    def is_one_to_one(self) -> bool:
        """Whether the node emits exactly one row for each input row.

        A Python function is excluded: a record on which it raises may go to the dead-letter topic.
        """
        return False

    @property
    def state_word(self) -> str | None:
        """Word for the results of a stateful operator, or None for a stateless one.

        A query can have two only as described in `operators.chains`.
        """
        return None

    @property
    def watermark_delay_ms(self) -> int | None:
        """Delay of a stateful operator's watermark, if an aggregation can follow in the same query.

        Records that are later are dropped, by both operators. See `operators.chains`.
        """
        return None

    @property
    def needs_append_mode(self) -> bool:
        """Whether Spark supports the operator only in queries that append rows."""
        return False

    @property
    def topic_read(self) -> str | None:
        """Topic that the node reads."""
        return None

    @property
    def topic_written(self) -> str | None:
        """Topic that the node writes."""
        return None

    @property
    def late_topic(self) -> str | None:
        """Topic of records that arrive too late for the windows of this node."""
        return None


@dataclass(frozen=True, eq=False)
class UnaryNode(Node):
    """Node with one input."""

    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)


def engine_of(function: Function) -> str:
    """Return the engine that runs a function: Spark's columns, or Python and the reason for it."""
    return f"Python: {function.reason}" if isinstance(function, InPython) else "columns"


def ancestors(node: Node) -> list[Node]:
    """Return the node and all nodes upstream of it, without duplicates, parents first."""
    found: list[Node] = []

    def visit(each: Node) -> None:
        if any(each is one for one in found):
            return
        for parent in each.parents:
            visit(parent)
        found.append(each)

    visit(node)
    return found


def has_state(node: Node) -> bool:
    """Return whether the node or one upstream of it is stateful."""
    return any(each.state_word is not None for each in ancestors(node))

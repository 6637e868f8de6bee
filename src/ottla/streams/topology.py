"""Topology of an application while it is built: the sinks that streams and tables end in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.streams.errors import topology_error
from ottla.streams.operators.stateless import Failures, RecordOperator, with_errors_caught
from ottla.streams.operators.topics import Printed, Sink, Source, make_bytes_sink
from ottla.streams.plan.node import Node, ancestors
from ottla.streams.real_time import refuse_without_real_time
from ottla.streams.serdes import Bytes, DeadLetter


class Topology:
    """Sinks of an application, in the order in which they were added.

    Args:
        name: Name of the application.
        failures: Dead-letter topic for records on which a Python function raises, or None to stop
            the application there.
        frame_of: Function that returns the rows of a node as a streaming DataFrame.
        is_real_time: Whether to refuse what a real-time application cannot run.
    """

    def __init__(
        self,
        name: str,
        failures: DeadLetter | None,
        frame_of: Callable[[Node], Any],
        *,
        is_real_time: bool = False,
    ) -> None:
        self._is_real_time = is_real_time
        self.name = name
        self.frame_of = frame_of
        self._failures = failures
        self._sinks: list[Sink] = []

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return (*self._sinks, *self._failure_sinks())

    def _failure_sinks(self) -> Iterator[Sink]:
        """Yield the sink for records on which a function raised, if a function may fail softly."""
        if self._failures is None:
            return
        found = {
            id(node): node
            for sink in self._sinks
            for node in ancestors(sink)
            if isinstance(node, RecordOperator) and node.catches_errors
        }
        if found:
            failed = Failures(Bytes.shape, Bytes.shape, tuple(found.values()))
            yield make_bytes_sink(failed, self._failures.topic)

    def with_failure_handling(self, node: Node) -> Node:
        """Return the operator, changed so that its failures reach the dead-letter topic if any."""
        return node if self._failures is None else with_errors_caught(node)

    def add_sink(self, sink: Sink) -> None:
        """Add a sink.

        Raises:
            TopologyError: Its topic is written already, or read by the same query, or a real-time
                application cannot run one of its operators.
        """
        if self._is_real_time:
            refuse_without_real_time(sink)
        _refuse_changes_without_append_mode(sink)
        taken = [topic for each in self._sinks for topic in (each.topic, each.late_topic)]
        if self._failures is not None:
            taken.append(self._failures.topic)
        if sink.topic in taken or (sink.late_topic is not None and sink.late_topic in taken):
            raise topology_error(
                "to", f"topic {sink.topic!r} is already written; merge the two streams"
            )
        read = [each.topic for each in ancestors(sink) if isinstance(each, Source)]
        if sink.topic in read and not isinstance(sink, Printed):
            raise topology_error(
                "to", f"the query would read topic {sink.topic!r} as well, so it would never end"
            )
        self._sinks.append(sink)

    def unused_topic_name(self, name: str) -> str:
        """Return the name for an internal topic, with a number appended if it is taken."""
        taken = {each.topic for each in self.sinks}
        numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
        return next(each for each in (name, *numbered) if each not in taken)


def _refuse_changes_without_append_mode(sink: Sink) -> None:
    if not sink.emits_changes:
        return
    for each in ancestors(sink):
        if each.needs_append_mode:
            name = each.describe()[0]
            raise topology_error(
                "to",
                f"Spark cannot emit every change of an aggregation after the {name}; emit only the "
                f"final results of windows with suppress(), or write the {name} with to(topic) "
                "and continue from app.stream(topic)",
            )

"""A plan as text: what is done, from the topics down to the sink, and by what.

[columns]       Spark's own expressions, at the JVM's speed
[Python: why]   a Python function over Arrow batches, and why it could not be traced
[state]         Spark's built-in state"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.streams.durations import spelled as duration
from ottla.streams.plan.nodes import (
    Aggregated,
    BadRecords,
    Deduplicated,
    Filter,
    FlatMapValues,
    Function,
    MapValues,
    Merge,
    Node,
    SelectKey,
    Sink,
    Source,
    StreamJoin,
    Suppressed,
    TableJoin,
    ancestors,
)
from ottla.streams.plan.tracing import InPython, spelled


def explain(sinks: Sequence[Sink]) -> str:
    """For people: with what runs each step."""
    return "\n\n".join("\n".join(_lines(sink, with_engine=True)) for sink in sinks)


def topology(sinks: Sequence[Sink]) -> str:
    """What must not change under a checkpoint."""
    return "\n\n".join("\n".join(_lines(sink, with_engine=False)) for sink in sinks)


def _lines(sink: Sink, *, with_engine: bool) -> Iterator[str]:
    nodes = ancestors(sink)
    numbers = {id(node): number for number, node in enumerate(nodes, 1)}
    for node in nodes:
        operator, what = _words(node)
        parents = [numbers[id(parent)] for parent in node.parents]
        is_next = parents == [numbers[id(node)] - 1]
        origin = "" if is_next or not parents else f" of {', '.join(map(str, parents))}"
        text = f"{numbers[id(node)]:>2}  {operator}{origin}  {what}"
        if with_engine:
            text += _engine(node)
        elif isinstance(function := _function(node), InPython):
            text += f" #{function.fingerprint}"
        yield text.rstrip()


def _words(node: Node) -> tuple[str, str]:  # noqa: C901 - one case per operator
    match node:
        case Source(is_table=is_table):
            time = f", time {spelled(node.time)}" if node.time is not None else ""
            kind = "table" if is_table else "stream"
            return kind, (
                f"topic {node.topic}: key {node.key_serde} {node.key}, "
                f"value {node.value_serde} {node.value}{time}"
            )
        case BadRecords(source=source):
            return "bad records", f"topic {source.topic}: value {source.value_serde} {source.value}"
        case Deduplicated(function=function, within_ms=within_ms):
            return "deduplicate", f"{spelled(function)} within {duration(within_ms)}"
        case Filter(function=function, negated=negated):
            return "filter_not" if negated else "filter", spelled(function)
        case MapValues(function=function):
            return "map_values", f"{spelled(function)} -> {node.value}"
        case FlatMapValues(function=function):
            return "flat_map_values", f"{spelled(function)} -> {node.value}"
        case SelectKey(function=function):
            return "select_key", f"{spelled(function)} -> {node.key}"
        case Merge():
            return "merge", ""
        case Aggregated(window=window, aggregates=aggregates):
            what = ", ".join(f"{name}={each}" for name, each in aggregates)
            return "aggregate", f"{what} by key" + (f", {window}" if window is not None else "")
        case Suppressed():
            return "suppress", "until the window closes"
        case StreamJoin():
            within, grace = duration(node.within_ms), duration(node.grace_ms)
            return f"{node.how} join", f"within {within}, grace {grace}: {spelled(node.function)}"
        case TableJoin():
            return f"{node.how} join", f"with the table as it is: {spelled(node.function)}"
        case Sink():
            key = f"windowed {node.key_serde}" if node.has_window_in_key else node.key_serde
            return "to", f"topic {node.topic}: key {key}, value {node.value_serde}"
    raise AssertionError(f"unknown node {type(node).__name__}")


def _engine(node: Node) -> str:
    match node:
        case Aggregated() | StreamJoin() | Deduplicated():
            return "  [state]"
        case Sink():
            return "  [changes]" if node.emits_changes else "  [appends]"
        case Source(time=None) | BadRecords() | Merge() | Suppressed():
            return ""
    function = _function(node)
    if isinstance(function, InPython):
        return f"  [Python: {function.reason}]"
    return "  [columns]"


def _function(node: Node) -> Function | None:
    if isinstance(node, Source):
        return node.time
    return getattr(node, "function", None)

"""Plan as text: the operators from the topics down to the sink, and the engine that runs each.

[columns]       Spark expressions, at the speed of the JVM
[Python: why]   a Python function over Arrow batches, and why it could not be traced
[state]         Spark's built-in state
[Python state]  state in Python, over Arrow batches, one bucket of keys at a time
[DataFrame]     Spark code of the user
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.streams.durations import format_duration as duration
from ottla.streams.plan.nodes import (
    Aggregated,
    BadRecords,
    Changing,
    Deduplicated,
    Failures,
    Filter,
    FlatMap,
    FlatMapValues,
    ForeignJoin,
    FrameSource,
    Function,
    Lookup,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Printed,
    Processed,
    PythonAggregated,
    Repartitioned,
    SelectKey,
    Sink,
    Source,
    StreamJoin,
    Subscribing,
    Suppressed,
    TableAggregated,
    TableFilter,
    TableJoin,
    TablesJoin,
    Transformed,
    ancestors,
)
from ottla.streams.plan.tracing import InPython, format_function


def explain(sinks: Sequence[Sink]) -> str:
    """Return the plan for people, with the engine of each operator."""
    return "\n\n".join("\n".join(_lines(sink, with_engine=True)) for sink in sinks)


def topology(sinks: Sequence[Sink]) -> str:
    """Return the part of the plan that must not change while a checkpoint is in use."""
    return "\n\n".join("\n".join(_lines(sink, with_engine=False)) for sink in sinks)


def _lines(sink: Sink, *, with_engine: bool) -> Iterator[str]:
    nodes = ancestors(sink)
    numbers = {id(node): number for number, node in enumerate(nodes, 1)}
    for node in nodes:
        operator, what = _describe(node)
        parents = [numbers[id(parent)] for parent in node.parents]
        is_next = parents == [numbers[id(node)] - 1]
        origin = "" if is_next or not parents else f" of {', '.join(map(str, parents))}"
        text = f"{numbers[id(node)]:>2}  {operator}{origin}  {what}"
        if with_engine:
            text += _engine(node)
        else:
            text += "".join(f" #{each}" for each in _fingerprints(node))
        yield text.rstrip()


def _fingerprints(node: Node) -> Iterator[str]:
    if isinstance(node, Processed):
        yield node.fingerprint
    functions = (_function(node), getattr(node, "on", None), *getattr(node, "functions", ()))
    for each in functions:
        if isinstance(each, InPython):
            yield each.fingerprint


def _describe(node: Node) -> tuple[str, str]:
    return _describe_end(node) or _describe_stateless(node) or _describe_stateful(node)


def _describe_end(node: Node) -> tuple[str, str] | None:
    match node:
        case Source(is_table=is_table):
            time = f", time {format_function(node.time)}" if node.time is not None else ""
            kind = "table" if is_table else "stream"
            return kind, (
                f"topic {node.topic}: key {node.key_serde} {node.key}, "
                f"value {node.value_serde} {node.value}{time}"
            )
        case BadRecords(source=source):
            return "bad records", f"topic {source.topic}: value {source.value_serde} {source.value}"
        case Failures():
            return "failures", "records for which a function raised"
        case FrameSource():
            return "from_df", f"key {node.key}, value {node.value}"
        case Printed():
            return "print", f"[{node.topic}]: key, value"
        case Sink():
            key = f"windowed {node.key_serde}" if node.has_window_in_key else node.key_serde
            late = f", late records to {node.late_topic}" if node.late_topic is not None else ""
            kind = "internal topic" if node.is_internal else "topic"
            return "to", f"{kind} {node.topic}: key {key}, value {node.value_serde}{late}"
    return None


def _describe_stateless(node: Node) -> tuple[str, str] | None:
    match node:
        case Filter(function=function, negated=negated):
            return "filter_not" if negated else "filter", format_function(function)
        case TableFilter(function=function, negated=negated):
            return (
                "filter_not" if negated else "filter",
                f"{format_function(function)}, others deleted",
            )
        case Map(function=function):
            return "map", f"{format_function(function)} -> {node.key}: {node.value}"
        case FlatMap(function=function):
            return "flat_map", f"{format_function(function)} -> {node.key}: {node.value}"
        case MapValues(function=function):
            return "map_values", f"{format_function(function)} -> {node.value}"
        case FlatMapValues(function=function):
            return "flat_map_values", f"{format_function(function)} -> {node.value}"
        case SelectKey(function=function):
            return "select_key", f"{format_function(function)} -> {node.key}"
        case Peek(function=function):
            return "peek", format_function(function)
        case Merge():
            return "merge", ""
        case Repartitioned(partitions=partitions):
            return "repartition", f"by key, {partitions} partitions"
        case Transformed(function=function):
            return "transform", f"{format_function(function)} -> {node.key}: {node.value}"
    return None


def _describe_stateful(node: Node) -> tuple[str, str]:
    match node:
        case Deduplicated(function=function, within_ms=within_ms):
            return "deduplicate", f"{format_function(function)} within {duration(within_ms)}"
        case Aggregated(window=window, aggregates=aggregates):
            what = ", ".join(f"{name}={each}" for name, each in aggregates)
            return "aggregate", f"{what} by key" + (f", {window}" if window is not None else "")
        case PythonAggregated(operator=operator, what=what, window=window):
            by = f"{what} by key" + (f", {window}" if window is not None else "")
            return operator, f"{by} -> {node.value}"
        case Changing():
            return "changes", "of each key: before and now"
        case TableAggregated(operator=operator, what=what, function=function):
            return operator, f"{what} by {format_function(function)} -> {node.value}"
        case Suppressed(limit_ms=None):
            return "suppress", "until the window closes"
        case Suppressed(limit_ms=int(limit_ms)):
            return "suppress", f"until a time limit of {duration(limit_ms)}"
        case Processed(name=name, clock_ms=clock_ms):
            by = "" if clock_ms is None else ", by the wall clock too"
            return "process", f"{name}{by} -> {node.key}: {node.value}"
    return _describe_join(node)


def _describe_join(node: Node) -> tuple[str, str]:
    match node:
        case StreamJoin():
            within, grace = duration(node.within_ms), duration(node.grace_ms)
            return (
                f"{node.how} join",
                f"within {within}, grace {grace}: {format_function(node.function)}",
            )
        case TableJoin():
            return f"{node.how} join", f"with the table as it is: {format_function(node.function)}"
        case Lookup():
            by = f"on {format_function(node.on)}, with the table as it is"
            return f"{node.how} join", f"{by}: {format_function(node.function)}"
        case TablesJoin():
            return f"{node.how} join", f"of tables by key: {format_function(node.function)}"
        case Subscribing():
            return "subscribe", f"to the foreign key {format_function(node.function)}"
        case ForeignJoin():
            return f"{node.how} join", f"of tables by foreign key: {format_function(node.function)}"
    raise AssertionError(f"unknown node {type(node).__name__}")


def _engine(node: Node) -> str:
    match node:
        case Aggregated() | StreamJoin() | Deduplicated():
            return "  [state]"
        case PythonAggregated(why=why):
            return f"  [Python state: {why}]"
        case Processed(clock_ms=int(clock_ms)):
            return f"  [Python state; the clock every {duration(clock_ms)}]"
        case Processed() | Changing():
            return "  [Python state]"
        case Suppressed(parent=parent, limit_ms=int()) if not isinstance(parent, PythonAggregated):
            return "  [Python state]"
        case Sink():
            return "  [changes]" if node.emits_changes else "  [appends]"
        case FrameSource() | Transformed():
            return "  [DataFrame]"
        case (
            Source(time=None) | BadRecords() | Failures() | Merge() | Suppressed() | Repartitioned()
        ):
            return ""
    function = _function(node)
    text = f"Python: {function.reason}" if isinstance(function, InPython) else "columns"
    if isinstance(on := getattr(node, "on", None), InPython):
        text += f"; on: Python: {on.reason}"
    if isinstance(node, TablesJoin | ForeignJoin | Subscribing | TableAggregated):
        text = f"Python state; {text}"
    return f"  [{text}]"


def _function(node: Node) -> Function | None:
    if isinstance(node, Source):
        return node.time
    return getattr(node, "function", None)


def describe(node: Node) -> tuple[str, str]:
    """Return the name of an operator and a description."""
    return _describe(node)


def engine(node: Node) -> str:
    """Return the engine of an operator, in the notation of `explain`."""
    return _engine(node)

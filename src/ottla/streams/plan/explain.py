"""Plan as text: the operators from the topics down to the sink, and the engine that runs each.

[columns]       Spark expressions, at the speed of the JVM
[Python: why]   a Python function over Arrow batches, and why it could not be traced
[state]         Spark's built-in state
[Python state]  state in Python, over Arrow batches, one bucket of keys at a time
[DataFrame]     Spark code of the user
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.streams.plan.node import Node, ancestors


def explain(sinks: Sequence[Node]) -> str:
    """Return the plan for people, with the engine of each operator."""
    return "\n\n".join("\n".join(_lines(sink, with_engine=True)) for sink in sinks)


def topology(sinks: Sequence[Node]) -> str:
    """Return the part of the plan that must not change while a checkpoint is in use."""
    return "\n\n".join("\n".join(_lines(sink, with_engine=False)) for sink in sinks)


def _lines(sink: Node, *, with_engine: bool) -> Iterator[str]:
    nodes = ancestors(sink)
    numbers = {id(node): number for number, node in enumerate(nodes, 1)}
    for node in nodes:
        operator, what = node.describe()
        parents = [numbers[id(parent)] for parent in node.parents]
        is_next = parents == [numbers[id(node)] - 1]
        origin = "" if is_next or not parents else f" of {', '.join(map(str, parents))}"
        text = f"{numbers[id(node)]:>2}  {operator}{origin}  {what}"
        if with_engine:
            text += f"  [{node.engine}]" if node.engine else ""
        else:
            text += "".join(f" #{each}" for each in node.fingerprints)
        yield text.rstrip()

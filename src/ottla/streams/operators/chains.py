"""Two operators with state in one query: an aggregation after a join of streams or a deduplication.

    join of streams, deduplicate  ->  operators without state  ->  aggregation in Spark's state

Spark computes one watermark for a query, here that of the first operator. It drops records that are
later than that operator accepts, and a window closes as soon as the first operator can no longer
emit a record for it. Windows with at least the same grace period would do the same. Those with a
shorter one would get records that are too late for them, and therefore need a query of their own;
so does everything that Spark cannot combine, such as Python state, sessions and a second join.
"""

from __future__ import annotations

from ottla.streams.durations import format_duration
from ottla.streams.errors import topology_error
from ottla.streams.operators.checks import refuse_second_state
from ottla.streams.operators.stateless import RecordOperator, Repartitioned
from ottla.streams.plan.node import Node
from ottla.streams.windows import Window


def first_state(node: Node) -> Node | None:
    """Return the operator with state to whose results an aggregation can be added, if any.

    Between the two, only operators that keep the times of the records are possible.
    """
    while isinstance(node, RecordOperator | Repartitioned):
        node = node.parent
    return None if node.watermark_delay_ms is None else node


def refuse_unless_combinable(operator: str, node: Node, window: Window | None) -> None:
    """Refuse an aggregation in Spark's state if it cannot run in one query with its input."""
    first = first_state(node)
    delay_ms = None if first is None else first.watermark_delay_ms
    if first is None or delay_ms is None or (window is not None and window.is_session):
        refuse_second_state(operator, node)
    elif window is not None and window.grace_ms < delay_ms:
        name, delay = first.describe()[0], format_duration(delay_ms)
        raise topology_error(
            operator,
            f"the {name} before it accepts records up to {delay} late, but the windows only "
            f"{format_duration(window.grace_ms)}; use grace={delay!r}, or write the result of the "
            f"{name} with to(topic) and continue from app.stream(topic)",
        )

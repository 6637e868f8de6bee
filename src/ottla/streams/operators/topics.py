"""Sources and sinks: where records come from and where they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ottla.streams.errors import listed, topology_error
from ottla.streams.operators.checks import refuse_after_late_topic
from ottla.streams.plan.node import Function, Node, UnaryNode, ancestors, engine_of
from ottla.streams.plan.shapes import DataShape, type_family
from ottla.streams.plan.tracing import Traced, format_function, trace
from ottla.streams.serdes import (
    Bytes,
    DeadLetter,
    Serde,
    SinkSerde,
    default_serde,
    sink_serde,
    source_serde,
)

StartOffset = Literal["earliest", "latest"]
STARTS: tuple[StartOffset, ...] = ("earliest", "latest")
BadRecordPolicy = Literal["stop", "drop"]
POLICIES: tuple[BadRecordPolicy, ...] = ("stop", "drop")


# ------------------------------------------------------------------------------------ the sources


@dataclass(frozen=True, eq=False)
class Source(Node):
    """Topic that is read as a stream or as a table."""

    topic: str
    key_serde: Serde
    value_serde: Serde
    time: Function | None = None
    start: StartOffset = "earliest"
    bad_records: BadRecordPolicy | DeadLetter = "stop"
    is_table: bool = False

    @property
    def topic_read(self) -> str:
        return self.topic

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return () if self.time is None else (self.time,)

    @property
    def engine(self) -> str:
        return "" if self.time is None else engine_of(self.time)

    def describe(self) -> tuple[str, str]:
        time = f", time {format_function(self.time)}" if self.time is not None else ""
        return "table" if self.is_table else "stream", (
            f"topic {self.topic}: key {self.key_serde} {self.key}, "
            f"value {self.value_serde} {self.value}{time}"
        )


def make_source(
    topic: str,
    key: Serde,
    value: Serde,
    time: Callable[..., Any] | None = None,
    start: str = "earliest",
    bad_records: str | DeadLetter = "stop",
    *,
    is_table: bool,
) -> Source:
    """Check the arguments of `App.stream` and `App.table`, and return the source."""
    operator = "table" if is_table else "stream"
    if not topic or type(topic) is not str:
        raise topology_error(operator, f"{topic!r} is not a topic name")
    key, value = source_serde(operator, "key", key), source_serde(operator, "value", value)
    if start not in STARTS:
        raise topology_error(operator, f"start={start!r} is invalid; use {' or '.join(STARTS)}")
    policy = _bad_record_policy(operator, bad_records, is_table=is_table)
    traced_time = None if time is None else trace("time", time, key.shape, value.shape)
    if isinstance(traced_time, Traced) and getattr(traced_time.outcome, "type", "") not in (
        "timestamp",
        "bigint",
        None,
    ):
        raise topology_error(
            "time", "the function must return a timestamp, or milliseconds as a bigint"
        )
    return Source(key.shape, value.shape, topic, key, value, traced_time, start, policy, is_table)


def _bad_record_policy(
    operator: str, policy: str | DeadLetter, *, is_table: bool
) -> BadRecordPolicy | DeadLetter:
    if isinstance(policy, DeadLetter):
        if not is_table:
            return policy
    elif policy in POLICIES:
        return policy
    valid = listed(POLICIES) + ("" if is_table else ", st.DeadLetter(topic)")
    raise topology_error(operator, f"bad_records={policy!r} is invalid; valid values: {valid}")


def source_topic_of(node: Node) -> str:
    """Return the topic from which the keys of a node come: the first that it reads."""
    return next(each.topic for each in ancestors(node) if isinstance(each, Source))


@dataclass(frozen=True, eq=False)
class BadRecords(Node):
    """Records of a topic that cannot be parsed, as bytes."""

    source: Source

    @property
    def topic_read(self) -> str:
        return self.source.topic

    def describe(self) -> tuple[str, str]:
        of = self.source
        return "bad records", f"topic {of.topic}: value {of.value_serde} {of.value}"


@dataclass(frozen=True, eq=False)
class FrameSource(Node):
    """Streaming DataFrame of the user."""

    rows: Any

    @property
    def engine(self) -> str:
        return "DataFrame"

    def describe(self) -> tuple[str, str]:
        return "from_df", f"key {self.key}, value {self.value}"


# -------------------------------------------------------------------------------------- the sinks


@dataclass(frozen=True, eq=False)
class Sink(UnaryNode):
    """Topic that a query writes."""

    topic: str
    key_serde: Serde
    value_serde: Serde
    has_window_in_key: bool
    is_internal: bool = False
    """Whether the topic is internal, between two queries of the application."""

    @property
    def topic_written(self) -> str:
        return self.topic

    @property
    def late_topic(self) -> str | None:
        return self.parent.late_topic

    @property
    def is_one_to_one(self) -> bool:
        return True

    @property
    def engine(self) -> str:
        return "changes" if self.emits_changes else "appends"

    def describe(self) -> tuple[str, str]:
        key = f"windowed {self.key_serde}" if self.has_window_in_key else self.key_serde
        late = f", late records to {self.late_topic}" if self.late_topic is not None else ""
        kind = "internal topic" if self.is_internal else "topic"
        return "to", f"{kind} {self.topic}: key {key}, value {self.value_serde}{late}"


@dataclass(frozen=True, eq=False)
class Printed(Sink):
    """Sink that writes to standard output; `topic` is the label at the start of each line."""

    def describe(self) -> tuple[str, str]:
        return "print", f"[{self.topic}]: key, value"


def make_sink(
    node: Node,
    topic: str,
    key: SinkSerde | None = None,
    value: SinkSerde | None = None,
    *,
    is_internal: bool = False,
) -> Sink:
    """Check the arguments of `to`, and return the sink."""
    if not topic or type(topic) is not str:
        raise topology_error("to", f"{topic!r} is not a topic name")
    if node.late_topic is None:
        refuse_after_late_topic("to", node)
    key_serde = sink_serde("key", key, node.key)
    value_serde = sink_serde("value", value, node.value)
    for what, serde, shape in (("key", key_serde, node.key), ("value", value_serde, node.value)):
        if serde is not None and not _can_encode(serde, shape):
            raise topology_error("to", f"{what} {shape} cannot be written as {serde} {serde.shape}")
    return Sink(
        node.key,
        node.value,
        node,
        topic,
        key_serde or default_serde(node.key),
        value_serde or default_serde(node.value),
        has_window_in_key=node.is_windowed and key_serde is None,
        is_internal=is_internal,
    )


def make_bytes_sink(node: Node, topic: str) -> Sink:
    """Return a sink for records that are bytes already."""
    return Sink(node.key, node.value, node, topic, Bytes, Bytes, has_window_in_key=False)


def make_print_sink(node: Node, label: str) -> Printed:
    """Check the arguments of `print`, and return the sink."""
    refuse_after_late_topic("print", node)
    serdes = default_serde(node.key), default_serde(node.value)
    return Printed(node.key, node.value, node, label, *serdes, has_window_in_key=False)


def _can_encode(serde: Serde, shape: DataShape) -> bool:
    if serde.name == "json":
        is_same_kind = serde.shape.is_record == shape.is_record
        return is_same_kind and set(serde.shape.names) <= set(shape.names)
    if shape.is_record:
        return False
    of_type = shape.columns[0].type
    return of_type is None or type_family(of_type) == type_family(serde.shape.columns[0].type)

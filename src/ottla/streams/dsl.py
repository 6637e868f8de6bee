"""Streams. Each call of an operator returns a new plan and checks it.

A `Stream` holds events; see `table` for the latest values of keys, and `grouped` for aggregations.
An operator checks its arguments when it is called; an error names the operator, the line of the
call and the valid choices.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ottla.streams.checks import (
    make_print_sink,
    make_sink,
    make_source,
    pair_shapes,
    parse_schema,
    refuse_second_state,
    refuse_two_states,
    refuse_untyped,
    shape_of,
)
from ottla.streams.durations import Duration, duration_ms
from ottla.streams.errors import topology_error
from ottla.streams.grouped import Grouped
from ottla.streams.joins import check_how, joined_value, lookup, refuse_uncopartitioned
from ottla.streams.plan.nodes import (
    Deduplicated,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Processed,
    Repartitioned,
    SelectKey,
    Source,
    StreamJoin,
    TableJoin,
    Transformed,
)
from ottla.streams.plan.shapes import plain_shape
from ottla.streams.plan.tracing import InPython, Traced, fingerprint_of_class, in_python, trace
from ottla.streams.serdes import Serde, default_serde
from ottla.streams.state.processors import Processor, has_wall_clock
from ottla.streams.table import GlobalTable, Table
from ottla.streams.topology import Topology

RecordFunction = Callable[..., Any]
"""Function of (value), (key, value) or (key, value, timestamp)."""

DEFAULT_CLOCK_INTERVAL = "1 second"
"""Default interval at which processors check the wall clock."""
MIN_CLOCK_MS = 100
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Stream:
    """A stream of records: a topic, or the result of an operator."""

    def __init__(self, topology: Topology, node: Node) -> None:
        self._topology = topology
        self._node = node

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the value."""
        return self._node.value.names

    def __repr__(self) -> str:
        return f"Stream(key={self._node.key}, value={self._node.value})"

    # ----------------------------------------------------------------------------- one to one

    def filter(self, predicate: RecordFunction) -> Stream:
        """Keep the records for which a predicate is true. Null counts as false.

        Args:
            predicate: Function over records that returns a boolean.

        Example:
            orders.filter(lambda order: order.amount > 100)
        """
        return self._filtered("filter", predicate, negated=False)

    def filter_not(self, predicate: RecordFunction) -> Stream:
        """Keep the records for which a predicate is not true.

        Args:
            predicate: Function over records that returns a boolean.
        """
        return self._filtered("filter_not", predicate, negated=True)

    def _filtered(self, operator: str, predicate: RecordFunction, *, negated: bool) -> Stream:
        node = self._node
        function = trace(operator, predicate, node.key, node.value)
        if isinstance(function, Traced) and (
            isinstance(function.outcome, dict | tuple) or function.outcome.type != "boolean"
        ):
            raise topology_error(operator, "the function must return a boolean")
        return self._derived(Filter(node.key, node.value, node, function, negated))

    def branch(self, **predicates: RecordFunction) -> dict[str, Stream]:
        """Split the stream: each record goes to the first branch whose predicate is true.

        Args:
            predicates: Predicate of each branch, by name.

        Returns:
            The branches by name, and `otherwise` for records that match none.

        Example:
            branches = orders.branch(large=lambda order: order.amount > 100)
            branches["large"].to("large-orders")
            branches["otherwise"].to("small-orders")
        """
        if not predicates or "otherwise" in predicates:
            raise topology_error(
                "branch",
                "name the branches: branch(big=…, small=…); the name otherwise is reserved",
            )
        rest, branches = self, {}
        for name, predicate in predicates.items():
            branches[name] = rest._filtered("branch", predicate, negated=False)
            rest = rest._filtered("branch", predicate, negated=True)
        return {**branches, "otherwise": rest}

    def map_values(self, function: RecordFunction, schema: str | None = None) -> Stream:
        """Replace the value of each record.

        Args:
            function: Function over records. A dict becomes a record with columns, any other
                result a plain value.
            schema: Schema of the result, such as `"item string, amount double"`. Needed for
                functions that run in Python.

        Example:
            orders.map_values(lambda order: {"item": order.item, "cents": order.amount * 100})
        """
        node = self._node
        made = trace("map_values", function, node.key, node.value)
        shape = shape_of("map_values", made, schema)
        return self._derived(MapValues(node.key, shape, node, made))

    def map(
        self, function: RecordFunction, schema: str | None = None, *, key_schema: str | None = None
    ) -> Stream:
        """Replace the key and the value of each record.

        Args:
            function: Function over records that returns `(key, value)`.
            schema: Schema of the value. Needed for functions that run in Python.
            key_schema: Schema of the key. Needed for functions that run in Python.
        """
        node = self._node
        made = trace("map", function, node.key, node.value)
        key, value = pair_shapes("map", made, schema, key_schema)
        return self._derived(Map(key, value, node, made))

    def flat_map(self, function: RecordFunction, *, schema: str, key_schema: str) -> Stream:
        """Replace each record by any number of records.

        Args:
            function: Function over records that returns a list of `(key, value)`.
            schema: Schema of the values.
            key_schema: Schema of the keys.
        """
        node = self._node
        made = in_python("flat_map", function, "a list of pairs")
        key, value = pair_shapes("flat_map", made, schema, key_schema)
        return self._derived(FlatMap(key, value, node, made))

    def flat_map_values(self, function: RecordFunction, schema: str | None = None) -> Stream:
        """Replace each record by any number of records with the same key.

        Args:
            function: Function over records that returns a list of values.
            schema: Schema of the values. Needed for functions that run in Python.
        """
        node = self._node
        made = trace("flat_map_values", function, node.key, node.value)
        if isinstance(made, InPython):
            shape = shape_of("flat_map_values", made, schema)
        else:
            of_type = None if isinstance(made.outcome, dict | tuple) else made.outcome.type
            if of_type is None or not of_type.startswith("array<"):
                raise topology_error("flat_map_values", "the function must return a list")
            shape = plain_shape(of_type.removeprefix("array<").removesuffix(">"))
        return self._derived(FlatMapValues(node.key, shape, node, made))

    def select_key(self, function: RecordFunction, schema: str | None = None) -> Stream:
        """Replace the key of each record.

        Args:
            function: Function over records that returns the key.
            schema: Schema of the key. Needed for functions that run in Python.

        Example:
            orders.select_key(lambda order: order.customer_id)
        """
        node = self._node
        made = trace("select_key", function, node.key, node.value)
        shape = shape_of("select_key", made, schema)
        return self._derived(SelectKey(shape, node.value, node, made))

    def merge(self, other: Stream) -> Stream:
        """Combine two streams with the same schema. The order between them is not defined.

        Args:
            other: The other stream.

        Raises:
            TopologyError: Keys or values of the streams have different schemas.
        """
        mine, theirs = self._node, other._node
        for what, left, right in (
            ("keys", mine.key, theirs.key),
            ("values", mine.value, theirs.value),
        ):
            if left != right:
                raise topology_error("merge", f"{what} differ: {left} and {right}")
        merged = Merge(mine.key, mine.value, mine, theirs)
        refuse_two_states("merge", merged)
        return self._derived(merged)

    def peek(self, function: RecordFunction) -> Stream:
        """Call a function for each record, for example to log it, and pass the record on.

        It runs in Spark's executors, and again for the records of a batch that is retried.

        Args:
            function: Function over records; its result is ignored.
        """
        node = self._node
        made = in_python("peek", function, "called for its side effects")
        return self._derived(Peek(node.key, node.value, node, made))

    def repartition(self, partitions: int) -> Stream:
        """Distribute the records by key over a number of tasks, to use as many cores.

        The order within a key is kept. To write the records to a topic, use `through`.

        Args:
            partitions: Number of tasks.
        """
        if type(partitions) is not int or partitions < 1:
            raise topology_error(
                "repartition", f"partitions={partitions!r} is invalid; use an integer of at least 1"
            )
        node = self._node
        return self._derived(Repartitioned(node.key, node.value, node, partitions))

    def transform(
        self, function: RecordFunction, schema: str | None = None, *, key_schema: str | None = None
    ) -> Stream:
        """Apply a function of DataFrames to the stream.

        Args:
            function: Function that takes a DataFrame with the columns key, value and timestamp, and
                returns one.
            schema: Schema of the values, if the function changes it.
            key_schema: Schema of the keys, if the function changes it.
        """
        node = self._node
        made = in_python("transform", function, "a function over DataFrames", arities=(1,))
        key = node.key if key_schema is None else parse_schema(key_schema)
        value = node.value if schema is None else parse_schema(schema)
        return self._derived(Transformed(key, value, node, made))

    @property
    def df(self) -> Any:
        """Streaming DataFrame of the stream, for your own queries in the active Spark session.

        It has the columns key, value and timestamp.
        """
        return self._topology.frame_of(self._node)

    # ---------------------------------------------------------------------------- with state

    def group_by(self, function: RecordFunction, schema: str | None = None) -> Grouped:
        """Group records by a new key. Records with a null key are dropped, as in Kafka Streams.

        Args:
            function: Function over records that returns the key.
            schema: Schema of the key. Needed for functions that run in Python.
        """
        return Grouped(self._topology, self.select_key(function, schema)._node)

    def group_by_key(self) -> Grouped:
        """Group records by their key. Records with a null key are dropped, as in Kafka Streams."""
        return Grouped(self._topology, self._node)

    def deduplicate(self, function: RecordFunction, *, within: Duration) -> Stream:
        """Keep the first record of each identifier and drop its repetitions.

        Records that are later than `within` are dropped, too.

        Args:
            function: Function over records that returns the identifier. It must run as columns.
            within: Event time during which a repetition is recognized.

        Example:
            orders.deduplicate(lambda order: order.id, within="1 hour")
        """
        node = self._node
        refuse_second_state("deduplicate", node)
        made = trace("deduplicate", function, node.key, node.value)
        if isinstance(made, InPython):
            raise topology_error(
                "deduplicate",
                f"the function would run in Python ({made.reason}); compute the identifier with "
                "select_key or map_values first, and return that column here",
            )
        shape_of("deduplicate", made, None)
        within_ms = duration_ms(within, name="within", min_ms=1)
        return self._derived(Deduplicated(node.key, node.value, node, made, within_ms))

    def process(
        self,
        processor: Any,
        *,
        schema: str,
        key_schema: str | None = None,
        clock: Duration | None = None,
    ) -> Stream:
        """Process the stream with a processor of your own.

        Args:
            processor: Subclass of `st.Processor`, or a function that returns an instance.
            schema: Schema of the values that it forwards.
            key_schema: Schema of the keys that it forwards, if it differs from the stream's.
            clock: Interval at which `on_wall_clock` timers are checked; 1 second by default.

        Raises:
            TopologyError: The processor is invalid.
        """
        node = self._node
        refuse_second_state("process", node)
        made: object = processor() if callable(processor) else processor
        if not isinstance(made, Processor):
            raise topology_error("process", f"{processor!r} does not create an st.Processor")
        kind = type(made)
        if kind.process is Processor.process:
            raise topology_error(
                "process", f"{kind.__name__} does not define process(self, record)"
            )
        clock_ms = None
        if has_wall_clock(kind):
            clock_ms = duration_ms(
                clock or DEFAULT_CLOCK_INTERVAL, name="clock", min_ms=MIN_CLOCK_MS
            )
        elif clock is not None:
            raise topology_error(
                "process",
                f"clock={clock!r} needs on_wall_clock, which {kind.__name__} does not define",
            )
        key = node.key if key_schema is None else parse_schema(key_schema)
        refuse_untyped("process", node.key, node.value, key)
        value = parse_schema(schema)
        fingerprint = fingerprint_of_class(kind)
        return self._derived(
            Processed(key, value, node, processor, kind.__name__, fingerprint, clock_ms)
        )

    def join(
        self,
        other: Stream | Table | GlobalTable,
        function: RecordFunction | None = None,
        *,
        how: str = "inner",
        within: Duration | None = None,
        grace: Duration = "0 seconds",
        on: RecordFunction | None = None,
        schema: str | None = None,
    ) -> Stream:
        """Join records with the same key.

        Args:
            other: A stream, joined by time as well; a table, joined with its current value; or a
                global table, joined with any key.
            function: Function of the left and the right value that returns the new value. None
                combines the columns of both.
            how: `"inner"` or `"left"`, and `"outer"` for two streams.
            within: Maximum difference of the timestamps. Streams only, and needed there.
            grace: How late records may be. Streams only.
            on: Function over records that returns the key to look up. Global tables only.
            schema: Schema of the new value. Needed for functions that run in Python.

        Raises:
            TopologyError: The two cannot be joined.

        Example:
            orders.join(payments, within="5 minutes")
            orders.join(customers, lambda order, customer: {"name": customer.name})
        """
        if isinstance(other, Table | GlobalTable):
            return self._join_table(other, function, how, within, on, schema)
        if not isinstance(other, Stream):
            raise topology_error("join", f"{other!r} is not a stream, table or global table")
        if on is not None:
            raise topology_error(
                "join", "on= applies only to global tables; use select_key on both streams"
            )
        how = check_how("join", how, ("inner", "left", "outer"))
        if within is None:
            raise topology_error(
                "join", 'a join of two streams needs a window, such as within="5 minutes"'
            )
        refuse_second_state("join", self._node)
        refuse_second_state("join", other._node)
        refuse_uncopartitioned("join", self._node, other._node)
        mine, theirs = self._node, other._node
        made, shape = joined_value(mine.value, theirs.value, function)
        shape = shape_of("join", made, schema) if shape is None else shape
        within_ms = duration_ms(within, name="within")
        grace_ms = duration_ms(grace, name="grace")
        return self._derived(
            StreamJoin(mine.key, shape, mine, theirs, how, within_ms, grace_ms, made)
        )

    def _join_table(
        self,
        table: Table | GlobalTable,
        function: RecordFunction | None,
        how: str,
        within: Duration | None,
        on: RecordFunction | None,
        schema: str | None,
    ) -> Stream:
        how = check_how("join", how, ("inner", "left"))
        if within is not None:
            raise topology_error("join", "within= applies only to a join of two streams; remove it")
        node, source = self._node, table._node
        if not isinstance(source, Source):
            raise topology_error(
                "join",
                "the table must be a topic; write it with through(topic) and join the result",
            )
        made, shape = joined_value(node.value, source.value, function)
        shape = shape_of("join", made, schema) if shape is None else shape
        if isinstance(table, GlobalTable):
            return self._derived(lookup(node, source, on, how, made, shape))
        if on is not None:
            raise topology_error(
                "join", "on= applies only to global tables; use app.global_table or select_key"
            )
        refuse_uncopartitioned("join", node, source)
        return self._derived(TableJoin(node.key, shape, node, source, how, made))

    # --------------------------------------------------------------------------------- ends

    def to(self, topic: str, *, key: Serde | None = None, value: Serde | None = None) -> None:
        """Write the stream to a topic.

        Text and bytes are written as they are, everything else as JSON. A windowed key includes
        its window in the format of Kafka Streams, unless `key` is given.

        Args:
            topic: Topic to write to.
            key: Serde of the keys.
            value: Serde of the values.

        Raises:
            TopologyError: The application reads or writes the topic already.
        """
        self._topology.add_sink(make_sink(self._node, topic, key, value))

    def print(self, label: str) -> None:
        """Print each record to standard output as `[label]: key, value`.

        Args:
            label: Label that precedes the records.
        """
        if not _LABEL.fullmatch(label):
            raise topology_error(
                "print",
                f"label {label!r} is invalid; use letters, digits, dots, underscores and dashes",
            )
        self._topology.add_sink(make_print_sink(self._node, label))

    def through(self, topic: str) -> Stream:
        """Write the stream to a topic and continue from it in a separate query.

        Args:
            topic: Topic to write and read.
        """
        node = self._node
        refuse_untyped("through", node.key, node.value)
        key, value = default_serde(node.key), default_serde(node.value)
        self.to(topic, key=key, value=value)
        source = make_source(topic, key, value, None, "earliest", "stop", is_table=False)
        return Stream(self._topology, source)

    def _derived(self, node: Node) -> Stream:
        return Stream(self._topology, self._topology.with_failure_handling(node))

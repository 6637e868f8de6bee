"""Operators of streams that handle each record on its own."""

from __future__ import annotations

from typing import Self

from ottla.base.deprecation import warn_deprecated
from ottla.streams.errors import topology_error
from ottla.streams.operators import stateless
from ottla.streams.operators.stateless import RecordFunction
from ottla.streams.plan.node import Node
from ottla.streams.topology import Topology


class StatelessOperators:
    """A node of a topology, and the stateless operators on its records.

    An operator returns a new stream and leaves this one unchanged.
    """

    def __init__(self, topology: Topology, node: Node) -> None:
        self._topology = topology
        self._node = node

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the value."""
        return self._node.value.names

    def _derived(self, node: Node) -> Self:
        return type(self)(self._topology, self._topology.with_failure_handling(node))

    def filter(self, predicate: RecordFunction) -> Self:
        """Keep the records for which a predicate is true. Null counts as false.

        Args:
            predicate: Function over records that returns a boolean.

        Example:
            orders.filter(lambda order: order.amount > 100)
        """
        return self._filtered("filter", predicate, negated=False)

    def filter_not(self, predicate: RecordFunction) -> Self:
        """Keep the records for which a predicate is not true.

        Args:
            predicate: Function over records that returns a boolean.
        """
        return self._filtered("filter_not", predicate, negated=True)

    def _filtered(self, operator: str, predicate: RecordFunction, *, negated: bool) -> Self:
        return self._derived(stateless.filtered(operator, self._node, predicate, negated=negated))

    def branch(self, **predicates: RecordFunction) -> dict[str, Self]:
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

    def map_values(self, function: RecordFunction, schema: str | None = None) -> Self:
        """Replace the value of each record.

        Args:
            function: Function over records. A dict becomes a record with columns, any other
                result a plain value.
            schema: Schema of the result, such as `"item string, amount double"`. Needed for
                functions that run in Python.

        Example:
            orders.map_values(lambda order: {"item": order.item, "cents": order.amount * 100})
        """
        return self._derived(stateless.mapped_values(self._node, function, schema))

    def map(
        self, function: RecordFunction, schema: str | None = None, *, key_schema: str | None = None
    ) -> Self:
        """Replace the key and the value of each record.

        Args:
            function: Function over records that returns `(key, value)`.
            schema: Schema of the value. Needed for functions that run in Python.
            key_schema: Schema of the key. Needed for functions that run in Python.
        """
        return self._derived(stateless.mapped(self._node, function, schema, key_schema))

    def flat_map(self, function: RecordFunction, *, schema: str, key_schema: str) -> Self:
        """Replace each record by any number of records.

        Args:
            function: Function over records that returns a list of `(key, value)`.
            schema: Schema of the values.
            key_schema: Schema of the keys.
        """
        return self._derived(stateless.flat_mapped(self._node, function, schema, key_schema))

    def flat_map_values(self, function: RecordFunction, schema: str | None = None) -> Self:
        """Replace each record by any number of records with the same key.

        Args:
            function: Function over records that returns a list of values.
            schema: Schema of the values. Needed for functions that run in Python.
        """
        return self._derived(stateless.flat_mapped_values(self._node, function, schema))

    def select_key(self, function: RecordFunction, schema: str | None = None) -> Self:
        """Replace the key of each record.

        Args:
            function: Function over records that returns the key.
            schema: Schema of the key. Needed for functions that run in Python.

        Example:
            orders.select_key(lambda order: order.customer_id)
        """
        return self._derived(stateless.with_key(self._node, function, schema))

    def merge(self, other: Self) -> Self:
        """Combine two streams with the same schema. The order between them is not defined.

        Args:
            other: The other stream.

        Raises:
            TopologyError: Keys or values of the streams have different schemas.
        """
        mine, theirs = self._node, other._node
        return self._derived(stateless.Merge(mine.key, mine.value, mine, theirs))

    def peek(self, function: RecordFunction) -> Self:
        """Call a function for each record, for example to log it, and pass the record on.

        It runs in Spark's executors, and again for the records of a batch that is retried.

        Args:
            function: Function over records; its result is ignored.
        """
        return self._derived(stateless.peeked(self._node, function))

    def repartition(self, partitions: int) -> Self:
        """Distribute the records by key over a number of tasks, to use as many cores.

        The order within a key is kept. To write the records to a topic, use `to`.

        Args:
            partitions: Number of tasks.
        """
        node = self._node
        return self._derived(stateless.Repartitioned(node.key, node.value, node, partitions))

    def transform_df(
        self, function: RecordFunction, schema: str | None = None, *, key_schema: str | None = None
    ) -> Self:
        """Apply a function of DataFrames to the stream.

        Args:
            function: Function that takes a DataFrame with the columns key, value and timestamp, and
                returns one.
            schema: Schema of the values, if the function changes it.
            key_schema: Schema of the keys, if the function changes it.
        """
        made = stateless.transformed(self._node, function, schema, key_schema)
        return self._derived(made)

    def transform(
        self, function: RecordFunction, schema: str | None = None, *, key_schema: str | None = None
    ) -> Self:
        """Apply a function of DataFrames to the stream. Deprecated: use `transform_df`."""
        warn_deprecated("transform()", "Use transform_df().")
        return self.transform_df(function, schema, key_schema=key_schema)

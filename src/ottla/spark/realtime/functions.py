"""Python functions in the columns of a real-time query, on the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructField, StructType


def function_column(
    rows: DataFrame,
    function: Callable[..., Any],
    name: str,
    returns: str,
    arguments: Sequence[Column],
) -> Column:
    """Return a column that calls a function for each row, as soon as the row arrives.

    Args:
        rows: The rows that have the arguments' columns.
        function: The function, which is pickled.
        name: Name of the function, for Spark's plans.
        returns: Type of its result, in Spark's notation.
        arguments: Columns that it is called with. Values have the same types as for Spark's own
            Python functions.
    """
    from pyspark.sql.types import _parse_datatype_string

    found = rows.select(*arguments).schema.fields
    inputs = StructType([StructField(f"_{at}", each.dataType) for at, each in enumerate(found)])
    result = _parse_datatype_string(returns)
    pickled = cloudpickle.dumps((function, inputs, result))  # type: ignore[no-untyped-call]
    spark: Any = rows.sparkSession
    context = spark.sparkContext
    made = spark._jvm.ottla.DefaultSource.functionColumn(
        name,
        pickled,
        inputs.json(),
        result.json(),
        [each._jc for each in arguments],
        context.pythonExec,
        context.environment,
        list(context._python_includes),
    )
    return Column(made)

"""Rows that the planner of a stream passes to Spark together with the plan of a batch.

A task normally starts its reader in a Python process. PySpark can do without: if the reader of a
stream is the wrapper around a `SimpleDataSourceStreamReader`, the planner sends the rows along with
the plan, Spark stores them as a block, and the task reads that block. A batch of a few records is
thereby one Python process and about 4 ms shorter.

The wrapper cannot be used for everything, because it has neither limits nor the latest offset. So a
reader is an instance of it only between the calls `partitions` and `getCache`, which PySpark makes
in succession. Without such a wrapper in PySpark, which is not public, tasks read as usual."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import datasource_internal
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

_WRAPPER: type[DataSourceStreamReader] | None = getattr(
    datasource_internal, "_SimpleStreamReaderWrapper", None
)

_classes: dict[type[DataSourceStreamReader], type[DataSourceStreamReader]] = {}


def pass_rows_with_plan(reader: DataSourceStreamReader, partition: InputPartition) -> None:
    """Make PySpark pass the rows of the batch that is being planned.

    Args:
        reader: Reader whose `partitions` is about to return just this partition.
        partition: Partition to read in this process.
    """
    if _WRAPPER is None:
        return
    kind = type(reader)
    if kind not in _classes:
        _classes[kind] = _with_rows(kind, _WRAPPER)
    vars(reader)["_planned_partition"] = partition
    reader.__class__ = _classes[kind]


def _with_rows(
    kind: type[DataSourceStreamReader], wrapper: type[DataSourceStreamReader]
) -> type[DataSourceStreamReader]:
    def get_cache(reader: Any, start: object, end: object) -> Iterator[Any]:
        partition = vars(reader).pop("_planned_partition")
        reader.__class__ = kind
        return kind.read(reader, partition)

    return type(f"{kind.__name__}WithRows", (kind, wrapper), {"getCache": get_cache})

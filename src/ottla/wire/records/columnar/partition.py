"""Assignment of the rows of a table to partitions.

`partition_by_key` agrees with Java's default partitioner: the murmur2 hash of the key's bytes, with
the sign bit cleared, modulo the number of partitions. `group_rows` sorts rows by partition and
keeps their order within each, so that `encode_batches` can gather the rows of a partition without
copying the table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.wire.records.columnar import partition_kernels as k
from ottla.wire.records.columnar.columns import as_key_column
from ottla.wire.records.columnar.requirements import numpy as np

NO_PARTITION = -1
_MAX_PARTITIONS = 0x7FFFFFFF


class RowGroups(NamedTuple):
    """The rows of a table, grouped by partition."""

    order: Any
    """All row numbers (int64), grouped by partition, in their original order within each."""
    starts: Any
    """Index in `order` of the first row of each partition, followed by the end of the last one."""

    def rows(self, partition: int) -> Any:
        """Return the rows of one partition as a view, for `encode_batches`."""
        return self.order[self.starts[partition] : self.starts[partition + 1]]

    @property
    def partitions(self) -> list[int]:
        """The partitions that have rows."""
        occupied: list[int] = np.flatnonzero(np.diff(self.starts)).tolist()
        return occupied


def partition_by_key(key: Any, partition_count: int, null_partition: int = NO_PARTITION) -> Any:
    """Return the partition (int32) of each row, chosen by its key.

    Args:
        key: Arrow column of bytes or text.
        partition_count: Number of partitions of the topic.
        null_partition: Value for rows without a key, which Kafka distributes freely.

    Raises:
        ValueError: A topic cannot have that many partitions.
    """
    _check_count(partition_count)
    column = as_key_column(key)
    partitions = np.empty(len(key), np.int32)
    k.choose_partitions(
        column.data, column.ends, column.width, column.valid, column.first_bit,
        partition_count, null_partition, partitions,
    )  # fmt: skip
    return partitions


def group_rows(partitions: Any, partition_count: int) -> RowGroups:
    """Group rows by partition.

    Args:
        partitions: Partition of each row, as an int32 array.
        partition_count: Number of partitions of the topic.

    Raises:
        ValueError: A row has a partition that does not exist.
    """
    _check_count(partition_count)
    chosen = np.ascontiguousarray(partitions, np.int32).view()
    chosen.setflags(write=False)
    order = np.empty(len(chosen), np.int64)
    starts = np.empty(partition_count + 1, np.int64)
    failed = k.sort_rows(chosen, starts, order)
    if failed >= 0:
        raise ValueError(
            f"row {failed} has partition {chosen[failed]}, but the topic has {partition_count} "
            "partitions"
        )
    return RowGroups(order, starts)


def _check_count(partition_count: int) -> None:
    if not 0 < partition_count <= _MAX_PARTITIONS:
        raise ValueError(f"a topic cannot have {partition_count} partitions")

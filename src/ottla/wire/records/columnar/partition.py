"""Which rows of a table go to which partition.

`partition_by_key` agrees with Java's default partitioner: the murmur2 hash of the key's bytes, its
sign bit cleared, modulo the number of partitions. `group_rows` sorts rows by partition and keeps
their order within each, so that `encode_batches` gathers a partition's rows without a copy of the
table."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.wire.records.columnar import partition_kernels as k
from ottla.wire.records.columnar.columns import as_key_column
from ottla.wire.records.columnar.needs import numpy as np

NO_PARTITION = -1
_MAX_PARTITIONS = 0x7FFFFFFF


class RowGroups(NamedTuple):
    order: Any
    """All rows (int64), those of one partition together, in their order."""
    starts: Any
    """Where each partition's rows begin in `order`, and where the last one's end."""

    def rows(self, partition: int) -> Any:
        """The rows of one partition: a view, for `encode_batches`."""
        return self.order[self.starts[partition] : self.starts[partition + 1]]

    @property
    def partitions(self) -> list[int]:
        """Those that have rows."""
        occupied: list[int] = np.flatnonzero(np.diff(self.starts)).tolist()
        return occupied


def partition_by_key(key: Any, partition_count: int, null_partition: int = NO_PARTITION) -> Any:
    """The partition (int32) of each row by its key, an Arrow column of bytes or text.

    Rows without a key get `null_partition`, for Kafka spreads them as it likes."""
    _check_count(partition_count)
    column = as_key_column(key)
    partitions = np.empty(len(key), np.int32)
    k.choose_partitions(
        column.data, column.ends, column.width, column.valid, column.first_bit,
        partition_count, null_partition, partitions,
    )  # fmt: skip
    return partitions


def group_rows(partitions: Any, partition_count: int) -> RowGroups:
    """Rows by partition, from an int32 array of one partition per row."""
    _check_count(partition_count)
    chosen = np.ascontiguousarray(partitions, np.int32).view()
    chosen.setflags(write=False)
    order = np.empty(len(chosen), np.int64)
    starts = np.empty(partition_count + 1, np.int64)
    failed = k.sort_rows(chosen, starts, order)
    if failed >= 0:
        raise ValueError(
            f"row {failed} has partition {chosen[failed]}; there are {partition_count} of them"
        )
    return RowGroups(order, starts)


def _check_count(partition_count: int) -> None:
    if not 0 < partition_count <= _MAX_PARTITIONS:
        raise ValueError(f"a topic cannot have {partition_count} partitions")

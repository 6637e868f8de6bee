"""Reading of the records of a fetch response.

The handler of Fetch decides on the event loop what may be read; `read_ranges` reads it. It takes
values and returns values, and may run in any thread: it changes nothing that the event loop
uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ottla.base.errors import KafkaError
from ottla.storage.log import Log
from ottla.storage.log_reader import LogSlice
from ottla.storage.txn_index import AbortedTxn

LogRange: TypeAlias = tuple[Log, int, int, int]
"""A log, the first offset to read, the maximum size in bytes, and the offset at which to stop. A
plain tuple, because one is made for each partition of each fetch."""

Found: TypeAlias = tuple[LogSlice, Sequence[AbortedTxn]] | KafkaError | None
"""The batches in a range and the aborted transactions among them, or the error of the log. None if
there was no range."""


def read_ranges(
    ranges: Sequence[LogRange | None],
    max_bytes: int,
    *,
    with_aborted: bool,
    in_file: bool,
    wait: bool,
) -> list[Found]:
    """Read ranges of several logs in order.

    Args:
        ranges: The ranges; None for a partition from which nothing is read.
        max_bytes: Maximum size of all results together. The first batch is returned even if it is
            larger.
        with_aborted: Whether to look up aborted transactions.
        in_file: Whether results may be ranges of files instead of bytes.
        wait: Whether the call may block on the disk.

    Returns:
        One result for each range.

    Raises:
        WouldBlock: `wait` is false and a read would have to wait for the disk.
    """
    found: list[Found] = []
    total = 0
    for each in ranges:
        if each is None:
            found.append(None)
            continue
        log, offset, partition_max_bytes, end_offset = each
        try:
            batches = log.read(
                offset,
                min(max_bytes - total, partition_max_bytes),
                end_offset,
                at_least_one=total == 0,
                wait=wait,
                in_file=in_file,
            )
            aborted: Sequence[AbortedTxn] = ()
            if with_aborted:
                aborted = log.aborted_transactions(offset, batches.next_offset, wait=wait)
        except KafkaError as error:
            found.append(error)
        else:
            total += len(batches.records)
            found.append((batches, aborted))
    return found

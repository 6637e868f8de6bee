"""The rules for what compaction keeps of a batch.

    record (the first line that applies)   kept
    in an aborted transaction              no
    after the end of the offset map        yes
    without a key                          no
    superseded by a later record           no
    with a value                           yes
    without a value (a tombstone)          until the delete horizon of its batch
    end-of-transaction marker              until the delete horizon of its batch, which is set once
                                           no batch of its transaction is left

The delete horizon, now + delete.retention.ms, is set by the first round that keeps a tombstone, or
a marker without batches. A consumer that reads from the beginning within that time therefore sees
the deletions (KIP-534).

A batch that has lost all its records is removed, unless
  - it is the last batch in the log of an active producer: it carries the producer's last sequence;
  - it is the last marker of a producer whose batches are unknown, and carries its epoch;
  - it ends at the end of the range: without it, the end of the log would be unknown.
Such a batch is kept as a bare header. Offsets never change, and neither does the last offset of a
batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.storage.compaction_job import CompactionStats
from ottla.storage.compaction_map import OffsetMap
from ottla.storage.txn_index import AbortedTxn
from ottla.wire.records.batch import NO_PRODUCER_ID, BatchHeader
from ottla.wire.records.builder import ControlType, control_type
from ottla.wire.records.crc import Buffer
from ottla.wire.records.record import KeyedSpan, keyed_spans, read_records
from ottla.wire.records.rewrite import emptied, retain_spans, with_delete_horizon

LATEST_HORIZON_MS = 1 << 61
"""Latest delete horizon. Timestamps are deltas from it and must fit into 64 bits as well."""


class CleanedTransactions:
    """The state of transactions while the batches of a log are processed in order.

    A log is never compacted beyond its last stable offset, so every transaction is complete. A
    producer that is not in a known aborted transaction is therefore in a committed one.
    """

    __slots__ = ("_aborted", "_committed", "_pending", "_retained")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._pending = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """Producer ID -> (its aborted transaction, whether any batch of it was seen)."""
        self._committed: set[int] = set()
        self._retained: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def ends_empty_transaction(self, header: BatchHeader, batch: Buffer) -> bool:
        """Return whether a control batch ends a transaction that has no batches left."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True
        kind = control_type(batch, header)
        if kind is ControlType.ABORT:
            transaction, has_batches = self._aborted.pop(header.producer_id, (None, False))
            if transaction is not None and has_batches:
                self._retained.append(transaction)
            return not has_batches
        if kind is ControlType.COMMIT:
            has_batches = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not has_batches
        return False

    def pop_retained(self) -> list[AbortedTxn]:
        """Return aborted transactions that had batches and ended since the last call."""
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._pending and self._pending[-1].first_offset <= offset:
            transaction = self._pending.pop()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))


class BatchFilter:
    """The decision, for each batch of the log in order, what is written in its place."""

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, tuple[int, int]],
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        stats: CompactionStats,
    ) -> None:
        self._map = offset_map
        self._producers = producers
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._new_horizon_ms = min(now_ms + delete_retention_ms, LATEST_HORIZON_MS)
        self._stats = stats
        self.transactions = transactions

    def apply(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """Return the batch to write, or None if the batch is removed."""
        self._stats.read_records += header.record_count
        if header.is_control:
            return self._apply_to_marker(header, batch)
        if self.transactions.is_aborted(header):
            return self._without_records(header, batch)
        data = read_records(batch, header)
        kept, has_tombstone = self._kept_records(header, data)
        if not kept:
            return self._without_records(header, batch)
        self._stats.kept_records += len(kept)
        horizon = self._new_horizon_ms if has_tombstone and not header.has_delete_horizon else None
        if horizon is None and len(kept) == header.record_count:
            return batch
        return retain_spans(batch, header, data, kept, delete_horizon=horizon)

    def _kept_records(self, header: BatchHeader, data: bytes) -> tuple[list[KeyedSpan], bool]:
        """Return the records to keep, and whether one of them is a tombstone."""
        latest_mapped, latest_of = self._map.latest_offset, self._map.get
        deletes_expired = self._horizon_passed(header)
        kept: list[KeyedSpan] = []
        keep = kept.append
        has_tombstone = False
        for span in keyed_spans(data, header):
            offset, _, _, _, _, key, has_value = span
            if offset <= latest_mapped:
                if key is None:
                    self._stats.keyless_records += 1
                    continue
                if latest_of(key) > offset or (deletes_expired and not has_value):
                    continue
            if not has_value:
                has_tombstone = True
            keep(span)
        return kept, has_tombstone

    def _apply_to_marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        is_empty_transaction = self.transactions.ends_empty_transaction(header, batch)
        if not header.record_count or (is_empty_transaction and self._horizon_passed(header)):
            return self._without_records(header, batch)
        self._stats.kept_records += header.record_count
        if is_empty_transaction and not header.has_delete_horizon:
            return with_delete_horizon(batch, self._new_horizon_ms)
        return batch

    def _horizon_passed(self, header: BatchHeader) -> bool:
        horizon = header.delete_horizon
        return horizon is not None and horizon <= self._now_ms

    def _without_records(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        return emptied(batch, header) if self._must_keep(header) else None

    def _must_keep(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        if header.producer_id == NO_PRODUCER_ID or header.producer_id not in self._producers:
            return False
        last_offset, epoch = self._producers[header.producer_id]
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

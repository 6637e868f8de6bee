"""What compaction keeps of a batch.

    record (the first line that fits)      kept
    of an aborted transaction              no
    behind what the offset map covers      yes
    no key                                 no
    a later record has its key             no
    a value                                yes
    no value (a tombstone)                 until its batch's delete horizon
    end-of-transaction marker              until its batch's delete horizon, which it gets once its
                                           transaction has no batch left

The delete horizon is stamped by the round that first keeps a tombstone (or a marker that has lost
its batches): now + delete.retention.ms. So whoever reads from the start within that time sees what
was deleted (KIP-534).

A batch without records goes, unless
  - it is the last that its producer, still known, has in the log: it tells the producer's sequence;
  - it is the last marker of a producer of which only its epoch is known;
  - it ends at the end of the range: without it the log would not know how far it reaches.
Such a batch stays as a header. Offsets never change, nor does the last offset that a batch has."""

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
"""A record's timestamp is a delta from the horizon and must fit beside it."""


class CleanedTransactions:
    """The transactions on the way through a log, batch by batch.

    All of them are decided: a log is never compacted beyond its last stable offset. So a producer
    that is not known to be in an aborted transaction is in one that was committed."""

    __slots__ = ("_aborted", "_committed", "_pending", "_retained")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._pending = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """Producer id -> its aborted transaction, and whether a batch of it was met."""
        self._committed: set[int] = set()
        self._retained: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to a transaction that was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def is_bare(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether a control batch ends a transaction of which no batch is left."""
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

    def take_retained(self) -> list[AbortedTxn]:
        """Aborted transactions that had batches and whose markers were met since the last call."""
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._pending and self._pending[-1].first_offset <= offset:
            transaction = self._pending.pop()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))


class BatchFilter:
    """Applied to every batch of the log in order, it says what is written in its place."""

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
        """The batch as it is to be written; None if it goes."""
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
        """(the records to keep, whether one of them is a tombstone)."""
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
        is_bare = self.transactions.is_bare(header, batch)
        if not header.record_count or (is_bare and self._horizon_passed(header)):
            return self._without_records(header, batch)
        self._stats.kept_records += header.record_count
        if is_bare and not header.has_delete_horizon:
            return with_delete_horizon(batch, self._new_horizon_ms)
        return batch

    def _horizon_passed(self, header: BatchHeader) -> bool:
        horizon = header.delete_horizon
        return horizon is not None and horizon <= self._now_ms

    def _without_records(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        return emptied(batch, header) if self._must_stay(header) else None

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        if header.producer_id == NO_PRODUCER_ID or header.producer_id not in self._producers:
            return False
        last_offset, epoch = self._producers[header.producer_id]
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

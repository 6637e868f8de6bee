"""Producer ID, epoch and sequence numbers of an idempotent producer.

Each batch carries the producer's ID and epoch and the sequence number of its first record. A broker
appends a batch only if its sequence follows the last one, and recognizes a duplicate by it. The
reaction to an error follows from that:

    error                       condition                          reaction
    retriable                   –                                  retry the batch
    OUT_OF_ORDER_SEQUENCE       an earlier batch is being retried  retry the batch, in order
                                the batch is the next in order     new epoch, restart at sequence 0
    UNKNOWN_PRODUCER_ID         –                                  new epoch, restart at sequence 0
    any other                   –                                  fail the batch; new epoch for the
                                                                   others, restart at sequence 0
    expired without a response  –                                  send nothing new until the others
                                                                   are answered, then as above

A transactional producer cannot bump its epoch by itself. Instead it shifts the later sequences down
if the broker definitely did not write the failed batch; otherwise the transaction must be aborted.

A batch keeps its sequence from the first attempt to its end, and only the oldest batch may be
retried, so batches always arrive in order. A partition moves to a new epoch when no batch of the
old one is in flight, or when it requested that epoch (KIP-360), but never while its oldest batch
may have been written without a response: under the new epoch, the broker would not recognize the
duplicate. Such a batch is first retried in its old epoch. (If a batch was not written, neither were
those behind it.)

This module does no I/O and reads no clock. Only the sender uses it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ottla.base.errors import RETRIABLE, ErrorCode
from ottla.client.producer.batch import advance
from ottla.wire.records.batch import NO_PRODUCER_ID, NO_SEQUENCE

MAX_EPOCH = 0x7FFF
FIRST_SEQUENCE = 0


class SequencedBatch(Protocol):
    """The part of a ProducerBatch that this module uses."""

    count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    sequence_was_reset: bool
    in_request: bool
    may_be_written: bool

    @property
    def has_sequence(self) -> bool: ...

    def set_producer_state(self, producer_id: int, epoch: int, base_sequence: int) -> None: ...


class PartitionSequences:
    """Sequence numbers of one partition."""

    __slots__ = (
        "producer_id", "producer_epoch", "next_sequence", "last_acked_sequence",
        "last_acked_offset", "in_flight", "unresolved_sequence",
    )  # fmt: skip

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.next_sequence = FIRST_SEQUENCE
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = -1
        self.in_flight: list[SequencedBatch] = []
        """Incomplete batches that have a sequence, in order. Some may be waiting for a retry."""
        self.unresolved_sequence: int | None = None
        """Sequence after a failed batch that may have been written, or None if there is none."""

    def is_next(self, sequence: int) -> bool:
        if self.last_acked_sequence == NO_SEQUENCE:
            return sequence == FIRST_SEQUENCE
        return sequence == advance(self.last_acked_sequence, 1)

    @property
    def may_restart(self) -> bool:
        """Whether the broker cannot have written any of the incomplete batches."""
        if not self.in_flight:
            return True
        return not self.in_flight[0].in_request and not self.in_flight[0].may_be_written

    def restart(self, producer_id: int, epoch: int) -> None:
        """Renumber all batches from sequence 0, with a new epoch or producer ID."""
        self.producer_id = producer_id
        self.producer_epoch = epoch
        sequence = FIRST_SEQUENCE
        for batch in self.in_flight:
            batch.set_producer_state(producer_id, epoch, sequence)
            batch.sequence_was_reset = True
            batch.may_be_written = False
            sequence = advance(sequence, batch.count)
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE
        self.unresolved_sequence = None

    def close_gap(self, failed: SequencedBatch) -> None:
        """Shift down the batches behind one that failed and that the broker did not write."""
        for batch in self.in_flight:
            behind = advance(batch.base_sequence, -failed.base_sequence)
            if 0 < behind < 1 << 30:
                sequence = advance(batch.base_sequence, -failed.count)
                batch.set_producer_state(batch.producer_id, batch.producer_epoch, sequence)
                batch.sequence_was_reset = True
        self.next_sequence = advance(self.next_sequence, -failed.count)


class Idempotence:
    """Producer ID and epoch of one producer, and the rules for its batches."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1
        self.is_transactional = is_transactional
        self._to_restart: dict[PartitionSequences, None] = {}
        """Partitions that need a new epoch; used as an ordered set."""

    # ----------------------------------------------------------------------- ID and epoch

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = epoch
        self._restart_requested()

    def request_new_epoch(self, partition: PartitionSequences) -> None:
        self._to_restart[partition] = None

    def start_requested_epoch(self) -> None:
        """Bump the epoch if a partition needs it. Call this before draining batches.

        After the last epoch the producer ID is dropped, and a new one must be obtained
        (`has_producer_id`)."""
        if not self.has_producer_id or not any(each.may_restart for each in self._to_restart):
            return
        if self.producer_epoch >= MAX_EPOCH:
            self.producer_id, self.producer_epoch = NO_PRODUCER_ID, -1
            return
        self.producer_epoch += 1
        self._restart_requested()

    def _restart_requested(self) -> None:
        for partition in [each for each in self._to_restart if each.may_restart]:
            partition.restart(self.producer_id, self.producer_epoch)
            del self._to_restart[partition]

    def _is_stale(self, partition: PartitionSequences) -> bool:
        return (
            partition.producer_id != self.producer_id
            or partition.producer_epoch != self.producer_epoch
        )

    # ---------------------------------------------------------------------------- sending

    def may_send(self, partition: PartitionSequences, batch: SequencedBatch) -> bool:
        """Return whether the first waiting batch of a partition may be sent now."""
        if not self.has_producer_id:
            return False
        if batch.has_sequence:
            is_asking = partition in self._to_restart
            return partition.in_flight[0] is batch and (batch.may_be_written or not is_asking)
        if partition in self._to_restart:
            return False
        if partition.unresolved_sequence is not None:
            return False
        return not (partition.in_flight and self._is_stale(partition))

    def assign(self, partition: PartitionSequences, batch: SequencedBatch) -> None:
        """Assign the next sequence to a batch that is sent for the first time."""
        if self._is_stale(partition):
            partition.restart(self.producer_id, self.producer_epoch)
        sequence = partition.next_sequence
        batch.set_producer_state(self.producer_id, self.producer_epoch, sequence)
        partition.next_sequence = advance(sequence, batch.count)
        partition.in_flight.append(batch)

    # -------------------------------------------------------------------------- responses

    def acknowledged(
        self, partition: PartitionSequences, batch: SequencedBatch, base_offset: int
    ) -> None:
        last = advance(batch.base_sequence, batch.count - 1)
        if partition.last_acked_sequence == NO_SEQUENCE or _is_later(
            last, partition.last_acked_sequence
        ):
            partition.last_acked_sequence = last
        if base_offset >= 0:
            last_offset = base_offset + batch.count - 1
            partition.last_acked_offset = max(partition.last_acked_offset, last_offset)
        _remove(partition, batch)

    def may_retry(
        self,
        partition: PartitionSequences,
        batch: SequencedBatch,
        code: int,
        log_start_offset: int = -1,
    ) -> bool:
        """Return whether to retry a batch that the broker answered with an error."""
        if code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            batch.may_be_written = False  # if it had been written, the broker would know it
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._may_retry_unknown(partition, batch, log_start_offset)
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._may_retry_out_of_order(partition, batch)
        return code in RETRIABLE

    def _may_retry_unknown(
        self, partition: PartitionSequences, batch: SequencedBatch, log_start_offset: int
    ) -> bool:
        if log_start_offset == -1 or batch.sequence_was_reset:
            return True
        if not self.is_transactional:
            self.request_new_epoch(partition)
            return True
        if partition.last_acked_offset < log_start_offset:
            # The broker forgot this producer because all its records were deleted: nothing is lost.
            partition.restart(self.producer_id, self.producer_epoch)
            return True
        return False

    def _may_retry_out_of_order(self, partition: PartitionSequences, batch: SequencedBatch) -> bool:
        is_resolved = partition.unresolved_sequence is None
        if batch.sequence_was_reset:
            return True
        is_first = bool(partition.in_flight) and partition.in_flight[0] is batch
        if is_resolved and not is_first and not partition.is_next(batch.base_sequence):
            return True
        if self.is_transactional:
            return False
        if is_resolved or partition.unresolved_sequence == batch.base_sequence:
            self.request_new_epoch(partition)
        return True

    def failed(
        self,
        partition: PartitionSequences,
        batch: SequencedBatch,
        code: int,
        *,
        surely_not_written: bool,
    ) -> None:
        """Handle the permanent failure of a batch."""
        _remove(partition, batch)
        if not batch.has_sequence:
            return
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            if self.is_transactional:
                partition.next_sequence = FIRST_SEQUENCE
                partition.last_acked_sequence = NO_SEQUENCE
            else:
                self.request_new_epoch(partition)
        elif not surely_not_written:
            partition.unresolved_sequence = advance(batch.base_sequence, batch.count)
        elif self.is_transactional:
            partition.close_gap(batch)
        else:
            self.request_new_epoch(partition)

    def split(
        self,
        partition: PartitionSequences,
        batch: SequencedBatch,
        parts: Iterable[SequencedBatch],
    ) -> None:
        """Put the parts of a batch that was too large in its place."""
        position = partition.in_flight.index(batch)
        partition.in_flight[position : position + 1] = parts

    def resolve(self, partition: PartitionSequences) -> bool:
        """Determine whether a failed batch was written, once the others are answered.

        Returns:
            False if that remains unknown and the producer is transactional: abort the transaction.
        """
        if partition.unresolved_sequence is None or partition.in_flight:
            return True
        if partition.is_next(partition.next_sequence):
            partition.unresolved_sequence = None
            return True
        if self.is_transactional:
            partition.unresolved_sequence = None
            return False
        self.request_new_epoch(partition)
        return True


def _remove(partition: PartitionSequences, batch: SequencedBatch) -> None:
    for position, other in enumerate(partition.in_flight):
        if other is batch:
            del partition.in_flight[position]
            return


def _is_later(sequence: int, than: int) -> bool:
    return 0 < advance(sequence, -than) < 1 << 30

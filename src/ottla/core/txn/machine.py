"""The state machine of a transactional id.

    state            meaning                                next states
    Empty            a producer is initialized, without a   Ongoing (partitions added), Empty
                     transaction                            (reinitialized), PrepareAbort (v2), Dead
    Ongoing          partitions may be written to           Ongoing, PrepareCommit, PrepareAbort
    PrepareCommit    decided; markers are being written     CompleteCommit
    PrepareAbort     decided; markers are being written     CompleteAbort
    CompleteCommit   every partition has its marker         Ongoing, Empty, PrepareAbort (v2), Dead
    CompleteAbort    every partition has its marker         Ongoing, Empty, PrepareAbort (v2), Dead
    Dead             expired; a tombstone is written, and the transactional id is deleted
    PrepareEpochFence  the epoch is bumped so that the transaction can be aborted without its
                     producer: never entered here, because one record has both the bump and
                     PrepareAbort

Rules
1. The decision (Prepare*) is one record. Markers are written only once it is committed: after a
   crash, this record alone determines the outcome. Complete* follows when all markers are written.
2. A producer that initializes gets the next epoch, which fences all producers with older epochs. An
   ongoing transaction of its predecessor is aborted first, with a bumped epoch.
3. In version 1 of the protocol, all transactions of a producer have the same epoch. In version 2
   (KIP-890, `client_version` 2), the end of a transaction bumps the epoch and the markers have the
   new one, so that no record of the old transaction can be written after them.
4. The last epoch is reserved for fencing: a producer never gets 32767. A producer that has used up
   its epochs gets a new producer id. In version 2, that id is part of the decision.
5. A request with a wrong producer id or epoch, or in a wrong state, changes nothing.
6. In the Prepare* states a transition is pending: until the markers are written, requests of
   version 2 are answered with CONCURRENT_TRANSACTIONS before their producer id and epoch are
   checked. EndTxn has already returned the next epoch or producer id, which the transaction takes
   on only in Complete*. A producer that uses it at once must retry, and must not be fenced.
7. When the coordinator aborts a transaction (because of a timeout or a new producer), the bump
   fences the old producer, but it may still retry: EndTxn(abort) of version 2 and InitProducerId
   with the epoch before the bump return the bumped one.

Each function takes the transaction and an event, and returns the next value of the transaction or
raises KafkaError. It never waits: everything that happened before is in the value.

Deviations
- A producer that reinitializes with an id or epoch older than that of the open transaction is
  fenced at once; Kafka would abort the newer transaction first.
- EndTxn with the previous epoch is a retry only if version 2 bumped the epoch. Kafka returns the
  current epoch also to a producer that was fenced before a version 1 transaction.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.txn.events import AddPartitionsRequested, EndRequested, InitRequested
from ottla.core.txn.records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Transaction,
    TransactionState,
)

LAST_EPOCH = 2**15 - 1
NO_TIMEOUT_MS = 2**31 - 1
"""Timeout of transactions that an external coordinator decides (KIP-939). A log that was taken over
from Apache Kafka may contain some."""
EPOCH_BUMP_VERSION = 2

_S = TransactionState
TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.ONGOING, _S.EMPTY, _S.PREPARE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.ONGOING, _S.EMPTY, _S.PREPARE_ABORT, _S.DEAD}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
}
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
COMPLETE = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})


def is_epoch_exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH - 1


def _concurrent() -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


# ----------------------------------------------------------------------------------- initialization


def begin_producer(known: Transaction | None, event: InitRequested, now_ms: int) -> Transaction:
    """Return the transaction of a producer that initializes, possibly again.

    It is Empty with a new epoch. If a transaction is ongoing, it is PrepareAbort instead, and the
    producer must retry.
    """
    timeout_ms = event.timeout_ms
    if known is None:
        if event.new_producer_id == NO_PRODUCER_ID:
            raise _concurrent()
        return Transaction(event.new_producer_id, 0, timeout_ms, _S.EMPTY, frozenset(), now_ms)
    if known.state in PREPARED:
        raise _concurrent()
    expected = event.expected
    if expected is not None and not _is_current_or_previous(known, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    current = ProducerIdAndEpoch(known.producer_id, known.producer_epoch)
    if known.state is _S.ONGOING:
        if expected is not None and (expected.id != current.id or expected.epoch < current.epoch):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return abort_with_fence(known, event.new_producer_id, now_ms)
    producer_id = known.producer_id
    if is_epoch_exhausted(current.epoch) and expected in (None, current):
        if event.new_producer_id == NO_PRODUCER_ID:
            raise _concurrent()
        producer_id, epoch = event.new_producer_id, 0
        last_epoch = NO_EPOCH if expected is None else known.producer_epoch
    else:
        epoch, last_epoch = _next_epoch(known, expected)
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        _S.EMPTY,
        frozenset(),
        now_ms,
        previous_producer_id=known.producer_id,
        last_producer_epoch=last_epoch,
    )


def _is_current_or_previous(known: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Return whether `expected` may be the producer of this transactional id.

    It has the current producer id, or it used up the epochs of the previous one and did not get the
    response with the new id.
    """
    return expected.id == known.producer_id or (
        expected.id == known.previous_producer_id and is_epoch_exhausted(expected.epoch)
    )


def _next_epoch(known: Transaction, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
    """Return the epoch to assign, and the previous one if the same producer had it."""
    epoch = known.producer_epoch
    if expected is None:
        return epoch + 1, NO_EPOCH
    if expected == (known.producer_id, epoch):
        return epoch + 1, epoch
    if expected.epoch == known.last_producer_epoch:
        return epoch, known.last_producer_epoch  # a retry of the same request
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def abort_with_fence(ongoing: Transaction, new_producer_id: int, now_ms: int) -> Transaction:
    """Abort a transaction without its producer, which the bumped epoch fences.

    A producer whose epochs are used up continues under `new_producer_id` if it retries.
    """
    assert ongoing.state is _S.ONGOING
    next_id = NO_PRODUCER_ID
    if is_epoch_exhausted(ongoing.producer_epoch):
        if new_producer_id == NO_PRODUCER_ID:
            raise _concurrent()
        next_id = new_producer_id
    return ongoing._replace(
        producer_epoch=ongoing.producer_epoch + 1,
        last_producer_epoch=ongoing.producer_epoch,
        previous_producer_id=ongoing.producer_id,
        next_producer_id=next_id,
        state=_S.PREPARE_ABORT,
        last_update_ms=now_ms,
        client_version=EPOCH_BUMP_VERSION,
    )


# --------------------------------------------------------------------------------------- partitions


def _check_producer(known: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    """Return the transaction if `producer` may change it now.

    Raises:
        KafkaError: The producer is unknown or fenced, or the transaction is ending.
    """
    if known is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.state in PREPARED:
        raise _concurrent()
    if known.producer_id != producer.id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != producer.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return known


def add_partitions(
    known: Transaction | None, event: AddPartitionsRequested, now_ms: int
) -> Transaction | None:
    """Return the transaction with the added partitions, or None if it has them already."""
    transaction = _check_producer(known, event.producer)
    is_ongoing = transaction.state is _S.ONGOING
    if is_ongoing and event.partitions <= transaction.partitions:
        return None
    return transaction._replace(
        state=_S.ONGOING,
        partitions=transaction.partitions | event.partitions,
        last_update_ms=now_ms,
        start_ms=transaction.start_ms if is_ongoing else now_ms,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=event.client_version,
    )


def verify_partition(
    known: Transaction | None, producer: ProducerIdAndEpoch, partition: tuple[str, int]
) -> None:
    """Check that the partition is part of the producer's transaction.

    Raises:
        KafkaError: TRANSACTION_ABORTABLE if it is not; other errors if the producer is invalid.
    """
    transaction = _check_producer(known, producer)
    if transaction.state is not _S.ONGOING or partition not in transaction.partitions:
        raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE)


# -------------------------------------------------------------------------------------------- end


def end(known: Transaction | None, event: EndRequested, now_ms: int) -> Transaction | None:
    """Return the transaction with its decision, or None for a retry after it was completed."""
    if known is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if event.client_version >= EPOCH_BUMP_VERSION:
        return _end_with_bump(known, event, now_ms)
    return _end_without_bump(known, event, now_ms)


def _end_without_bump(known: Transaction, event: EndRequested, now_ms: int) -> Transaction | None:
    # As in Kafka, version 1 checks the producer first: its id and epoch do not change.
    if known.producer_id != event.producer.id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != event.producer.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if known.state in PREPARED:
        raise _concurrent()
    if known.state is _S.ONGOING:
        return known._replace(
            state=_S.PREPARE_COMMIT if event.commit else _S.PREPARE_ABORT,
            last_update_ms=now_ms,
            previous_producer_id=known.producer_id,
            client_version=event.client_version,
        )
    _check_outcome(known, event.commit)
    return None


def _check_outcome(known: Transaction, commit: bool) -> None:
    """Check that the last transaction had the outcome that is requested again.

    Raises:
        KafkaError: INVALID_TXN_STATE if it had not.
    """
    if known.state is not (_S.COMPLETE_COMMIT if commit else _S.COMPLETE_ABORT):
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def _end_with_bump(known: Transaction, event: EndRequested, now_ms: int) -> Transaction | None:
    if known.state in PREPARED:
        raise _concurrent()
    producer, is_retry = event.producer, _is_retry(known, event.producer)
    if is_retry and known.state in COMPLETE:
        _check_outcome(known, event.commit)
        return None
    if known.producer_id != producer.id and not is_retry:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer != (known.producer_id, known.producer_epoch):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if known.state is not _S.ONGOING and event.commit:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return _bumped_decision(known, event, now_ms)


def _is_retry(known: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Return whether `producer` has the identity from before version 2 ended its transaction."""
    if known.client_version < EPOCH_BUMP_VERSION:
        return False
    if producer.id == known.producer_id:
        return producer.epoch + 1 == known.producer_epoch
    return (
        producer.id == known.previous_producer_id
        and producer.epoch == LAST_EPOCH - 1
        and known.producer_epoch == 0
    )


def _bumped_decision(known: Transaction, event: EndRequested, now_ms: int) -> Transaction:
    # An abort is valid without partitions: the client cannot know whether one was added.
    next_id = NO_PRODUCER_ID
    if is_epoch_exhausted(known.producer_epoch):
        next_id = event.new_producer_id
        if next_id == NO_PRODUCER_ID:
            raise _concurrent()
    is_ongoing = known.state is _S.ONGOING
    return known._replace(
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=known.producer_epoch,
        state=_S.PREPARE_COMMIT if event.commit else _S.PREPARE_ABORT,
        partitions=known.partitions if is_ongoing else frozenset(),
        start_ms=known.start_ms if is_ongoing else now_ms,
        last_update_ms=now_ms,
        previous_producer_id=known.producer_id,
        next_producer_id=next_id,
        client_version=event.client_version,
    )


def complete(prepared: Transaction, now_ms: int) -> Transaction:
    """Return the completed transaction, after all markers have been written."""
    is_commit = prepared.state is _S.PREPARE_COMMIT
    producer_id, epoch = producer_after(prepared)
    return prepared._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        state=_S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT,
        partitions=frozenset(),
        last_update_ms=now_ms,
        start_ms=prepared.start_ms if prepared.start_ms != NO_TIMESTAMP else now_ms,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def producer_after(prepared: Transaction) -> ProducerIdAndEpoch:
    """Return the producer's id and epoch after the transaction has been completed."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(prepared.next_producer_id, 0)
    return ProducerIdAndEpoch(prepared.producer_id, prepared.producer_epoch)


# ----------------------------------------------------------------------------------------- timeouts


def is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    return (
        transaction.state is _S.ONGOING
        and transaction.timeout_ms != NO_TIMEOUT_MS
        and transaction.start_ms + transaction.timeout_ms < now_ms
    )


def is_expired(transaction: Transaction, expiration_ms: int, now_ms: int) -> bool:
    return (
        _S.DEAD in TRANSITIONS[transaction.state]
        and transaction.last_update_ms <= now_ms - expiration_ms
    )

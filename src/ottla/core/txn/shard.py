"""The transactional ids of one partition of the transaction topic.

Markers must not be written before the decision is committed. They are therefore requested through a
response, to a token of the runtime's owner (`markers`), which receives `{"markers": WriteMarkers}`.
The runtime sends a response only once the records of the decision cannot be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Never

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.core.coordinator import Decision, ProducerIdAndEpoch, Token
from ottla.core.txn import events, machine
from ottla.core.txn.records import (
    Transaction,
    TransactionRecord,
    TransactionState,
    decode_record,
    encode_record,
)
from ottla.core.txn.settings import TransactionSettings

if TYPE_CHECKING:
    from ottla.wire.messages import describe_transactions
    from ottla.wire.messages.end_txn import EndTxnResponseDict
    from ottla.wire.messages.init_producer_id import InitProducerIdResponseDict

COMPLETION_RETRY_MS = 100


class WriteMarkers(NamedTuple):
    """A request to write the markers of a transaction to its partitions."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class TransactionShard:
    """The `Shard` of the transaction coordinator.

    Args:
        settings: The broker's settings for transactions.
        markers: Receives the requests to write markers.
    """

    def __init__(self, settings: TransactionSettings, markers: Token[WriteMarkers]) -> None:
        self._settings = settings
        self._markers = markers
        self.transactions: dict[str, Transaction] = {}
        self._deciders: Mapping[type, Callable[[Any, int, Decision], None]] = {
            events.InitRequested: self._init,
            events.AddPartitionsRequested: self._add_partitions,
            events.VerifyRequested: self._verify,
            events.EndRequested: self._end,
            events.MarkersWritten: self._markers_written,
            events.MarkersDue: self._markers_due,
            events.CompletionNotWritten: self._completion_not_written,
            events.TimeoutPassed: self._timeout_passed,
            events.IdExpired: self._id_expired,
            events.DescribeRequested: self._describe,
            events.ListRequested: self._list,
        }

    # --------------------------------------------------------------------------- the Shard protocol

    def decide(self, event: Any, now_ms: int) -> Decision:
        decision = Decision()
        try:
            self._deciders[type(event)](event, now_ms, decision)
        except KafkaError as error:
            decision.respond(event.token, {"error_code": error.code})
        return decision

    def apply(self, record: TransactionRecord, offset: int, producer_id: int) -> None:
        if record.value is None:
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.value

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Do nothing: the transaction topic is not written to in transactions."""

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return decode_record(key, value)

    def loaded(self, now_ms: int) -> Decision:
        """Request the markers of all prepared transactions, because they may be missing."""
        decision = Decision()
        for transactional_id, transaction in self.transactions.items():
            if transaction.state in machine.PREPARED:
                event = events.MarkersDue(None, transactional_id)
                decision.start_timer((transactional_id, "markers"), 0, event)
        return decision

    def unload(self) -> list[Token[Never]]:
        self.transactions.clear()
        return []

    # -------------------------------------------------------------------------------------- queries

    def needs_producer_id(self, event: events.NewIdEvent) -> bool:
        """Return whether the event, if decided now, needs a new producer id."""
        known = self.transactions.get(event.transactional_id)
        if known is None:
            return isinstance(event, events.InitRequested)
        return known.state not in machine.PREPARED and machine.is_epoch_exhausted(
            known.producer_epoch
        )

    def timed_out(self, now_ms: int) -> Iterator[events.TimeoutPassed]:
        """Yield an event for each transaction that is past its timeout."""
        for transactional_id, known in self.transactions.items():
            if machine.is_timed_out(known, now_ms):
                yield events.TimeoutPassed(None, transactional_id, _producer(known))

    def expired(self, now_ms: int) -> Iterator[events.IdExpired]:
        """Yield an event for each transactional id that has expired."""
        for transactional_id, known in self.transactions.items():
            if machine.is_expired(known, self._settings.id_expiration_ms, now_ms):
                yield events.IdExpired(None, transactional_id)

    # ------------------------------------------------------------------------------------ decisions

    def _write(self, transactional_id: str, value: Transaction, decision: Decision) -> None:
        known = self.transactions.get(transactional_id)
        assert known is None or value.state in machine.TRANSITIONS[known.state], (
            f"{transactional_id} cannot transition from {known.state.label} to {value.state.label}"
        )
        decision.records.append(TransactionRecord(transactional_id, value))

    def _request_markers(
        self, transactional_id: str, prepared: Transaction, decision: Decision
    ) -> None:
        decision.respond(
            self._markers,
            WriteMarkers(
                transactional_id,
                _producer(prepared),
                prepared.state is TransactionState.PREPARE_COMMIT,
                prepared.partitions,
                prepared.client_version,
            ),
        )

    def _init(self, event: events.InitRequested, now_ms: int, decision: Decision) -> None:
        self._check_init(event)
        known = self.transactions.get(event.transactional_id)
        value = machine.begin_producer(known, event, now_ms)
        self._write(event.transactional_id, value, decision)
        if value.state is TransactionState.PREPARE_ABORT:
            body: InitProducerIdResponseDict = {"error_code": ErrorCode.CONCURRENT_TRANSACTIONS}
            decision.respond(event.token, body)
            self._request_markers(event.transactional_id, value, decision)
        else:
            identity: InitProducerIdResponseDict = {
                "error_code": ErrorCode.NONE,
                "producer_id": value.producer_id,
                "producer_epoch": value.producer_epoch,
            }
            decision.respond(event.token, identity)

    def _check_init(self, event: events.InitRequested) -> None:
        if not 0 < event.timeout_ms <= self._settings.max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

    def _add_partitions(
        self, event: events.AddPartitionsRequested, now_ms: int, decision: Decision
    ) -> None:
        known = self.transactions.get(event.transactional_id)
        value = machine.add_partitions(known, event, now_ms)
        if value is not None:
            self._write(event.transactional_id, value, decision)
        body: events.PartitionCodes = {"error_code": ErrorCode.NONE}
        decision.respond(event.token, body)

    def _verify(self, event: events.VerifyRequested, now_ms: int, decision: Decision) -> None:
        known = self.transactions.get(event.transactional_id)
        errors: dict[TopicPartition, ErrorCode] = {}
        for partition in event.partitions:
            try:
                machine.verify_partition(known, event.producer, partition)
            except KafkaError as error:
                errors[partition] = error.code
        body: events.PartitionCodes = {"errors": errors}
        decision.respond(event.token, body)

    def _end(self, event: events.EndRequested, now_ms: int, decision: Decision) -> None:
        known = self.transactions.get(event.transactional_id)
        value = machine.end(known, event, now_ms)
        if value is None:
            assert known is not None
            decision.respond(event.token, _ended(_producer(known)))
            return
        self._write(event.transactional_id, value, decision)
        decision.respond(event.token, _ended(machine.producer_after(value)))
        self._request_markers(event.transactional_id, value, decision)

    def _markers_written(
        self, event: events.MarkersWritten, now_ms: int, decision: Decision
    ) -> None:
        known = self._prepared(event.transactional_id)
        if known is not None and event.producer == _producer(known):
            self._write(event.transactional_id, machine.complete(known, now_ms), decision)
            decision.if_failed = events.CompletionNotWritten(
                None, event.transactional_id, event.producer
            )

    def _completion_not_written(
        self, event: events.CompletionNotWritten, now_ms: int, decision: Decision
    ) -> None:
        # Retry only the record: writing the markers again would append a batch to each log.
        transactional_id = event.transactional_id
        retry = events.MarkersWritten(None, transactional_id, event.producer)
        decision.start_timer((transactional_id, "completion"), COMPLETION_RETRY_MS, retry)

    def _markers_due(self, event: events.MarkersDue, now_ms: int, decision: Decision) -> None:
        known = self._prepared(event.transactional_id)
        if known is not None:
            self._request_markers(event.transactional_id, known, decision)

    def _prepared(self, transactional_id: str) -> Transaction | None:
        known = self.transactions.get(transactional_id)
        return known if known is not None and known.state in machine.PREPARED else None

    def _timeout_passed(self, event: events.TimeoutPassed, now_ms: int, decision: Decision) -> None:
        known = self.transactions.get(event.transactional_id)
        if (
            known is not None
            and event.producer == _producer(known)
            and machine.is_timed_out(known, now_ms)
        ):
            value = machine.abort_with_fence(known, event.new_producer_id, now_ms)
            self._write(event.transactional_id, value, decision)
            self._request_markers(event.transactional_id, value, decision)

    def _id_expired(self, event: events.IdExpired, now_ms: int, decision: Decision) -> None:
        known = self.transactions.get(event.transactional_id)
        if known is not None and machine.is_expired(known, self._settings.id_expiration_ms, now_ms):
            decision.records.append(TransactionRecord(event.transactional_id, None))

    # ----------------------------------------------------------------------- describing and listing

    def _describe(self, event: events.DescribeRequested, now_ms: int, decision: Decision) -> None:
        known = self.transactions.get(event.transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(known.partitions):
            topics.setdefault(topic, []).append(partition)
        body: describe_transactions.TransactionStateDict = {
            "error_code": ErrorCode.NONE,
            "transaction_state": known.state.label,
            "transaction_timeout_ms": known.timeout_ms,
            "transaction_start_time_ms": known.start_ms,
            "producer_id": known.producer_id,
            "producer_epoch": known.producer_epoch,
            "topics": [
                {"topic": topic, "partitions": partitions} for topic, partitions in topics.items()
            ],
        }
        decision.respond(event.token, body)

    def _list(self, event: events.ListRequested, now_ms: int, decision: Decision) -> None:
        producer_ids, states, duration_ms = event.filters
        body: events.ListedTransactions = {
            "transactions": [
                {
                    "transactional_id": transactional_id,
                    "producer_id": known.producer_id,
                    "transaction_state": known.state.label,
                }
                for transactional_id, known in self.transactions.items()
                if (not producer_ids or known.producer_id in producer_ids)
                and (states is None or known.state in states)
                and (duration_ms < 0 or now_ms - known.start_ms > duration_ms)
            ]
        }
        decision.respond(event.token, body)


def _producer(transaction: Transaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)


def _ended(producer: ProducerIdAndEpoch) -> EndTxnResponseDict:
    return {
        "error_code": ErrorCode.NONE,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
    }

"""The transaction state machine compared with a plain model of a producer's guarantees.

The model knows nothing of states or records. It knows who owns a transactional ID, which
partitions were added since the last end, how the last transaction ended, and whether all its
markers are written. From that it derives the expected response to every request. A crash reloads
the shard from its records; requests for markers may be lost in it, and must be sent again.

A client may continue before the markers are written, with the epoch or the producer ID that
EndTxn returned, and epochs may be close to the last one. The expected responses for these cases
were recorded from a cluster of three Apache Kafka 4.3.1 brokers.

Runs are short by default; `make chaos` runs long ones. Seeds that failed are kept as examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.core.coordinator import Decision, ProducerIdAndEpoch
from ottla.core.txn import events
from ottla.core.txn.machine import LAST_EPOCH
from ottla.core.txn.settings import TransactionSettings
from ottla.core.txn.shard import TransactionShard, WriteMarkers

ID = "id"
TIMEOUT_MS = 1_000
EXPIRATION_MS = 100_000
E = ErrorCode


class Call:
    def __init__(self) -> None:
        self.body: dict[str, Any] = {}

    def reply(self, body: dict[str, Any]) -> None:
        assert not self.body, "answered twice"
        self.body = body

    def fail(self, error: KafkaError) -> None:
        raise AssertionError(error)


@dataclass
class Model:
    owner: ProducerIdAndEpoch | None = None
    """Producer that may write now."""
    added: set[TopicPartition] | None = None
    """Partitions of the open transaction; None if none is open."""
    started_ms: int = 0
    changed_ms: int = 0
    outcome: bool | None = None
    """Whether the last transaction was committed; None if there was none since the owner began."""
    is_deciding: bool = False
    """Whether markers of the last transaction are still missing."""
    bumped_from: ProducerIdAndEpoch | None = None
    """The owner's identity before the end of the last transaction gave it a new one."""
    is_bumping: bool = False
    """Whether the last operation was one of version 2."""
    begun_from: ProducerIdAndEpoch | None = None
    """Identity that the owner sent when it last began."""


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.now_ms = 1_000_000
        self.next_id = 100
        self.log: list[tuple[bytes, bytes | None]] = []
        self.rounds: list[WriteMarkers] = []
        """Markers requested and not yet written."""
        self.outcomes: set[tuple[bool, frozenset[TopicPartition]]] = set()
        """Outcome and partitions of each transaction that has ended."""
        self.sessions: list[ProducerIdAndEpoch] = []
        """Identities that some producer may still use."""
        self.shard = self.new_shard()

    def new_shard(self) -> TransactionShard:
        limits = TransactionSettings(max_timeout_ms=60_000, id_expiration_ms=EXPIRATION_MS)
        return TransactionShard(limits, self)

    # The completion callbacks of a request for markers.
    def reply(self, body: WriteMarkers) -> None:
        self.rounds.append(body)

    def fail(self, error: KafkaError) -> None:
        raise AssertionError(error)

    def decide(self, event: Any) -> dict[str, Any]:
        if isinstance(event, events.NewIdEvent) and self.shard.needs_producer_id(event):
            self.next_id += 1
            event.new_producer_id = self.next_id
        self.carry_out(self.shard.decide(event, self.now_ms))
        return event.token.body if event.token is not None else {}

    def carry_out(self, decision: Decision) -> None:
        for record in decision.records:
            self.log.append(self.shard.encode(record))
            self.shard.apply(record, len(self.log), -1)
        for token, body in decision.responses:
            token.reply(body)

    # ------------------------------------------------------------------------------------- requests

    def someone(self, data: st.DataObject) -> ProducerIdAndEpoch:
        known = [*self.sessions, ProducerIdAndEpoch(99, 0)]
        return data.draw(st.sampled_from(known))

    @rule()
    def begin(self) -> None:
        body = self.decide(events.InitRequested(Call(), ID, TIMEOUT_MS))
        model = self.model
        if model.is_deciding:
            assert body["error_code"] == E.CONCURRENT_TRANSACTIONS
        elif model.added is not None:
            assert body["error_code"] == E.CONCURRENT_TRANSACTIONS
            self.aborted_by_coordinator()
        else:
            self.begun(body, None)

    @rule(data=st.data())
    def begin_again(self, data: st.DataObject) -> None:
        who = self.someone(data)
        body = self.decide(events.InitRequested(Call(), ID, TIMEOUT_MS, who))
        model, owner = self.model, self.model.owner
        code = body["error_code"]
        if owner is None:
            assert code == E.NONE
            self.begun(body, who)
        elif model.is_deciding:
            # This includes outdated producers: they are fenced only once the markers are written.
            assert code == E.CONCURRENT_TRANSACTIONS
        elif model.added is not None:
            if who.id != owner.id or who.epoch < owner.epoch:
                assert code == E.PRODUCER_FENCED
            else:
                assert code == E.CONCURRENT_TRANSACTIONS
                self.aborted_by_coordinator()
        elif who == owner:
            assert code == E.NONE
            self.begun(body, who)
        elif code == E.NONE:
            # Only a producer that has just received the current identity may receive it again.
            assert (body["producer_id"], body["producer_epoch"]) == owner
            assert who in (model.begun_from, model.bumped_from)
            model.added, model.outcome, model.is_bumping = None, None, False
            model.changed_ms = self.now_ms
        else:
            assert code == E.PRODUCER_FENCED

    def begun(self, body: dict[str, Any], who: ProducerIdAndEpoch | None) -> None:
        assert body["error_code"] == E.NONE
        producer = ProducerIdAndEpoch(body["producer_id"], body["producer_epoch"])
        owner = self.model.owner
        if owner is not None:
            assert producer == self.after(owner)
        assert producer not in self.sessions, "an identity is given once"
        self.sessions.append(producer)
        self.model = Model(owner=producer, begun_from=who, changed_ms=self.now_ms)

    def aborted_by_coordinator(self) -> None:
        """Abort the open transaction: the producer is fenced, but may get the new epoch by a
        retry."""
        model, before = self.model, self.model.owner
        assert before is not None
        assert model.added is not None
        new = self.after(before)
        self.sessions.append(new)
        self.decided(False, new)
        model.bumped_from, model.is_bumping = before, True

    def after(self, who: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """Return a producer's identity after its epoch is bumped."""
        if who.epoch >= LAST_EPOCH - 1:
            return ProducerIdAndEpoch(self.next_id, 0)
        return ProducerIdAndEpoch(who.id, who.epoch + 1)

    def decided(self, outcome: bool, owner: ProducerIdAndEpoch) -> None:
        model = self.model
        self.outcomes.add((outcome, frozenset(model.added or ())))
        model.added, model.outcome, model.is_deciding, model.owner = None, outcome, True, owner
        model.begun_from, model.changed_ms = None, self.now_ms

    @rule(data=st.data(), partition=st.integers(0, 3), version=st.sampled_from([0, 2]))
    def add(self, data: st.DataObject, partition: int, version: int) -> None:
        who, key = self.someone(data), TopicPartition("t", partition)
        event = events.AddPartitionsRequested(Call(), ID, who, frozenset({key}), version)
        code = self.decide(event)["error_code"]
        model = self.model
        if self.check_owner(who, code):
            assert code == E.NONE
            if model.added is None:
                model.added, model.started_ms = set(), self.now_ms
            if key not in model.added:
                model.changed_ms, model.is_bumping = self.now_ms, version == 2
            model.added.add(key)

    def check_owner(self, who: ProducerIdAndEpoch, code: ErrorCode) -> bool:
        model = self.model
        if model.owner is None:
            assert code == E.INVALID_PRODUCER_ID_MAPPING
        elif model.is_deciding:
            assert code == E.CONCURRENT_TRANSACTIONS
        elif who.id != model.owner.id:
            assert code == E.INVALID_PRODUCER_ID_MAPPING
        elif who != model.owner:
            assert code == E.PRODUCER_FENCED
        else:
            return True
        return False

    def has_next_id(self) -> bool:
        """Return whether the owner gets another producer ID when the markers are written."""
        known = self.shard.transactions.get(ID)
        return known is not None and known.next_producer_id >= 0

    def visible_id(self) -> int:
        known = self.shard.transactions.get(ID)
        return -1 if known is None else known.producer_id

    @rule(data=st.data(), partition=st.integers(0, 3))
    def verify(self, data: st.DataObject, partition: int) -> None:
        who, key = self.someone(data), TopicPartition("t", partition)
        body = self.decide(events.VerifyRequested(Call(), ID, who, frozenset({key})))
        code = body["errors"].get(key, E.NONE)
        if self.check_owner(who, code):
            is_added = self.model.added is not None and key in self.model.added
            assert code == (E.NONE if is_added else E.TRANSACTION_ABORTABLE)

    @rule(data=st.data(), commit=st.booleans())
    def end_version_1(self, data: st.DataObject, commit: bool) -> None:
        who = self.someone(data)
        visible_id, has_next_id = self.visible_id(), self.has_next_id()
        code = self.decide(events.EndRequested(Call(), ID, who, commit))["error_code"]
        model = self.model
        if model.owner is None or who.id != visible_id:
            assert code == E.INVALID_PRODUCER_ID_MAPPING
        elif who != model.owner or has_next_id:
            assert code == E.PRODUCER_FENCED
        elif model.is_deciding:
            assert code == E.CONCURRENT_TRANSACTIONS
        elif model.added is not None:
            assert code == E.NONE
            self.decided(commit, who)
            model.bumped_from, model.is_bumping = None, False
        else:
            self.check_repeated(code, commit)

    def check_repeated(self, code: ErrorCode, commit: bool) -> None:
        assert code == (E.NONE if self.model.outcome is commit else E.INVALID_TXN_STATE)

    @rule(data=st.data(), commit=st.booleans())
    def end_version_2(self, data: st.DataObject, commit: bool) -> None:
        who = self.someone(data)
        self.check_end_version_2(who, commit)

    @precondition(lambda self: self.model.is_deciding and self.model.bumped_from is not None)
    @rule(commit=st.booleans())
    def end_before_the_markers_are_written(self, commit: bool) -> None:
        """End the transaction with the identity that the previous EndTxn has just returned."""
        assert self.model.owner is not None
        self.check_end_version_2(self.model.owner, commit)

    def check_end_version_2(self, who: ProducerIdAndEpoch, commit: bool) -> None:
        model, owner = self.model, self.model.owner
        was_owner = model.is_bumping and who == model.bumped_from
        body = self.decide(events.EndRequested(Call(), ID, who, commit, 2))
        code = body["error_code"]
        if owner is None:
            assert code == E.INVALID_PRODUCER_ID_MAPPING
        elif model.is_deciding:
            assert code == E.CONCURRENT_TRANSACTIONS
        elif was_owner and model.added is None and model.outcome is not None:
            self.check_repeated(code, commit)
            if code == E.NONE:
                assert (body["producer_id"], body["producer_epoch"]) == owner
        elif who.id != owner.id and not was_owner:
            assert code == E.INVALID_PRODUCER_ID_MAPPING
        elif who != owner:
            assert code == E.PRODUCER_FENCED
        elif model.added is None and commit:
            assert code == E.INVALID_TXN_STATE
        else:
            assert code == E.NONE
            new = ProducerIdAndEpoch(body["producer_id"], body["producer_epoch"])
            assert new == self.after(who)
            self.sessions.append(new)
            self.decided(commit, new)
            model.bumped_from, model.is_bumping = who, True

    # ------------------------------------------------------------------ markers, crashes and time

    @precondition(lambda self: self.rounds)
    @rule(lost=st.booleans())
    def markers_are_written(self, lost: bool) -> None:
        """Write all markers of a request; a crash may keep the coordinator from recording that."""
        wanted = self.rounds.pop(0)
        assert (wanted.commit, wanted.partitions) in self.outcomes
        if lost:
            self.crash()
            return
        self.decide(events.MarkersWritten(None, ID, wanted.producer))
        if not self.shard.transactions[ID].state.label.startswith("Prepare"):
            self.model.is_deciding = False
            self.model.changed_ms = self.now_ms

    @rule()
    def crash(self) -> None:
        self.rounds.clear()
        self.shard = self.new_shard()
        for offset, (key, value) in enumerate(self.log):
            record = self.shard.decode(key, value)
            assert record is not None
            self.shard.apply(record, offset, -1)
        decision = self.shard.loaded(self.now_ms)
        assert bool(decision.timers) == self.model.is_deciding
        self.carry_out(decision)
        for timer in decision.timers:
            self.decide(timer.event)
        self.model.begun_from = None  # the log does not record the identity that began again

    @rule(by_ms=st.sampled_from([1, TIMEOUT_MS, EXPIRATION_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule()
    def timeouts_are_looked_at(self) -> None:
        model, found = self.model, list(self.shard.timed_out(self.now_ms))
        is_due = model.added is not None and self.now_ms > model.started_ms + TIMEOUT_MS
        assert bool(found) == is_due
        for event in found:
            self.decide(event)
        if is_due:
            self.aborted_by_coordinator()

    @rule()
    def expiry_is_looked_at(self) -> None:
        model, found = self.model, list(self.shard.expired(self.now_ms))
        is_idle = model.owner is not None and model.added is None and not model.is_deciding
        assert bool(found) == (is_idle and self.now_ms - model.changed_ms >= EXPIRATION_MS)
        for event in found:
            self.decide(event)
            assert ID not in self.shard.transactions
            self.model = Model()

    @precondition(lambda self: self.model.owner is not None and not self.model.is_deciding)
    @rule()
    def epochs_are_nearly_used_up(self) -> None:
        """Move the epoch close to the last one, as after thousands of transactions."""
        known, owner = self.shard.transactions[ID], self.model.owner
        assert owner is not None
        if known.producer_epoch >= LAST_EPOCH - 3:
            return
        value = known._replace(
            producer_epoch=LAST_EPOCH - 3, last_producer_epoch=-1, client_version=0
        )
        record = type(self.shard.decode(*self.log[-1]))(ID, value)  # type: ignore[misc]
        self.log.append(self.shard.encode(record))
        self.shard.apply(record, len(self.log), -1)
        self.model.owner = ProducerIdAndEpoch(owner.id, LAST_EPOCH - 3)
        self.model.bumped_from = self.model.begun_from = None
        self.model.is_bumping = False
        self.sessions.append(self.model.owner)

    # --------------------------------------------------------------------------------- invariants

    @invariant()
    def a_decision_that_is_not_carried_out_is_asked_for(self) -> None:
        assert bool(self.rounds) or not self.model.is_deciding

    @invariant()
    def no_epoch_is_given_that_could_not_be_fenced(self) -> None:
        assert all(producer.epoch < LAST_EPOCH for producer in self.sessions)


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        TransactionMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_machine_agrees_with_the_model() -> None:
    run(40, 30)


@pytest.mark.chaos
@pytest.mark.timeout(1_800)
def test_the_machine_agrees_with_the_model_for_long() -> None:
    run(3_000, 100)

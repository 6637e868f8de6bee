"""The life of a transactional ID: fencing, timeouts, expiry, exhausted epochs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.transactions.producer import TIMESTAMP, TransactionalProducer, read_committed
from tests.raw_client import RawClient, eventually

from ottla.base.errors import ErrorCode
from ottla.testing.broker import BrokerProcess

E = ErrorCode


def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(
    client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    old = TransactionalProducer(client).begin()
    assert old.produce(topic, b"old") is E.NONE
    new = TransactionalProducer(client, old.id)
    assert new.init() is E.CONCURRENT_TRANSACTIONS
    eventually(new.init, lambda code: code is E.NONE)
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
    assert old.produce(topic, b"zombie") is E.INVALID_PRODUCER_EPOCH
    assert old.end() is E.PRODUCER_FENCED
    assert new.produce(topic, b"new") is E.NONE
    assert new.end() is E.NONE
    assert read_committed(client, topic) == [b"new"]


def test_in_version_2_every_end_bumps_the_epoch_and_in_version_1_none(
    client: RawClient, topic: str
) -> None:
    client.create_topic(topic)
    producer = TransactionalProducer(client).begin()
    epochs = []
    for version in (5, 5, 3, 3, 5):
        assert producer.produce(topic, b"x") is E.NONE
        assert producer.end(version=version) is E.NONE
        epochs.append(producer.epoch)
    assert epochs == [1, 2, 2, 2, 3]


def test_the_same_end_again_is_answered_the_same(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    producer = TransactionalProducer(client).begin()
    assert producer.produce(topic, b"x") is E.NONE
    before = producer.epoch
    assert producer.end() is E.NONE
    assert producer.end(producer_epoch=before) is E.NONE
    assert producer.epoch == before + 1
    assert producer.end(commit=False, producer_epoch=before) is E.INVALID_TXN_STATE


def test_nothing_of_the_old_transaction_can_be_written_behind_its_marker(
    client: RawClient, topic: str
) -> None:
    """In version 2, a batch that was in flight when its transaction ended has an old epoch."""
    client.create_topic(topic)
    producer = TransactionalProducer(client).begin()
    assert producer.produce(topic, b"in time") is E.NONE
    late = {"producer_epoch": producer.epoch, "base_sequence": 1}
    assert producer.end() is E.NONE
    assert producer.produce(topic, b"late", **late) is E.INVALID_PRODUCER_EPOCH
    assert read_committed(client, topic) == [b"in time"]


def test_in_version_2_a_producer_begins_with_sequence_0(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    producer = TransactionalProducer(client).begin()
    assert producer.produce(topic, b"second", base_sequence=1) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.produce(topic, b"first", base_sequence=0) is E.NONE
    assert producer.produce(topic, b"second", base_sequence=1) is E.NONE
    assert producer.end() is E.NONE
    assert read_committed(client, topic) == [b"first", b"second"]


def test_a_late_batch_of_version_1_cannot_hang_the_partition(client: RawClient, topic: str) -> None:
    client.create_topic(topic)
    producer = TransactionalProducer(client).begin()
    assert producer.add(topic) is E.NONE
    assert producer.produce(topic, b"in time", version=10) is E.NONE
    assert producer.end(version=3) is E.NONE
    assert producer.produce(topic, b"late", version=10) is E.INVALID_TXN_STATE
    client.produce(topic, [(None, b"plain", (), TIMESTAMP)])
    assert read_committed(client, topic) == [b"in time", b"plain"]


@pytest.fixture(scope="module")
def hasty() -> Iterator[BrokerProcess]:
    """Start a broker that checks for expired transactions and IDs all the time."""
    overrides = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
        "transactional.id.expiration.ms": "1500",
    }
    with BrokerProcess(strict=True, overrides=overrides) as process:
        yield process
        assert "Traceback" not in process.log()


def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_continues_after_an_abort(
    hasty: BrokerProcess, topic: str
) -> None:
    """Same as Apache Kafka 4.3.1: the bumped epoch fences the producer until it aborts."""
    with RawClient(hasty.port) as client:
        client.create_topic(topic)
        producer = TransactionalProducer(client).begin(timeout_ms=100)
        before = producer.identity_as_producer()
        assert producer.produce(topic, b"slow") is E.NONE
        state = eventually(producer.state, lambda s: s.transaction_state == "CompleteAbort")
        assert state.producer_epoch == producer.epoch + 1
        assert producer.produce(topic, b"too late") is E.INVALID_PRODUCER_EPOCH
        assert producer.end(commit=True) is E.INVALID_TXN_STATE
        assert producer.end(commit=False) is E.NONE
        assert producer.identity_as_producer() == (before.id, before.epoch + 1)
        assert producer.end(commit=False, producer_epoch=before.epoch) is E.NONE
        client.produce(topic, [(None, b"plain", (), TIMESTAMP)])
        assert read_committed(client, topic) == [b"plain"]
    line = next(each for each in hasty.log().splitlines() if producer.id in each)
    assert f"Aborting the transaction of transactional id {producer.id!r}: it has been open" in line
    assert "longer than its timeout of 0.1 s" in line
    assert "TimeoutPassed" not in hasty.log()


def test_an_id_that_is_not_used_is_forgotten_unless_its_transaction_is_open(
    hasty: BrokerProcess, topic: str
) -> None:
    with RawClient(hasty.port) as client:
        client.create_topic(topic)
        idle = TransactionalProducer(client).begin()
        assert idle.produce(topic, b"x") is E.NONE
        assert idle.end() is E.NONE
        busy = TransactionalProducer(client).begin()
        assert busy.produce(topic, b"x") is E.NONE
        eventually(idle.state, lambda s: s.error_code == E.TRANSACTIONAL_ID_NOT_FOUND)
        assert busy.state().transaction_state == "Ongoing"
        assert idle.produce(topic, b"y") is E.INVALID_PRODUCER_ID_MAPPING
        known = idle.producer_id
        assert idle.init() is E.NONE
        assert idle.producer_id > known
    assert f"Removing transactional id {idle.id!r}: it has not been used for" in hasty.log()


def test_what_has_happened_survives_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", strict=True) as broker:
        with RawClient(broker.port) as client:
            client.create_topic("t")
            committed = TransactionalProducer(client).begin()
            assert committed.produce("t", b"committed") is E.NONE
            assert committed.end() is E.NONE
            aborted = TransactionalProducer(client).begin()
            assert aborted.produce("t", b"aborted") is E.NONE
            assert aborted.end(commit=False) is E.NONE
            ongoing = TransactionalProducer(client).begin()
            assert ongoing.produce("t", b"ongoing") is E.NONE
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            for producer in (committed, aborted, ongoing):
                producer.client = client
            eventually(committed.state, lambda s: s.transaction_state == "CompleteCommit")
            assert aborted.state().transaction_state == "CompleteAbort"
            assert ongoing.state().transaction_state == "Ongoing"
            assert read_committed(client, "t") == [b"committed"]
            assert ongoing.produce("t", b"goes on") is E.NONE
            assert ongoing.end() is E.NONE
            assert committed.produce("t", b"again") is E.NONE
            assert committed.end() is E.NONE
            expected = [b"committed", b"ongoing", b"goes on", b"again"]
            assert read_committed(client, "t") == expected


def test_with_synced_acks_a_transaction_is_on_disk_before_it_is_seen(tmp_path: Path) -> None:
    overrides = {"log.flush.acks.all": "true"}
    with (
        BrokerProcess(tmp_path / "data", strict=True, overrides=overrides) as broker,
        RawClient(broker.port) as client,
    ):
        client.create_topic("t")
        producer = TransactionalProducer(client).begin()
        for number in range(5):
            eventually(
                lambda n=number: producer.produce("t", b"%d" % n),  # type: ignore[misc]
                lambda code: code is not E.CONCURRENT_TRANSACTIONS,
            )
            assert producer.end(commit=number % 2 == 0) is E.NONE
        expected = [b"0", b"2", b"4"]
        eventually(lambda: read_committed(client, "t"), lambda found: found == expected)

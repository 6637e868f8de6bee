"""`kafka-transactions` against a broker, and the admin client's calls that it uses."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.integration.cli.running import Fail, Run, running_on
from tests.integration.transactions.producer import TransactionalProducer
from tests.raw_client import RawClient

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.admin import Admin, IsolationLevel, OffsetSpec
from ottla.client.errors import ClientError
from ottla.testing.broker import BrokerProcess


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as client:
        yield client


@pytest.fixture
def open_transaction(admin: Admin, client: RawClient, topic: str) -> TransactionalProducer:
    """Open a transaction under the ID `of-<topic>`, with one record in partition 0."""
    admin.create_topics(topic)
    producer = TransactionalProducer(client, f"of-{topic}").begin()
    assert producer.add(topic) is ErrorCode.NONE
    assert producer.produce(topic, b"in a transaction") is ErrorCode.NONE
    return producer


def test_transactions_are_listed(
    succeed: Run, open_transaction: TransactionalProducer, topic: str
) -> None:
    table = [line.split() for line in succeed("transactions list").lines]
    assert table[0] == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    row = [f"of-{topic}", "1", str(open_transaction.producer_id), "Ongoing"]
    assert row in table

    def ids(*options: str) -> list[str]:
        found = succeed("transactions list", *options, "--json").json
        return [each["transactional_id"] for each in found]

    assert ids("--transactional-id-pattern", f"of-{topic}") == [f"of-{topic}"]
    assert f"of-{topic}" not in ids("--duration-filter", "3600000")
    assert f"of-{topic}" in ids("--duration-filter", "-1")


def test_a_transaction_is_described_with_its_partitions(
    succeed: Run, fail: Fail, open_transaction: TransactionalProducer, topic: str
) -> None:
    described = succeed("transactions describe", "--transactional-id", f"of-{topic}").lines
    assert described[0].split()[:5] == [
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
    ]
    assert described[1].split()[4] == "Ongoing"
    assert described[1].split()[-1] == f"{topic}-0"
    fail("transactions describe", "--transactional-id", "nobody's")
    assert "Missing option '--transactional-id'" in fail("transactions describe")


def test_producers_of_a_partition_are_described(
    succeed: Run, fail: Fail, open_transaction: TransactionalProducer, topic: str
) -> None:
    at = ("--topic", topic, "--partition", "0")
    header, row = (line.split() for line in succeed("transactions describe-producers", *at).lines)
    assert header[0] == "ProducerId"
    assert (row[0], row[3], row[5]) == (str(open_transaction.producer_id), "0", "0")
    (found,) = succeed("transactions describe-producers", *at, "--broker-id", "1", "--json").json
    assert found["current_txn_start_offset"] == 0
    assert "no partition 5" in fail(
        "transactions describe-producers", "--topic", topic, "--partition", "5"
    )


def test_the_cluster_may_be_named_before_the_action(
    broker: BrokerProcess, open_transaction: TransactionalProducer, topic: str
) -> None:
    from click.testing import CliRunner

    from ottla.cli.kafka_transactions import kafka_transactions

    result = CliRunner().invoke(
        kafka_transactions, ["--bootstrap-server", broker.bootstrap, "list"]
    )
    assert result.exit_code == 0
    assert f"of-{topic}" in result.stdout


def test_a_transactional_id_is_terminated_by_force(
    succeed: Run, admin: Admin, open_transaction: TransactionalProducer, topic: str
) -> None:
    succeed("transactions force-terminate", "--transactional-id", f"of-{topic}")
    assert open_transaction.produce(topic, b"too late") in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    )
    zero = TopicPartition(topic, 0)
    stable = admin.list_offsets({zero: OffsetSpec.LATEST}, isolation=IsolationLevel.READ_COMMITTED)
    assert stable[zero].offset == 2, "behind the record and its marker"


def test_missing_options_are_reported(fail: Fail, topic: str) -> None:
    assert "find-hanging requires --topic or --broker-id" in fail("transactions find-hanging")
    assert "--partition requires --topic" in fail(
        *("transactions find-hanging", "--broker-id", "1", "--partition", "0")
    )
    abort = ("transactions abort", "--topic", topic, "--partition", "0")
    assert "abort requires --start-offset" in fail(*abort)
    assert "abort requires --start-offset" in fail(*abort, "--producer-id", "1")


def test_a_transaction_that_is_not_there_is_not_aborted(
    fail: Fail, open_transaction: TransactionalProducer, topic: str
) -> None:
    abort = ("transactions abort", "--topic", topic, "--partition", "0", "--start-offset")
    assert f"No open transaction starts at offset 77 of partition {topic}-0" in fail(*abort, "77")


def test_a_transaction_that_hangs_is_found_and_aborted(topic: str) -> None:
    unverified = {"transaction.partition.verification.enable": "false"}
    with (
        BrokerProcess(overrides=unverified) as broker,
        RawClient(broker.port) as client,
        Admin(broker.bootstrap) as admin,
    ):
        run = running_on(broker.bootstrap)
        admin.create_topics(topic)
        zero = TopicPartition(topic, 0)
        healthy = TransactionalProducer(client, "healthy").begin()
        assert healthy.add(topic) is ErrorCode.NONE
        assert healthy.produce(topic, b"awaited") is ErrorCode.NONE
        # The record bypasses the coordinator, so its marker will never be written.
        hanging = TransactionalProducer(client, "forgotten").begin()
        assert hanging.produce(topic, b"hangs", version=11) is ErrorCode.NONE
        for where in (["--topic", topic], ["--broker-id", "1"]):
            (found,) = run("transactions find-hanging", *where, "--json").json
            assert found["producer_id"] == hanging.producer_id
            assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, 1)
        assert (
            run(
                *("transactions find-hanging", "--topic", topic),
                *("--max-transaction-timeout", str(int(time.time()))),
            ).lines[1:]
            == []
        )
        assert healthy.end(commit=True) is ErrorCode.NONE
        aborted = run(
            *("transactions abort", "--topic", topic, "--partition", "0"), "--start-offset", "1"
        )
        assert aborted.code == 0
        assert run("transactions find-hanging", "--topic", topic).lines[1:] == []
        stable = admin.list_offsets(
            {zero: OffsetSpec.LATEST}, isolation=IsolationLevel.READ_COMMITTED
        )
        assert stable[zero].offset == 4, "two records and two markers"


def test_the_admin_client_raises_typed_errors_for_transactions(admin: Admin) -> None:
    with pytest.raises(ClientError) as failure:
        admin.describe_transactions("nobody's")
    assert failure.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

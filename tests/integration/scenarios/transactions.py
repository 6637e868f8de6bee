"""Transactions: partitions and offsets added, ended, described, listed."""

from __future__ import annotations

from tests.integration.scenarios.given import Given, Scenarios
from tests.integration.transactions.producer import TransactionalProducer, read_committed
from tests.raw_client import Api

from ottla.base.errors import ErrorCode


def begin(given: Given) -> TransactionalProducer:
    return TransactionalProducer(given.client).begin()


def add_partitions_to_txn(given: Given, version: int) -> None:
    producer = begin(given)
    assert producer.add(given.topic, 0, 1, version=version) is ErrorCode.NONE
    state = producer.state()
    assert state.transaction_state == "Ongoing"
    (topic,) = state.topics
    assert (topic.topic, topic.partitions) == (given.topic, [0, 1])
    assert producer.add(given.topic, 7, version=version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 4:
        verify_only(given, producer, version)


def verify_only(given: Given, producer: TransactionalProducer, version: int) -> None:
    topics = [{"name": given.topic, "partitions": [0]}]
    asked = {**producer.identity(), "verify_only": True, "topics": topics}
    stranger = {**asked, "transactional_id": "nobody's"}
    answer = given.client.call(Api.ADD_PARTITIONS_TO_TXN, version, transactions=[asked, stranger])
    codes = {
        result.transactional_id: result.topic_results[0].results_by_partition[0]
        for result in answer.results_by_transaction
    }
    assert codes[producer.id].partition_error_code == 0
    unknown = codes["nobody's"].partition_error_code
    assert unknown == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def add_offsets_to_txn(given: Given, version: int) -> None:
    producer = begin(given)
    assert producer.add_offsets(f"group-of-{producer.id}", version) is ErrorCode.NONE
    (topic,) = producer.state().topics
    assert topic.topic == "__consumer_offsets"


def end_txn(given: Given, version: int) -> None:
    producer = begin(given)
    for commit, state in ((True, "CompleteCommit"), (False, "CompleteAbort")):
        epoch = producer.epoch
        assert producer.add(given.topic) is ErrorCode.NONE
        assert producer.produce(given.topic, b"%d" % commit, version=11) is ErrorCode.NONE
        assert producer.end(commit, version) is ErrorCode.NONE
        assert producer.epoch == epoch + (version >= 5)
        assert producer.state().transaction_state == state
    assert read_committed(given.client, given.topic) == [b"v0", b"v1", b"v2", b"1"]


def txn_offset_commit(given: Given, version: int) -> None:
    producer = begin(given)
    group = f"group-of-{producer.id}"
    assert producer.add_offsets(group) is ErrorCode.NONE
    assert producer.commit_offset(group, given.topic, 2, version=version) is ErrorCode.NONE
    unknown = producer.commit_offset(group, given.topic, 2, partition=9, version=version)
    assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(given, group) == (0, -1)
    assert committed(given, group, require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.end() is ErrorCode.NONE
    assert committed(given, group, require_stable=True) == (0, 2)


def committed(given: Given, group: str, *, require_stable: bool = False) -> tuple[int, int]:
    answer = given.client.call(
        Api.OFFSET_FETCH,
        7,
        group_id=group,
        require_stable=require_stable,
        topics=[{"name": given.topic, "partition_indexes": [0]}],
    )
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def write_txn_markers(given: Given, version: int) -> None:
    producer = begin(given)
    assert producer.produce(given.topic, b"hangs") is ErrorCode.NONE
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch + 1,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "transaction_version": 2,
        "topics": [{"name": given.topic, "partition_indexes": [0, 9]}],
    }
    answer = given.client.call(Api.WRITE_TXN_MARKERS, version, markers=[marker])
    (result,) = answer.markers
    assert result.producer_id == producer.producer_id
    written, unknown = result.topics[0].partitions
    assert (written.partition_index, written.error_code) == (0, 0)
    assert (unknown.partition_index, unknown.error_code) == (9, 3)
    assert read_committed(given.client, given.topic) == [b"v0", b"v1", b"v2"]
    stale = {**marker, "producer_epoch": producer.epoch}
    answer = given.client.call(Api.WRITE_TXN_MARKERS, version, markers=[stale])
    code = answer.markers[0].topics[0].partitions[0].error_code
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH


def describe_transactions(given: Given, version: int) -> None:
    producer = begin(given)
    assert producer.add(given.topic, 1) is ErrorCode.NONE
    ids = [producer.id, "nobody's", ""]
    answer = given.client.call(Api.DESCRIBE_TRANSACTIONS, version, transactional_ids=ids)
    known, unknown, empty = answer.transaction_states
    assert (known.error_code, known.transactional_id) == (0, producer.id)
    assert (known.producer_id, known.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert known.transaction_start_time_ms > 0
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [(given.topic, [1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def list_transactions(given: Given, version: int) -> None:
    empty, ongoing = begin(given), begin(given)
    assert ongoing.add(given.topic, 1) is ErrorCode.NONE
    ids = [empty.producer_id, ongoing.producer_id]

    def listed(**filters: object) -> list[tuple[str, int, str]]:
        body = {"state_filters": [], "producer_id_filters": ids, "duration_filter": -1, **filters}
        answer = given.client.call(Api.LIST_TRANSACTIONS, version, **body)
        assert answer.error_code == 0
        assert answer.unknown_state_filters == (["Odd"] if "state_filters" in filters else [])
        return sorted(
            (each.transactional_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        )

    first = (empty.id, empty.producer_id, "Empty")
    second = (ongoing.id, ongoing.producer_id, "Ongoing")
    assert listed() == sorted([first, second])
    assert listed(state_filters=["Ongoing", "Odd"]) == [second]
    if version >= 1:
        assert listed(duration_filter=3_600_000) == [first]
    if version >= 2:
        assert listed(transactional_id_pattern=f".*{ongoing.id[3:]}") == [second]
        assert listed(transactional_id_pattern="") == sorted([first, second])
        bad = given.client.call(Api.LIST_TRANSACTIONS, version, transactional_id_pattern="a(")
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


SCENARIOS: Scenarios = {
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    Api.END_TXN: end_txn,
    Api.WRITE_TXN_MARKERS: write_txn_markers,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions,
    Api.LIST_TRANSACTIONS: list_transactions,
}

"""A transactional producer that sends single requests, in either version of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from tests.raw_client import Api, RawClient, produce_body

from ottla.base.errors import ErrorCode
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.builder import ControlType, build_batch, control_type
from ottla.wire.records.record import iter_records

TIMESTAMP = 1_700_000_000_000
_numbers = count(1)


def new_id() -> str:
    """Return a transactional ID that no other test uses."""
    return f"txn-{next(_numbers)}"


class TransactionalProducer:
    """A producer that tracks its identity and sequence numbers.

    Every request can be sent in any version, and with another identity."""

    def __init__(self, client: RawClient, transactional_id: str | None = None) -> None:
        self.client = client
        self.id = transactional_id or new_id()
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def find_coordinator(self) -> ErrorCode:
        answer = self.client.call(Api.FIND_COORDINATOR, 3, key=self.id, key_type=1)
        return ErrorCode(answer.error_code)

    def init(
        self, version: int = 5, *, timeout_ms: int = 60_000, as_me: bool = False, **more: Any
    ) -> ErrorCode:
        """Send InitProducerId, with the current identity if `as_me` (KIP-360)."""
        body = {
            "transactional_id": self.id,
            "transaction_timeout_ms": timeout_ms,
            "producer_id": self.producer_id if as_me else -1,
            "producer_epoch": self.epoch if as_me else -1,
            **more,
        }
        answer = self.client.call(Api.INIT_PRODUCER_ID, version, **body)
        if answer.error_code == 0:
            self._become(answer.producer_id, answer.producer_epoch)
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return ErrorCode(answer.error_code)

    def begin(self, version: int = 5, **more: Any) -> TransactionalProducer:
        assert self.find_coordinator() is ErrorCode.NONE
        assert self.init(version, **more) is ErrorCode.NONE
        return self

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    def identity(self, **more: Any) -> dict[str, Any]:
        return {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            **more,
        }

    def identity_as_producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    def add(self, topic: str, *partitions: int, version: int = 3, **more: Any) -> ErrorCode:
        """Add partitions to the transaction and return the error of the first one."""
        identity = self.identity(**more)
        topics = [{"name": topic, "partitions": list(partitions or (0,))}]
        if version < 4:
            body = {f"v3_and_below_{name}": value for name, value in identity.items()}
            body["v3_and_below_topics"] = topics
            answer = self.client.call(Api.ADD_PARTITIONS_TO_TXN, version, **body)
            results = answer.results_by_topic_v3_and_below
        else:
            body = {"transactions": [{"verify_only": False, **identity, "topics": topics}]}
            answer = self.client.call(Api.ADD_PARTITIONS_TO_TXN, version, **body)
            assert answer.error_code == 0
            (result,) = answer.results_by_transaction
            assert result.transactional_id == identity["transactional_id"]
            results = result.topic_results
        return ErrorCode(results[0].results_by_partition[0].partition_error_code)

    def produce(
        self, topic: str, *contents: bytes, partition: int = 0, version: int = 12, **more: Any
    ) -> ErrorCode:
        return ErrorCode(
            self.produce_many({(topic, partition): contents}, version=version, **more)[0]
        )

    def produce_many(
        self,
        contents: Mapping[tuple[str, int], Sequence[bytes]],
        *,
        version: int = 12,
        transactional: bool = True,
        **more: Any,
    ) -> list[int]:
        """Produce in one request and return the error codes in order."""
        identity = self.identity(**more)
        topics: dict[Any, dict[int, bytes | None]] = {}
        for (topic, partition), records in contents.items():
            sequence = more.get("base_sequence", self.sequences.get((topic, partition), 0))
            batch = build_batch(
                [(None, content, (), TIMESTAMP) for content in records],
                producer_id=identity["producer_id"],
                producer_epoch=identity["producer_epoch"],
                base_sequence=sequence,
                transactional=transactional,
            )
            topics.setdefault(topic, {})[partition] = batch
        body = produce_body(topics, -1)
        body["transactional_id"] = identity["transactional_id"]
        answer = self.client.call(Api.PRODUCE, version, **body)
        codes = []
        for topic_answer, (topic, partitions) in zip(answer.responses, topics.items(), strict=True):
            for each in topic_answer.partition_responses:
                codes.append(each.error_code)
                if each.error_code == 0:
                    key = (topic, each.index)
                    assert partitions[each.index] is not None
                    self.sequences[key] = self.sequences.get(key, 0) + len(contents[key])
        return codes

    def add_offsets(self, group: str, version: int = 3, **more: Any) -> ErrorCode:
        body = self.identity(group_id=group, **more)
        return ErrorCode(self.client.call(Api.ADD_OFFSETS_TO_TXN, version, **body).error_code)

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        version: int = 5,
        **more: Any,
    ) -> ErrorCode:
        asked = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        body = self.identity(
            group_id=group,
            topics=[{"name": topic, "partitions": [asked]}],
            **{"generation_id": -1, "member_id": "", "group_instance_id": None, **more},
        )
        answer = self.client.call(Api.TXN_OFFSET_COMMIT, version, **body)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, commit: bool = True, version: int = 5, **more: Any) -> ErrorCode:
        answer = self.client.call(Api.END_TXN, version, committed=commit, **self.identity(**more))
        if version >= 5 and answer.error_code == 0:
            self._become(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def state(self) -> Any:
        answer = self.client.call(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.id])
        (state,) = answer.transaction_states
        return state


def read_committed(client: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    """Return what a read_committed consumer reads up to the last stable offset, batch by batch."""
    found: list[bytes] = []
    offset = 0
    while True:
        answer = fetch_committed(client, topic, offset, partition)
        assert answer.error_code == 0, answer
        if not len(answer.records):
            return found
        values, offset = values_at_offsets(answer, offset)
        found += [value for _, value in values]


def fetch_committed(
    client: RawClient, topic: str, offset: int = 0, partition: int = 0, **more: Any
) -> Any:
    asked = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    answer = client.call(
        Api.FETCH,
        12,
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **more},
        isolation_level=1,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [asked]}],
    )
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def values_committed(answer: Any, offset: int) -> list[bytes]:
    return [value for _, value in values_at_offsets(answer, offset)[0]]


def values_at_offsets(answer: Any, offset: int) -> tuple[list[tuple[int, bytes]], int]:
    """Return the visible (offset, value) pairs and the offset to continue from.

    Like real clients, skip the batches of an aborted transaction until its marker."""
    pending = sorted(
        ((txn.first_offset, txn.producer_id) for txn in answer.aborted_transactions or ()),
        reverse=True,
    )
    aborted: set[int] = set()
    found: list[tuple[int, bytes]] = []
    data, following = bytes(answer.records), offset
    for header in iter_headers(data):
        following = header.next_offset
        while pending and pending[-1][0] <= header.last_offset:
            aborted.add(pending.pop()[1])
        if header.is_control:
            if control_type(data, header) is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [
                (record.offset, record.value or b"")
                for record in iter_records(data, header)
                if record.offset >= offset
            ]
    return found, following


def read_all(client: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    """Return what a read_uncommitted consumer reads, without the markers."""
    data = bytes(client.fetch(topic, 0, partition).records)
    return [
        record.value or b""
        for header in iter_headers(data)
        if not header.is_control
        for record in iter_records(data, header)
    ]

"""Clients of a simulated cluster.

Each client records what the brokers have acknowledged and fails when an acknowledgement does not
hold: at once where it can see that, otherwise at the end of the run (`check`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.sim.cluster.oracle import Batch
from tests.sim.cluster.transactional import Producer

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.partition import Partition
from ottla.wire.api import Api
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.builder import ControlType, build_batch, control_type
from ottla.wire.records.record import iter_records

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

PAUSE_S = 0.12
"""Longest pause between two operations of a client, in seconds."""
RETRY_S = 0.05
TIMEOUT_S = 2.0
GROUP = "g"
ABORTABLE = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})
TRANSACTIONAL_GROUP = "tg"
MOST_IN_A_ROW = 6


class Client:
    """A client that runs one operation after another until the simulation ends."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def run(self) -> None:
        await self.begin()
        while not self.world.is_over:
            await self.act()
            await asyncio.sleep(self.world.random.uniform(0, PAUSE_S))

    async def begin(self) -> None:
        """Prepare the client before its first operation."""

    async def act(self) -> None:
        raise AssertionError("it does nothing")

    def check(self) -> None:
        """Check the client's guarantees at the end of the run, when the cluster is healthy."""

    async def some_broker(self, api: Api, body: dict[str, Any], **options: Any) -> Any:
        return await self.world.ask(self.world.draw_broker(), api, body, **options)


class Writer(Client):
    """A producer of numbered records to one partition, one request at a time, with retries.

    With acks=all and idempotence, every acknowledged record must be in the log exactly once and
    in order. With acks=1 nothing is guaranteed."""

    def __init__(self, world: World, key: TopicPartition, acks: int = -1) -> None:
        super().__init__(world)
        self.key = key
        self._acks = acks
        self._producer_id = -1
        self.acked: list[int] = []
        self.sent = 0

    async def begin(self) -> None:
        while self._producer_id < 0:
            answer = await self.some_broker(
                Api.INIT_PRODUCER_ID,
                {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
            )
            if answer is not None and not answer.error_code:
                self._producer_id = answer.producer_id
                self.world.oracle.producer_id_given(answer.producer_id)

    async def act(self) -> None:
        number = self.sent
        is_counted = self._acks == -1
        batch = build_batch(
            [(None, b"%d" % number, (), 0)],
            producer_id=self._producer_id if is_counted else -1,
            producer_epoch=0 if is_counted else -1,
            base_sequence=number if is_counted else -1,
        )
        data = {"index": self.key.partition, "records": batch}
        body = {
            "transactional_id": None,
            "acks": self._acks,
            "timeout_ms": 1_000,
            "topic_data": [{"name": self.key.topic, "partition_data": [data]}],
        }
        node = 1
        self.sent += 1
        while True:
            answer = await self.world.ask(node, Api.PRODUCE, body, max_version=12)
            if answer is not None:
                reported = answer.responses[0].partition_responses[0]
                if reported.error_code == 0:
                    self._granted(number, reported.base_offset)
                    return
            node = await self._leader(node)
            await asyncio.sleep(RETRY_S)

    def _granted(self, number: int, offset: int) -> None:
        self.acked.append(number)
        if self._acks == -1:
            history = self.world.oracle.history(self.key)
            assert offset in history.committed, f"{self.key} {offset} is granted, not committed"

    async def _leader(self, asked: int) -> int:
        """Return the leader according to one broker's metadata, or that broker if it knows none."""
        node = asked % len(self.world.cluster.machines) + 1
        topics = [{"name": self.key.topic}]
        answer = await self.world.ask(node, Api.METADATA, {"topics": topics})
        if answer is not None and answer.topics:
            for reported in answer.topics[0].partitions:
                if reported.partition_index == self.key.partition and reported.leader_id > 0:
                    leader: int = reported.leader_id
                    return leader
        return node

    def check(self) -> None:
        if self._acks != -1:
            return
        values = [int(value) for value in stored(self.world.leading(self.key))]
        assert values[: len(self.acked)] == self.acked, (
            f"{self.key}: {len(self.acked)} acknowledged, the leader has {values[-5:]}"
        )
        assert len(values) <= self.sent, f"{self.key} has records that nobody sent"


class Reader(Client):
    """A consumer that keeps reading a partition from the beginning.

    It reads from any broker that claims to lead. Every record that it reads must be committed
    and must never change."""

    def __init__(self, world: World, key: TopicPartition) -> None:
        super().__init__(world)
        self.key = key
        self._offset = 0

    async def act(self) -> None:
        wanted = {
            "partition": self.key.partition,
            "fetch_offset": self._offset,
            "partition_max_bytes": 2_000,
            "current_leader_epoch": -1,
        }
        body = {
            "max_wait_ms": 100,
            "min_bytes": 1,
            "topics": [{"topic": self.key.topic, "partitions": [wanted]}],
        }
        answer = await self.some_broker(Api.FETCH, body, max_version=12)
        if answer is None or answer.error_code or not answer.responses:
            return
        reported = answer.responses[0].partitions[0]
        if reported.error_code or not reported.records:
            self._offset = 0 if reported.error_code else self._offset
            return
        committed = self.world.oracle.history(self.key).committed
        for header in iter_headers(reported.records):
            seen = Batch(header.base_offset, header.next_offset, header.leader_epoch, header.crc)
            known = committed.get(header.base_offset)
            assert known == seen, f"3: a consumer of {self.key} sees {seen}, committed is {known}"
            self._offset = header.next_offset


class Committer(Client):
    """A client that commits increasing offsets for its group and fetches them again.

    An acknowledged commit must never be lost, whichever broker considers itself the coordinator."""

    def __init__(self, world: World, key: TopicPartition) -> None:
        super().__init__(world)
        self.key = key
        self._sent = 0
        self.acked = 0

    async def act(self) -> None:
        if self.world.random.random() < 0.5:
            await self._commit()
        else:
            await self._fetch()

    async def _commit(self) -> None:
        self._sent += 1
        partition = {"partition_index": self.key.partition, "committed_offset": self._sent}
        body = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": self.key.topic, "partitions": [partition]}],
        }
        for node in self.world.shuffled_brokers():
            answer = await self.world.ask(node, Api.OFFSET_COMMIT, body, max_version=8)
            if answer is not None and not answer.topics[0].partitions[0].error_code:
                self.acked = self._sent
                return

    async def _fetch(self) -> None:
        before = self.acked
        topics = [{"name": self.key.topic, "partition_indexes": [self.key.partition]}]
        body = {"group_id": GROUP, "topics": topics}
        answer = await self.some_broker(Api.OFFSET_FETCH, body, max_version=7)
        if answer is None or answer.error_code or not answer.topics:
            return
        reported = answer.topics[0].partitions[0]
        if not reported.error_code:
            found = max(reported.committed_offset, 0)
            assert before <= found <= self._sent, (
                f"offset {before} was committed, {self._sent} sent, but {found} is reported"
            )


class EndAsker(Client):
    """A client that lists a partition's end offset.

    The offset must cover every record committed before the request."""

    def __init__(self, world: World, key: TopicPartition) -> None:
        super().__init__(world)
        self.key = key

    async def act(self) -> None:
        end = self.world.oracle.history(self.key).end
        asked = {"partition_index": self.key.partition, "timestamp": -1}
        body = {"replica_id": -1, "topics": [{"name": self.key.topic, "partitions": [asked]}]}
        answer = await self.some_broker(Api.LIST_OFFSETS, body)
        if answer is None or answer.topics[0].partitions[0].error_code:
            return
        reported = answer.topics[0].partitions[0].offset
        assert reported >= end, (
            f"{self.key} was committed to {end} but its reported end is {reported}"
        )


class Transactor(Client):
    """A producer that writes each number to two partitions in one transaction.

    It commits or aborts; each number must be in both partitions exactly once, or in neither."""

    def __init__(self, world: World, topic: str, version: int) -> None:
        super().__init__(world)
        self._topic = topic
        self._producer = Producer(world, f"id-{version}", version=version, topic=topic)
        self._number = 0
        self.committed: set[int] = set()
        self.aborted: set[int] = set()

    async def begin(self) -> None:
        await self._producer.begin()
        self.world.oracle.producer_id_given(self._producer.producer_id)

    async def act(self) -> None:
        number, producer = self._number, self._producer
        self._number += 1
        commits = self.world.random.random() < 0.6
        code = ErrorCode.NONE
        if producer.version == 1:
            code = await producer.add(0, 1)
        for index in (0, 1):
            if code is ErrorCode.NONE:
                code = await producer.produce(index, b"%d" % number)
        assert code is ErrorCode.NONE or code in ABORTABLE, f"{number} is refused: {code.name}"
        commits = commits and code is ErrorCode.NONE
        code = await producer.end(commit=commits)
        assert code is ErrorCode.NONE, f"{number} cannot be ended: {code.name}"
        (self.committed if commits else self.aborted).add(number)

    def check(self) -> None:
        for index in (0, 1):
            key = TopicPartition(self._topic, index)
            check_outcomes(self.world.leading(key), self.committed, self.aborted)


class SmallTransactor(Client):
    """A producer that runs small transactions back to back, in version 2 of the protocol.

    Each transaction contains a record, an offset, both or nothing, and the producer never waits
    for the markers of the previous one. It breaks no rule, so it must never get an error that is
    fatal for a producer. Committed records must be readable exactly once, aborted ones never,
    and the group's offset must be the last one committed."""

    def __init__(self, world: World, topic: str) -> None:
        super().__init__(world)
        self._key = TopicPartition(topic, 0)
        self._producer = Producer(world, "small", version=2, topic=topic)
        self._number = 0
        self._offset = -1
        self.committed: set[int] = set()
        self.aborted: set[int] = set()

    async def begin(self) -> None:
        await self._producer.begin()
        self.world.oracle.producer_id_given(self._producer.producer_id)

    async def act(self) -> None:
        for _ in range(self.world.random.randint(1, MOST_IN_A_ROW)):
            await self._transact()
        offset = await self._producer.stable_offset(TRANSACTIONAL_GROUP)
        assert offset in (None, self._offset), (
            f"offset {self._offset} was committed in a transaction, but {offset} is reported"
        )

    async def _transact(self) -> None:
        number, draw = self._number, self.world.random
        self._number += 1
        has_record, has_offset = draw.random() < 0.6, draw.random() < 0.4
        code = ErrorCode.NONE
        if has_offset:
            code = await self._producer.commit_offset(TRANSACTIONAL_GROUP, number)
            self._check("offset", code, ErrorCode.TRANSACTION_ABORTABLE)
        if has_record and code is ErrorCode.NONE:
            code = await self._producer.produce(0, b"%d" % number)
            self._check("record", code, *ABORTABLE)
        is_good = code is ErrorCode.NONE and (has_record or has_offset)
        commits = is_good and draw.random() < 0.7
        await self._end(commit=commits)
        if commits and has_offset:
            self._offset = number
        if has_record:
            (self.committed if commits else self.aborted).add(number)

    async def _end(self, *, commit: bool) -> None:
        before = self._producer.producer_id
        self._check("end", await self._producer.end(commit=commit))
        if self._producer.producer_id != before:
            self.world.oracle.producer_id_given(self._producer.producer_id)

    def _check(self, what: str, code: ErrorCode, *allowed: ErrorCode) -> None:
        assert code is ErrorCode.NONE or code in allowed, (
            f"{what} of small transaction {self._number - 1} is refused: {code.name}"
        )

    def check(self) -> None:
        check_outcomes(self.world.leading(self._key), self.committed, self.aborted)


def check_outcomes(partition: Partition, committed: set[int], aborted: set[int]) -> None:
    """Raise AssertionError unless a log has each committed number exactly once and no other."""
    key = partition.key
    numbers = [int(value) for value in stored(partition, committed=True)]
    assert len(numbers) == len(set(numbers)), f"{key} has a number twice: {numbers}"
    lost = committed - set(numbers)
    assert not lost, f"{key} lacks {sorted(lost)[:5]}, which were committed"
    undone = aborted & set(numbers)
    assert not undone, f"{key} has {sorted(undone)[:5]}, which were aborted"


def stored(partition: Partition, *, committed: bool = False) -> list[bytes]:
    """Return all values of a log, or only those of committed transactions."""
    log = partition.log
    values: list[bytes] = []
    open_values: dict[int, list[bytes]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True, wait=True)
        for header in iter_headers(found.records):
            if header.is_control:
                ended = open_values.pop(header.producer_id, [])
                marker = control_type(found.records[header.position : header.end])
                values += ended if marker is ControlType.COMMIT else []
                continue
            reported = [
                bytes(record.value or b"") for record in iter_records(found.records, header)
            ]
            if committed and header.is_transactional:
                open_values.setdefault(header.producer_id, []).extend(reported)
            else:
                values += reported
        if found.next_offset == offset:
            break
        offset = found.next_offset
    return values

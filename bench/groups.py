"""Groups: cost of heartbeats, latency of commits, and time to load many groups.

Each member has its own connection and sends what a real idle member sends: heartbeats at the
default interval, spread over time.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from bench.load import in_processes
from bench.measure import Figure, cpu_seconds, resident_bytes
from ottla.core.group.embedded_protocol import write_assignment
from ottla.testing.broker import BrokerProcess
from ottla.wire import codec

GROUPS, MEMBERS = 200, 5
CLASSIC_INTERVAL_S, CONSUMER_INTERVAL_S = 3.0, 5.0
MEASURED_S = 5.0
COMMITTERS, COMMITS = 4, 1_000
ROUNDS = 5
"""Number of rounds for heartbeats, commits and restarts. The best one counts, to exclude the effect
of other load on the machine."""
MANY = 10_000
MADE_AT_ONCE, JOINED_AT_ONCE = 64, 25
"""Number of groups created concurrently: with one member, and with many."""
TOPIC = "t"
PARTITIONS = 10
DELAY = "group.initial.rebalance.delay.ms"

_JOIN, _SYNC, _HEARTBEAT, _COMMIT, _LIST = (11, 9), (14, 5), (12, 4), (8, 9), (16, 5)
_FIND, _CREATE, _CONSUMER = (10, 0), (19, 7), (68, 1)
_SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
LOAD_IN_PROGRESS = 14


def run() -> Iterator[Figure]:
    for name, join, interval_s in (
        ("classic", _join_classic, CLASSIC_INTERVAL_S),
        ("consumer", _join_consumer, CONSUMER_INTERVAL_S),
    ):
        with BrokerProcess(overrides={DELAY: "100"}) as broker:
            share, p99_ms = asyncio.run(_heartbeats_and_commits(broker, join, interval_s))
        members = f"{GROUPS} {name} groups of {MEMBERS}"
        yield Figure(f"{members}: heartbeats", share * 100, "% of a core", budget=10)
        yield Figure("… commit p99 at the same time", p99_ms, "ms", budget=10)
    with BrokerProcess(overrides={DELAY: "0"}) as broker:
        asyncio.run(_make_many(broker))
        yield Figure(f"memory with {MANY} groups", resident_bytes(broker.pid) / 1_000_000, "MB")
        taken = min(_restart_s(broker) for _ in range(ROUNDS))
        yield Figure(f"recovery of {MANY} groups after a kill", taken, "s", budget=5)


def _restart_s(broker: BrokerProcess) -> float:
    broker.kill()
    start = time.monotonic()
    broker.start()
    asyncio.run(_wait_until_loaded(broker))
    return time.monotonic() - start


# ------------------------------------------------------------------------------------- connections


class Connection:
    """Connection that handles one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, broker: BrokerProcess) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", broker.port))

    async def request(self, api: tuple[int, int], **body: Any) -> Any:
        self._writer.write(b"".join(codec.encode_request(*api, 1, "bench", body)))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return codec.decode_response(*api, memoryview(await self._reader.readexactly(size)))[1]

    def close(self) -> None:
        self._writer.close()


async def _prepare(broker: BrokerProcess) -> None:
    connection = await Connection.open(broker)
    topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
    await connection.request(_CREATE, topics=[topic], timeout_ms=5_000)
    await connection.request(_FIND, key="any")
    connection.close()


# ------------------------------------------------------------------------------------------ members


class BenchMember:
    """Member of a group; `heartbeat` sends one heartbeat."""

    def __init__(self, connection: Connection, heartbeat: Callable[[], Awaitable[None]]) -> None:
        self.connection, self.heartbeat = connection, heartbeat


Join = Callable[[BrokerProcess, str, int], Coroutine[Any, Any, list[BenchMember]]]


async def _join_classic(broker: BrokerProcess, group: str, size: int) -> list[BenchMember]:
    """Create a stable classic group."""
    connections = [await Connection.open(broker) for _ in range(size)]
    fields = {
        "group_id": group,
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": _SUBSCRIPTION}],
    }
    ids = [(await each.request(_JOIN, **fields, member_id="")).member_id for each in connections]
    joined = await asyncio.gather(
        *(
            each.request(_JOIN, **fields, member_id=id)
            for each, id in zip(connections, ids, strict=True)
        )
    )
    generation = {each.generation_id for each in joined}
    assert len(generation) == 1, "not all members are in one generation"
    share = write_assignment(0, {TOPIC: range(PARTITIONS // size)})
    assignments = [{"member_id": id, "assignment": share} for id in ids]
    await asyncio.gather(
        *(
            each.request(
                _SYNC, group_id=group, generation_id=response.generation_id,
                member_id=response.member_id, protocol_type="consumer", protocol_name="range",
                assignments=assignments if response.members else [],
            )
            for each, response in zip(connections, joined, strict=True)
        )
    )  # fmt: skip

    def member(connection: Connection, member_id: str) -> BenchMember:
        async def heartbeat() -> None:
            response = await connection.request(
                _HEARTBEAT, group_id=group, generation_id=min(generation), member_id=member_id
            )
            assert response.error_code == 0, response

        return BenchMember(connection, heartbeat)

    return [member(each, id) for each, id in zip(connections, ids, strict=True)]


async def _join_consumer(broker: BrokerProcess, group: str, size: int) -> list[BenchMember]:
    members = [await _consumer_member(broker, group) for _ in range(size)]
    for _ in range(4):
        for each in members:
            await each.heartbeat()
    return members


async def _consumer_member(broker: BrokerProcess, group: str) -> BenchMember:
    connection = await Connection.open(broker)
    known: dict[str, Any] = {"group_id": group, "member_id": str(uuid.uuid4())}
    response = await connection.request(
        _CONSUMER, **known, member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC], topic_partitions=[],
    )  # fmt: skip
    epoch, owned = response.member_epoch, _owned(response)
    has_new_assignment = True

    async def heartbeat() -> None:
        nonlocal epoch, owned, has_new_assignment
        fields = {"topic_partitions": owned} if has_new_assignment else {"topic_partitions": None}
        response = await connection.request(_CONSUMER, **known, member_epoch=epoch, **fields)
        assert response.error_code == 0, response
        epoch, has_new_assignment = response.member_epoch, response.assignment is not None
        if has_new_assignment:
            owned = _owned(response)

    return BenchMember(connection, heartbeat)


def _owned(response: Any) -> list[dict[str, Any]]:
    return [
        {"topic_id": each.topic_id, "partitions": each.partitions}
        for each in response.assignment.topic_partitions
    ]


# ----------------------------------------------------------------------------- heartbeats, commits


async def _heartbeats_and_commits(
    broker: BrokerProcess, join: Join, interval_s: float
) -> tuple[float, float]:
    """Return the share of a core spent on heartbeats, and the p99 of concurrent commits, in ms."""
    await _prepare(broker)
    members: list[BenchMember] = []
    for start in range(0, GROUPS, JOINED_AT_ONCE):
        numbers = range(start, min(start + JOINED_AT_ONCE, GROUPS))
        joined = await asyncio.gather(
            *(join(broker, f"group-{number}", MEMBERS) for number in numbers)
        )
        members += (member for group in joined for member in group)
    first = time.monotonic()
    tasks = [
        asyncio.create_task(
            _heartbeat_loop(each.heartbeat, first + interval_s * index / len(members), interval_s)
        )
        for index, each in enumerate(members)
    ]
    await asyncio.sleep(2 * interval_s)
    share = min([await _cpu_share(broker) for _ in range(ROUNDS)])
    rounds = [await asyncio.to_thread(_commit_p99_s, broker.port) for _ in range(ROUNDS)]
    for task in tasks:
        assert not task.done(), "a heartbeat has failed"
        task.cancel()
    return share, min(rounds) * 1_000


async def _cpu_share(broker: BrokerProcess) -> float:
    """Measure a period in which every member sends about one heartbeat."""
    began, before = time.monotonic(), cpu_seconds(broker.pid)
    await asyncio.sleep(MEASURED_S)
    return (cpu_seconds(broker.pid) - before) / (time.monotonic() - began)


async def _heartbeat_loop(
    heartbeat: Callable[[], Awaitable[None]], first: float, interval_s: float
) -> None:
    due = first
    while True:
        await asyncio.sleep(max(due - time.monotonic(), 0))
        await heartbeat()
        due += interval_s


def _commit_p99_s(port: int) -> float:
    taken = in_processes(COMMITTERS, partial(_commit_in_process, port))
    latencies = sorted(each for one in taken for each in one)
    return latencies[int(len(latencies) * 0.99)]


def _commit_in_process(port: int, number: int) -> list[float]:
    """Measure commits in a separate process, so that this one's heartbeats do not delay them."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        taken = []
        for offset in range(COMMITS):
            body = _commit_body(f"committer-{number}", offset)
            start = time.perf_counter()
            connection.sendall(b"".join(codec.encode_request(*_COMMIT, 1, "bench", body)))
            (size,) = struct.unpack(">i", stream.read(4))
            response = codec.decode_response(*_COMMIT, memoryview(stream.read(size)))[1]
            taken.append(time.perf_counter() - start)
            assert response.topics[0].partitions[0].error_code == 0, response
    return taken


async def _commit(connection: Connection, group: str, offset: int) -> None:
    response = await connection.request(_COMMIT, **_commit_body(group, offset))
    assert response.topics[0].partitions[0].error_code == 0, response


def _commit_body(group: str, offset: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": TOPIC, "partitions": [partition]}],
    }


# ----------------------------------------------------------------------------------- many groups


async def _make_many(broker: BrokerProcess) -> None:
    """Create classic and consumer groups in turn, of one member, each with a committed offset."""
    await _prepare(broker)
    for start in range(0, MANY, MADE_AT_ONCE):
        numbers = range(start, min(start + MADE_AT_ONCE, MANY))
        await asyncio.gather(*(_make(broker, number) for number in numbers))


async def _make(broker: BrokerProcess, number: int) -> None:
    group = f"group-{number}"
    connection = await Connection.open(broker)
    await _commit(connection, group, number)
    connection.close()
    join = _join_consumer if number % 2 else _join_classic
    (member,) = await join(broker, group, 1)
    member.connection.close()


async def _wait_until_loaded(broker: BrokerProcess) -> None:
    connection = await Connection.open(broker)
    while True:
        response = await connection.request(_LIST)
        if response.error_code != LOAD_IN_PROGRESS:
            break
        await asyncio.sleep(0.01)
    assert len(response.groups) == MANY, f"{len(response.groups)} groups exist"
    connection.close()

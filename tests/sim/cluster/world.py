"""A simulated cluster under load and faults, with what must always hold.

Writers produce numbered records with acks=all, idempotently, each to one partition, and note what
was acknowledged. After the faults everything heals, and then, of each partition:

- every acknowledged record is there, once, in the order in which it was sent;
- all replicas that are in sync hold the same records up to the high watermark;
- there is a leader, within a bound.

While it runs, after every step: the high watermark that consumers saw of an offset is never taken
back to other contents (`check`)."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.partition import Partition
from ottla.net.connection import Connection
from ottla.net.errors import ClientError
from ottla.testing.simulation.cluster import BROKER_PORT, Machine, SimulatedCluster, repeatable
from ottla.wire.api import Api
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import iter_records

TOPIC = "t"
HEAL_S = 40.0
FAULT_GAP_S = 1.5


class Writer:
    """One producer of one partition: one request at a time, repeated until it is granted."""

    def __init__(self, world: World, partition: int) -> None:
        self._world = world
        self._partition = partition
        self._producer_id = -1
        self.acked: list[int] = []
        self.sent = 0
        self.connections: dict[int, Connection] = {}

    async def run(self) -> None:
        while self._producer_id < 0:
            await self._init()
        while not self._world.is_over:
            await self._send(self.sent)
            self.acked.append(self.sent)
            self.sent += 1

    async def _init(self) -> None:
        answer = await self._try(
            1 + self._partition % len(self._world.cluster.machines),
            Api.INIT_PRODUCER_ID,
            {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        )
        if answer is not None and not answer.error_code:
            self._producer_id = answer.producer_id

    async def _send(self, number: int) -> None:
        batch = build_batch(
            [(None, b"%d" % number, (), 0)],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=number,
        )
        data = {"index": self._partition, "records": batch}
        body = {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": 1_000,
            "topic_data": [{"name": TOPIC, "partition_data": [data]}],
        }
        node = 1
        while True:
            answer = await self._try(node, Api.PRODUCE, body, max_version=12)
            if answer is not None:
                told = answer.responses[0].partition_responses[0]
                if told.error_code == 0:
                    return
            node = await self._leader(node)
            await asyncio.sleep(0.05)

    async def _leader(self, asked: int) -> int:
        """As any broker tells; a broker's number otherwise."""
        node = asked % len(self._world.cluster.machines) + 1
        answer = await self._try(node, Api.METADATA, {"topics": [{"name": TOPIC}]})
        if answer is not None and answer.topics and answer.topics[0].partitions:
            for told in answer.topics[0].partitions:
                if told.partition_index == self._partition and told.leader_id > 0:
                    leader: int = told.leader_id
                    return leader
        return node

    async def _try(self, node: int, api: Api, body: dict[str, Any], **options: Any) -> Any:
        try:
            connection = self.connections.get(node)
            if connection is None or not connection.is_open:
                connection = await Connection.open(f"broker-{node}", BROKER_PORT, timeout_s=1.0)
                self.connections[node] = connection
            return await connection.request(api, body, 2.0, **options)
        except ClientError:
            return None


class World:
    def __init__(self, seed: int, partitions: int = 2, **overrides: str) -> None:
        named = {name.replace("__", "."): value for name, value in overrides.items()}
        self.cluster = SimulatedCluster(seed, 3, named)
        self.random = self.cluster.scheduler.random
        self.is_over = False
        self._partitions = partitions
        self.client = self.cluster.process("client")
        self.writers = [Writer(self, partition) for partition in range(partitions)]
        self.story: list[str] = []
        self._down: set[int] = set()

    # ------------------------------------------------------------------------------- the course

    def run(self, faults: int) -> None:
        scheduler = self.cluster.scheduler
        self.cluster.start()
        scheduler.run(self._create_topic(), self.client)
        tasks = [self.client.loop.create_task(writer.run()) for writer in self.writers]
        scheduler.run_for(1.0)
        for _ in range(faults):
            self._fault()
            scheduler.run_for(self.random.uniform(0.05, FAULT_GAP_S))
        self._heal()
        before = [len(writer.acked) for writer in self.writers]
        deadline = scheduler.now + HEAL_S
        while scheduler.now < deadline and not self._all_write_again(before):
            scheduler.run_for(0.5)
        assert self._all_write_again(before), f"no leader {HEAL_S} s after all is well"
        self.is_over = True
        scheduler.run_until(lambda: all(task.done() for task in tasks))
        for task in tasks:
            task.result()
        scheduler.run_for(5.0)
        self._check_records()

    async def _create_topic(self) -> None:
        writer = self.writers[0]
        topic = {"name": TOPIC, "num_partitions": self._partitions, "replication_factor": 3}
        while True:
            answer = await writer._try(
                1, Api.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 5_000}
            )
            if answer is not None and answer.topics[0].error_code in (0, 36):
                return
            await asyncio.sleep(0.2)

    def _all_write_again(self, before: list[int]) -> bool:
        return all(
            len(writer.acked) > count + 2
            for writer, count in zip(self.writers, before, strict=True)
        )

    # ---------------------------------------------------------------------------------- faults

    def _fault(self) -> None:
        kind = self.random.choice(
            ["kill", "kill", "cut", "one_way", "pause", "zookeeper", "heal", "restart", "cut_zk"]
        )
        getattr(self, f"_{kind}")()

    def _say(self, what: str) -> None:
        self.story.append(f"{self.cluster.scheduler.now:8.3f} {what}")

    def _victim(self) -> Machine | None:
        """One at a time: a majority of the replicas is always there."""
        if self._down:
            return None
        return self.random.choice(list(self.cluster.machines.values()))

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._down.add(victim.number)
            self._say(f"kill {victim.number}")
            victim.kill()

    def _restart(self) -> None:
        for number in sorted(self._down):
            machine = self.cluster.machines[number]
            self._say(f"restart {number}")
            if machine.process.is_paused:
                machine.process.resume()
            if not machine.process.is_alive:
                machine.start()
        self._down.clear()

    def _pause(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._down.add(victim.number)
            self._say(f"pause {victim.number}")
            victim.process.pause()

    def _cut(self) -> None:
        first, second = self.random.sample(sorted(self.cluster.machines), 2)
        self._say(f"cut {first} {second}")
        self.cluster.network.cut(f"broker-{first}", f"broker-{second}")

    def _one_way(self) -> None:
        first, second = self.random.sample(sorted(self.cluster.machines), 2)
        self._say(f"cut {first} -> {second}")
        self.cluster.network.cut(f"broker-{first}", f"broker-{second}", both=False)

    def _cut_zk(self) -> None:
        number = self.random.choice(sorted(self.cluster.machines))
        self._say(f"cut {number} zookeeper")
        self.cluster.network.cut(f"broker-{number}", "zookeeper")

    def _zookeeper(self) -> None:
        if self.cluster.zookeeper.process.is_alive:
            self._say("zookeeper restarts")
            self.cluster.kill_zookeeper()
            self.cluster.restart_zookeeper()

    def _heal(self) -> None:
        self._say("heal")
        self.cluster.network.heal()
        self._restart()

    # ------------------------------------------------------------------------------- invariants

    def _check_records(self) -> None:
        for writer in self.writers:
            index = writer._partition
            copies = self._copies(index)
            assert copies, f"{TOPIC}-{index} is nowhere"
            leaders = [number for number, each in copies.items() if each.is_leader]
            assert len(leaders) == 1, f"{TOPIC}-{index} is led by {leaders}"
            leader = copies[leaders[0]]
            values = read_all(leader)
            assert values[: len(writer.acked)] == writer.acked, (
                f"{TOPIC}-{index}: {len(writer.acked)} acknowledged, leader has {values[-5:]}"
            )
            assert len(values) <= writer.sent + 1, f"{TOPIC}-{index} has records that nobody sent"
            for number, copy in copies.items():
                shared = min(copy.high_watermark, leader.high_watermark)
                assert read_all(copy)[:shared] == values[:shared], f"{number} differs"

    def _copies(self, index: int) -> dict[int, Partition]:
        found = {}
        for machine in self.cluster.ready:
            assert machine.broker is not None
            partition = machine.broker.partitions.get((TOPIC, index))
            if partition is not None:
                found[machine.number] = partition
        return found


def read_all(partition: Partition) -> list[int]:
    log = partition.log
    values: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True, wait=True)
        for header in iter_headers(found.records):
            values += [int(record.value or b"-1") for record in iter_records(found.records, header)]
        if found.next_offset == offset:
            break
        offset = found.next_offset
    return values


def simulate(seed: int, faults: int = 12, **overrides: str) -> World:
    with repeatable(seed):
        world = World(seed, **overrides)
        try:
            world.run(faults)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(world.story)) from error
    return world

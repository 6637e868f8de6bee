"""A simulated cluster under load and faults, checked against the invariants.

Each seed makes a different world: which faults happen and how often, how fast followers must be,
how clocks drift, how fast disks are, and which clients run. Faults are drawn one after another.
Then everything heals; within a time limit every partition must have a leader, and every
acknowledged write must be there.

    kill, power     a broker's process ends; its machine loses power, and what was not synced
    pause           a process stops and continues later
    cut, one_way    two brokers cannot reach each other; only in one direction
    cut_zk, slow    a broker cannot reach ZooKeeper; a link is slow
    reset           connections break and lose what is in flight
    zookeeper       the ensemble restarts, or is unavailable for a while
    expire          a session ends although its owner is healthy
    full, sick      a disk is full; a sync fails once, and the disk's contents are unknown
    roll            a broker shuts down cleanly and starts again
    restart, heal   stopped brokers return; all faults are healed for a while

The oracle and the clients check the world while it runs. A broker that logs a traceback has met
an unforeseen error, even if it continued."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sim.cluster.clients import (
    Client,
    Committer,
    EndAsker,
    Reader,
    SmallTransactor,
    Transactor,
    Writer,
)
from tests.sim.cluster.oracle import Oracle
from tests.sim.cluster.transactional import last_epoch

from ottla.base.types import TopicPartition
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.partition import Partition
from ottla.core.txn import machine as transactions
from ottla.net.connection import Connection
from ottla.net.errors import ClientError
from ottla.testing.simulation.cluster import (
    BROKER_PORT,
    ZOOKEEPER,
    Machine,
    SimulatedCluster,
    repeatable,
)
from ottla.testing.simulation.disk import Fault
from ottla.wire.api import Api
from ottla.wire.request import Request

TOPIC, HASTY, TXN, SMALL = "t", "h", "x", "s"
PARTITIONS = {TOPIC: 2, HASTY: 1, TXN: 2, SMALL: 1}
BROKERS = 3
HEAL_S = 40.0
QUIET_S = 10.0
KINDS = (
    "kill", "power", "pause", "cut", "one_way", "cut_zk", "slow", "reset", "zookeeper", "expire",
    "full", "sick", "roll",
)  # fmt: skip
MAX_DRIFT = 0.08
FEW_EPOCHS = 6
FULL_ROOM_BYTES = 2_000


class World:
    def __init__(self, seed: int, **overrides: str) -> None:
        named = {name.replace("__", "."): value for name, value in overrides.items()}
        self.cluster = SimulatedCluster(seed, BROKERS, named)
        self.random = self.cluster.scheduler.random
        self.is_over = self.was_lost = False
        self.client = self.cluster.process("client")
        self.oracle = Oracle(self.cluster)
        for topic, count in PARTITIONS.items():
            self.oracle.watch(topic, count)
        self.story: list[str] = []
        self.clients: list[Client] = []
        self._connections: dict[tuple[int, bool], Connection] = {}
        self._down: set[int] = set()
        self._draw_nature()

    def _draw_nature(self) -> None:
        """Draw the properties of this world from its seed."""
        draw = self.random
        self._kinds = [kind for kind in KINDS if draw.random() < 0.4] or ["kill"]
        self._kinds += ["restart", "heal"]
        self._gap_s = draw.choice([0.2, 0.6, 1.5])
        self._max_down = draw.choice([1, 1, 2])
        self.cluster.network.max_delay_s = draw.choice([0.002, 0.002, 0.02])
        self.cluster.zookeeper.max_lag_s = draw.choice([0.0, 0.0, 0.3])
        self.cluster.scheduler.max_thread_delay_s = draw.choice([0.004, 0.004, 0.3])
        self.cluster.use({"replica.lag.time.max.ms": draw.choice(["1300", "2000"])})
        if draw.random() < 0.3:
            self.cluster.use({"log.flush.acks.all": "true"})
        if draw.random() < 0.5:
            # Fetching one batch at a time keeps a lagging follower behind for a while.
            self.cluster.use({"replica.fetch.max.bytes": "1"})
        self._is_careful = draw.random() < 0.7
        if draw.random() < 0.5:
            for machine in self.cluster.machines.values():
                machine.process.clock_rate = draw.uniform(1 - MAX_DRIFT, 1 + MAX_DRIFT)
                machine.process.clock_offset_s = draw.uniform(-5, 5)
        self.cluster.use({"add.partitions.to.txn.retry.backoff.ms": draw.choice(["1", "20"])})
        # In some worlds the brokers authenticate each other again every second or so.
        self.cluster.use({"connections.max.reauth.ms": draw.choice(["0", "0", "1500"])})
        # In some worlds producers use up their epochs every few transactions.
        self.last_epoch = draw.choice([transactions.LAST_EPOCH, FEW_EPOCHS])

    def _draw_clients(self) -> None:
        first, second = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
        self.clients = [Writer(self, first), Writer(self, second)]
        others: list[Client] = [
            Writer(self, TopicPartition(HASTY, 0), acks=1),
            Reader(self, first),
            Committer(self, first),
            EndAsker(self, first),
            Transactor(self, TXN, version=self.random.choice([1, 2])),
            SmallTransactor(self, SMALL),
        ]
        self.clients += [each for each in others if self.random.random() < 0.6]

    # ------------------------------------------------------------------------ running the world

    def run(self, faults: int) -> None:
        scheduler = self.cluster.scheduler
        self.cluster.start()
        scheduler.run(self._create_topics(), self.client)
        self._draw_clients()
        tasks = [self.client.loop.create_task(each.run()) for each in self.clients]
        self._run_for(1.0, tasks)
        for _ in range(faults):
            self._fault()
            self._run_for(self.random.uniform(0.05, self._gap_s), tasks)
        self._heal()
        self.was_lost = self._wait_until_well(tasks)
        self.is_over = True
        self._wait_for_clients(tasks)
        if self.was_lost:
            return
        self._wait_until_in_sync()
        self._wait_until_stable()
        self._wait_for_images()
        self._check_replicas()
        for client in self.clients:
            client.check()

    async def _create_topics(self) -> None:
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": BROKERS}
            for name, count in PARTITIONS.items()
        ]
        body = {"topics": topics, "timeout_ms": 5_000}
        while True:
            answer = await self.ask(1, Api.CREATE_TOPICS, body)
            if answer is not None and all(each.error_code in (0, 36) for each in answer.topics):
                return
            await asyncio.sleep(0.2)

    def _run_for(self, seconds: float, tasks: list[asyncio.Task[None]]) -> None:
        self.cluster.scheduler.run_for(seconds)
        for task in tasks:
            if task.done():
                task.result()

    def _wait_until_well(self, tasks: list[asyncio.Task[None]]) -> bool:
        """Wait until all writers progress, and return whether a partition has been lost.

        A partition is lost if every member of its ISR has lost power since. That is allowed, and
        then nothing more can be checked."""
        writers = [each for each in self.clients if isinstance(each, Writer)]
        before = [len(each.acked) for each in writers]
        scheduler = self.cluster.scheduler
        deadline = scheduler.now + HEAL_S
        while scheduler.now < deadline:
            self._supervise()
            self._run_for(0.5, tasks)
            if all(len(each.acked) > old + 2 for each, old in zip(writers, before, strict=True)):
                return self._is_lost()
        assert self._is_lost(), f"10: no leader {HEAL_S} s after all is well"
        return True

    def _wait_until_in_sync(self) -> None:
        scheduler = self.cluster.scheduler
        deadline = scheduler.now + HEAL_S
        while not self._is_in_sync():
            assert scheduler.now < deadline, f"10: not in sync {HEAL_S} s after all is well"
            scheduler.run_for(0.5)
        scheduler.run_for(2.0)

    def _wait_until_stable(self) -> None:
        """Wait until all transactions have ended and none holds back a last stable offset."""
        deadline = self.cluster.scheduler.now + QUIET_S
        while unstable := self._unstable():
            assert self.cluster.scheduler.now < deadline, (
                f"{unstable} hold back readers {QUIET_S} s after the last transaction ended"
            )
            self.cluster.scheduler.run_for(0.2)

    def _unstable(self) -> list[str]:
        return [
            f"{key} at {partition.last_stable_offset} of {partition.high_watermark}"
            for machine in self.cluster.ready
            if machine.broker is not None
            for key, partition in machine.broker.partitions.items()
            if partition.is_leader
            and key.topic in (*PARTITIONS, OFFSETS_TOPIC)
            and partition.last_stable_offset < partition.high_watermark
        ]

    def _is_in_sync(self) -> bool:
        """Return whether all replicas have caught up.

        A member of the ISR whose connection was cut may still be waiting for a response and be
        behind; it stays a member until its leader notices."""
        return all(
            len(state.isr) == BROKERS and len(ends := self._log_ends(key)) == 1 and None not in ends
            for key, state in self.oracle.states().items()
        )

    def _log_ends(self, key: TopicPartition) -> set[int | None]:
        """Return the log end offsets of the replicas; None for one that is not open yet."""
        brokers = [machine.broker for machine in self.cluster.ready if machine.broker is not None]
        replicas = [broker.partitions.get(key) for broker in brokers]
        return {None if each is None else each.log.log_end_offset for each in replicas}

    def _wait_for_images(self) -> None:
        """Wait for the images to match the tree: preferred leaders may just be taking over."""
        deadline = self.cluster.scheduler.now + QUIET_S
        while (wrong := self.oracle.wrong_image()) is not None:
            assert self.cluster.scheduler.now < deadline, wrong
            self.cluster.scheduler.run_for(0.2)

    def _is_lost(self) -> bool:
        return any(not self.oracle.has_eligible(state) for state in self.oracle.states().values())

    def _wait_for_clients(self, tasks: list[asyncio.Task[None]]) -> None:
        deadline = self.cluster.scheduler.now + HEAL_S
        while self.cluster.scheduler.now < deadline:
            if all(task.done() for task in tasks):
                break
            self._run_for(0.5, tasks)
        else:
            waiting = [
                type(client).__name__
                for client, task in zip(self.clients, tasks, strict=True)
                if not task.done()
            ]
            # Other replicas may have continued while the last member of an ISR was still returning.
            self.was_lost = self.was_lost or self._is_lost()
            assert self.was_lost, f"10: {waiting} wait {HEAL_S} s after all is well"
        for task in tasks:
            if task.done():
                task.result()

    def _supervise(self) -> None:
        """Restart brokers that failed to start."""
        for machine in self.cluster.machines.values():
            if machine.has_failed and machine.process.is_alive:
                machine.kill()
                machine.start()

    # ---------------------------------------------------------------------------------- faults

    def _fault(self) -> None:
        getattr(self, f"_{self.random.choice(self._kinds)}")()

    def _say(self, what: str) -> None:
        self.story.append(f"{self.cluster.scheduler.now:8.3f} {what}")

    def _victim(self) -> Machine | None:
        if len(self._down) >= self._max_down:
            return None
        choice = [each for each in self.cluster.machines.values() if each.number not in self._down]
        return self.random.choice(choice)

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._down.add(victim.number)
            self._say(f"kill {victim.number}")
            victim.kill()

    def _power(self) -> None:
        victim = self._victim()
        if victim is None or not self._may_lose(victim.number):
            return
        self._down.add(victim.number)
        self._say(f"power off {victim.number}")
        victim.cut_power()

    def _may_lose(self, number: int) -> bool:
        """Return whether every partition has another replica with all committed records.

        Some worlds skip this check, so that partitions may be lost."""
        return not self._is_careful or all(
            self.oracle.has_eligible(state, without=number)
            for state in self.oracle.states().values()
        )

    def _pause(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._down.add(victim.number)
            self._say(f"pause {victim.number}")
            victim.process.pause()

    def _roll(self) -> None:
        victim = self._victim()
        if victim is None or not victim.is_ready:
            return
        self._say(f"shut down {victim.number}")
        self._down.add(victim.number)

        async def shut_down() -> None:
            await victim.shut_down()
            self._say(f"{victim.number} is down")

        victim.process.loop.create_task(shut_down())

    def _restart(self) -> None:
        for number in sorted(self._down):
            machine = self.cluster.machines[number]
            self._say(f"restart {number}")
            if machine.process.is_paused:
                machine.process.resume()
            elif machine.process.is_alive:
                machine.kill()
            if not machine.process.is_alive:
                machine.start()
        self._down.clear()
        self._supervise()

    def _pair(self) -> tuple[str, str]:
        first, second = self.random.sample(sorted(self.cluster.machines), 2)
        return f"broker-{first}", f"broker-{second}"

    def _cut(self) -> None:
        first, second = self._pair()
        self._say(f"cut {first} {second}")
        self.cluster.network.cut(first, second)

    def _one_way(self) -> None:
        first, second = self._pair_with_zookeeper()
        self._say(f"cut {first} -> {second}")
        self.cluster.network.cut(first, second, both=False)

    def _pair_with_zookeeper(self) -> tuple[str, str]:
        first, second = self._pair()
        match self.random.randrange(4):
            case 0:
                return first, ZOOKEEPER
            case 1:
                return ZOOKEEPER, first
            case _:
                return first, second

    def _cut_zk(self) -> None:
        number = self.random.choice(sorted(self.cluster.machines))
        self._say(f"cut {number} zookeeper")
        self.cluster.network.cut(f"broker-{number}", ZOOKEEPER)

    def _slow(self) -> None:
        first, second = self._pair_with_zookeeper()
        self._say(f"slow {first} -> {second}")
        self.cluster.network.slow_down(first, second, self.random.choice([0.1, 0.4]))

    def _reset(self) -> None:
        first, second = self._pair_with_zookeeper()
        if self.random.random() < 0.3:
            second = "client"
        self._say(f"reset {first} {second}")
        self.cluster.network.reset(first, second)

    def _zookeeper(self) -> None:
        if self.cluster.zookeeper.process.is_alive:
            self._say("zookeeper goes away")
            self.cluster.kill_zookeeper()
        if self.random.random() < 0.7:
            self._return_zookeeper()

    def _return_zookeeper(self) -> None:
        if not self.cluster.zookeeper.process.is_alive:
            self._say("zookeeper returns")
            self.cluster.restart_zookeeper()

    def _expire(self) -> None:
        zookeeper = self.cluster.zookeeper
        if zookeeper.process.is_alive and zookeeper.sessions:
            session = self.random.choice(list(zookeeper.sessions.values()))
            self._say(f"expire session {session.id}")
            zookeeper.expire(session)

    def _full(self) -> None:
        machine = self.random.choice(list(self.cluster.machines.values()))
        self._say(f"disk of {machine.number} is full")
        machine.disk.fill(self.random.randrange(FULL_ROOM_BYTES))

    def _sick(self) -> None:
        machine = self.random.choice(list(self.cluster.machines.values()))
        topic = self.random.choice(list(PARTITIONS))
        self._say(f"disk of {machine.number} fails to sync {topic}")
        machine.disk.inject(Fault("sync", path=f"/{topic}-"))

    def _heal(self) -> None:
        self._say("heal")
        self.cluster.network.heal()
        for machine in self.cluster.machines.values():
            machine.disk.heal()
        self._return_zookeeper()
        self._restart()
        for machine in self.cluster.machines.values():
            broker = machine.broker
            if broker and any(each.offline_reason for each in broker.partitions.values()):
                self._down.add(machine.number)
        self._restart()

    # --------------------------------------------------------------------------- for the clients

    def draw_broker(self) -> int:
        return self.random.choice(sorted(self.cluster.machines))

    def shuffled_brokers(self) -> list[int]:
        return self.random.sample(sorted(self.cluster.machines), BROKERS)

    async def ask(self, node: int, api: Api, body: dict[str, Any], **options: Any) -> Any:
        """Send a request and return the response, or None if there is none.

        Produce has a connection of its own, because a broker serves the requests of a connection
        one after another."""
        key = (node, api == Api.PRODUCE)
        try:
            connection = self._connections.get(key)
            if connection is None or not connection.is_open:
                connection = await Connection.open(f"broker-{node}", BROKER_PORT, timeout_s=1.0)
                self._connections[key] = connection
            return await connection.request(Request(api, body), 2.0, **options)
        except ClientError:
            return None

    def leader(self, key: TopicPartition) -> int:
        """Return the broker with the highest epoch that considers itself the leader, or 0."""
        found = self._leaders(key)
        return max(found, key=lambda number: found[number].leader_epoch, default=0)

    def leading(self, key: TopicPartition) -> Partition:
        (found,) = self._leaders(key).values()
        return found

    def _leaders(self, key: TopicPartition) -> dict[int, Partition]:
        return {
            machine.number: partition
            for machine in self.cluster.ready
            if machine.broker is not None
            and (partition := machine.broker.partitions.get(key)) is not None
            and partition.is_leader
        }

    # ------------------------------------------------------------------------------- invariants

    def _check_replicas(self) -> None:
        """Check that each partition has one leader and all replicas its committed records."""
        for topic, count in PARTITIONS.items():
            for index in range(count):
                key = TopicPartition(topic, index)
                leaders = self._leaders(key)
                assert len(leaders) == 1, f"{key} is led by {sorted(leaders)}"
                history = self.oracle.history(key)
                for machine in self.cluster.ready:
                    assert machine.broker is not None
                    log = machine.broker.partitions[key].log
                    self.oracle.check_holds(key, log, history.end, f"{machine.number}, in the end,")


class Tracebacks(logging.Handler):
    """A log handler that keeps the first traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not self.first:
            self.first = logging.Formatter("%(message)s").format(record)


@contextmanager
def no_tracebacks() -> Iterator[None]:
    """Fail if anything logged in the block has a traceback."""
    ours, handler = logging.getLogger("ottla"), Tracebacks()
    ours.addHandler(handler)
    try:
        yield
    finally:
        ours.removeHandler(handler)
    assert not handler.first, handler.first


def simulate(seed: int, faults: int = 12, **overrides: str) -> World:
    with repeatable(seed):
        world = World(seed, **overrides)
        try:
            with no_tracebacks(), last_epoch(world.last_epoch):
                world.run(faults)
        except AssertionError as error:
            story = "\n".join(world.story)
            raise AssertionError(f"seed {seed}: {error}\n{story}") from error
    return world

"""Whole cluster in one process: real brokers on simulated machines, under a virtual clock.

Each broker is a simulated process with its own disk and runs the real code: server, handlers,
replication, controller, coordinators, ZooKeeper client. Only its environment is simulated: clock,
disk, network, and the ZooKeeper server behind its real protocol.

    cluster = SimulatedCluster(seed=7, brokers=3)
    cluster.start()
    cluster.machines[1].kill(); cluster.network.cut("broker-2", "zookeeper"); …
    cluster.scheduler.run_for(10)

The brokers authenticate each other with SASL on a listener of their own; clients need no password.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.broker_sasl_table import PLAIN
from ottla.base.jaas import PLAIN_MODULE
from ottla.broker.broker import Broker
from ottla.testing.simulation.clock import SimulatedClock
from ottla.testing.simulation.disk import SimulatedDisk
from ottla.testing.simulation.network import SimulatedNetwork
from ottla.testing.simulation.scheduler import Process, ProcessClock, Scheduler
from ottla.testing.simulation.zookeeper import PORT, SimulatedZooKeeper
from ottla.testing.simulation.zookeeper_member import MemberConnection

BROKER_PORT = 9092
"""Port of the listener for clients."""
INTERNAL_PORT = 9093
"""Port of the listener for brokers."""
BROKER_USER, BROKER_PASSWORD = "broker", "secret of the brokers"
DATA = "/data"
ZOOKEEPER = "zookeeper"

QUICK = {
    "broker.lease.ms": "500",
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.enable": "false",
    "listeners": f"PLAINTEXT://broker-{{node.id}}:{BROKER_PORT},"
    f"INTERNAL://broker-{{node.id}}:{INTERNAL_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": PLAIN,
    "sasl.mechanism.inter.broker.protocol": PLAIN,
    "listener.name.internal.plain.sasl.jaas.config": f"{PLAIN_MODULE} required "
    f'username="{BROKER_USER}" password="{BROKER_PASSWORD}" user_{BROKER_USER}="{BROKER_PASSWORD}" '
    'user_alice="secret of alice";',
}
"""Settings for fast reactions, so that many of them happen in a short run."""


class SimulatedCluster:
    def __init__(
        self, seed: int, brokers: int = 3, overrides: Mapping[str, str] | None = None
    ) -> None:
        self.scheduler = Scheduler(seed)
        self.network = SimulatedNetwork(self.scheduler)
        self.zookeeper = SimulatedZooKeeper(self.process(ZOOKEEPER), MemberConnection)
        self._overrides = {**QUICK, **(overrides or {})}
        self.machines = {number: Machine(self, number) for number in range(1, brokers + 1)}

    def use(self, overrides: Mapping[str, str]) -> None:
        """Override properties of brokers that are started from now on.

        `{node.id}` in a value stands for the ID of each broker.
        """
        self._overrides |= overrides

    def process(self, name: str) -> Process:
        process = self.scheduler.process(name)
        self.network.attach(process)
        return process

    def start(self) -> None:
        self.scheduler.run(self.zookeeper.start(), self.zookeeper.process)
        for machine in self.machines.values():
            machine.start()
        self.scheduler.run_until(lambda: all(each.is_ready for each in self.machines.values()))

    def properties(self, number: int) -> dict[str, str]:
        properties = {
            "node.id": str(number),
            "log.dirs": DATA,
            "zookeeper.connect": f"{ZOOKEEPER}:{PORT}/ottla",
            **self._overrides,
        }
        return {name: text.replace("{node.id}", str(number)) for name, text in properties.items()}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"broker-{number}:{BROKER_PORT}" for number in self.machines)

    @property
    def ready(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.is_ready]

    def kill_zookeeper(self) -> None:
        self.zookeeper.process.kill()

    def restart_zookeeper(self) -> None:
        self.zookeeper.process.restart()
        self.network.attach(self.zookeeper.process)
        self.zookeeper.process.loop.create_task(self.zookeeper.start())


class Machine:
    """Process of a broker, and its disk, which outlives the process."""

    def __init__(self, cluster: SimulatedCluster, number: int) -> None:
        self._cluster = cluster
        self.number = number
        self.process = cluster.process(f"broker-{number}")
        self.disk = SimulatedDisk(cluster.scheduler.random.randrange(2**32), SimulatedClock())
        self.disk.make_directories(DATA)
        self.disk.sync_directory("/")
        self.broker: Broker | None = None
        self.is_ready = False
        self.last_broker: Broker | None = None
        """Broker of the last run, for observers. Its data is on the disk unless power was cut."""
        self.is_intact = True
        """Whether the disk still holds everything that the last run wrote."""
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to start the broker; `is_ready` is set once it has started."""
        if not self.process.is_alive:
            self.process.restart()
            self._cluster.network.attach(self.process)
        self._starting = self.process.loop.create_task(self._run())

    @property
    def has_failed(self) -> bool:
        """Whether the broker has failed to start, for example without ZooKeeper or on a full disk.

        A supervisor should then kill the process and start it again.
        """
        return self._starting is not None and self._starting.done() and not self.is_ready

    @property
    def start_error(self) -> BaseException | None:
        """Error with which the broker has failed to start, or None."""
        return self._starting.exception() if self._starting and self.has_failed else None

    async def _run(self) -> None:
        config = BrokerConfig.from_properties(self._cluster.properties(self.number))
        clock = ProcessClock(self.process)
        self.broker = Broker(config, self.disk, clock, bind=_bind, lock=_NoLock())
        self.last_broker = self.broker
        await self.broker.start()
        self.is_ready = self.is_intact = True

    def kill(self) -> None:
        """Kill the process. Everything that it wrote is kept by the operating system."""
        self._end()
        self.disk = self.disk.kill()

    def cut_power(self) -> None:
        """Cut the power of the machine. Data that was not synced may be lost."""
        self._end()
        self.disk = self.disk.power_cut()
        self.is_intact = False

    def _end(self) -> None:
        self.process.kill()
        self.is_ready = False
        self.broker = None

    async def shut_down(self) -> None:
        """Shut the broker down cleanly. Must be called in the machine's own process."""
        assert self.broker is not None
        self.is_ready = False
        await self.broker.stop()


class _NoLock:
    def acquire(self, paths: Iterable[str]) -> None:
        """Do nothing: no other process uses this disk."""

    def release(self) -> None:
        """Do nothing: `acquire` takes no lock."""

    @property
    def identity(self) -> str:
        return "the only disk of the machine"


class _Socket:
    def __init__(self, port: int) -> None:
        self.port = port

    def getsockname(self) -> tuple[str, int]:
        return ("", self.port)

    def close(self) -> None:
        """Do nothing: there is no real socket."""


async def _bind(host: str, port: int, send_bytes: int, receive_bytes: int) -> list[_Socket]:
    return [_Socket(port)]


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Make everything that happens inside depend on the seed alone.

    All sources of randomness are seeded, including `os.urandom`. Garbage collection waits until the
    end: when Python collects a coroutine of a killed broker, of this cluster or an earlier one, its
    `finally` blocks run, and they draw random numbers or schedule callbacks on the running loop.
    """
    gc.collect()
    was_collecting = gc.isenabled()
    urandom, state = os.urandom, random.getstate()
    gc.disable()
    random.seed(seed)
    os.urandom = _seeded(seed)
    try:
        yield
    finally:
        os.urandom = urandom
        random.setstate(state)
        if was_collecting:
            gc.enable()


def _seeded(seed: int) -> Any:
    return random.Random(seed).randbytes

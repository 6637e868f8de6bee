"""Exact sequences of events in a cluster of three brokers, mostly from past failures."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from tests.sim.cluster.oracle import Oracle

from ottla.base.cluster import BrokerRegistration
from ottla.base.errors import ErrorCode, UserError
from ottla.base.metadata import Node
from ottla.base.types import TopicPartition
from ottla.broker import broker as broker_module
from ottla.broker import cluster as cluster_module
from ottla.broker import logs as logs_module
from ottla.broker.broker import Broker
from ottla.broker.partition import Partition
from ottla.core.controller.elections import LeadershipChange
from ottla.metadata import tree
from ottla.net.connection import Authenticate, Connection
from ottla.net.errors import ClientError
from ottla.net.sasl import Plain, authenticator
from ottla.storage.log import Log
from ottla.testing.simulation.cluster import (
    BROKER_PASSWORD,
    BROKER_PORT,
    BROKER_USER,
    DATA,
    INTERNAL_PORT,
    ZOOKEEPER,
    SimulatedCluster,
    repeatable,
)
from ottla.testing.simulation.disk import Fault
from ottla.testing.simulation.zookeeper import Tree
from ottla.wire.api import Api
from ottla.wire.records.builder import build_batch
from ottla.wire.request import Request

T = TypeVar("T")
E = ErrorCode
KEY = TopicPartition("t", 0)
AS_BROKER = authenticator(Plain(BROKER_USER, BROKER_PASSWORD), 1.0)
NOBODY = 0


class Bed:
    def __init__(self, **overrides: str) -> None:
        named = {name.replace("_", "."): value for name, value in overrides.items()}
        self.cluster = SimulatedCluster(1, 3, named)
        self.client = self.cluster.process("client")
        self.cluster.start()
        self.run(self._create())
        self.until(lambda: self.leader() != NOBODY)

    async def _create(self, name: str = KEY.topic, partitions: int = 1) -> None:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 3}
        await self.ask(1, Api.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 5_000})

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        result: T = self.cluster.scheduler.run(coroutine, self.client)
        return result

    def until(self, look: Callable[[], bool], timeout_s: float = 20.0) -> None:
        scheduler = self.cluster.scheduler
        deadline = scheduler.now + timeout_s
        while scheduler.now < deadline and not look():
            scheduler.run_for(0.01)
        assert look(), f"not in {timeout_s} s"

    def wait(self, seconds: float) -> None:
        self.cluster.scheduler.run_for(seconds)

    def broker(self, number: int) -> Broker:
        broker = self.cluster.machines[number].broker
        assert broker is not None
        return broker

    def brokers(self) -> list[Broker]:
        return [self.broker(number) for number in self.cluster.machines]

    def partition(self, number: int) -> Partition:
        return self.broker(number).partitions[KEY]

    def leader(self) -> int:
        """Return the broker with the highest epoch of those that consider themselves the leader."""
        found = {
            machine.number: machine.broker.partitions[KEY]
            for machine in self.cluster.ready
            if machine.broker is not None and KEY in machine.broker.partitions
        }
        leading = [number for number, each in found.items() if each.is_leader]
        return max(leading, key=lambda number: found[number].leader_epoch, default=NOBODY)

    def followers(self) -> list[int]:
        return [number for number in self.cluster.machines if number != self.leader()]

    def isr(self) -> set[int]:
        leader = self.leader()
        leadership = None if leader == NOBODY else self.partition(leader).leadership
        return set() if leadership is None else set(leadership.isr)

    def isolate_from_zookeeper(self, number: int) -> None:
        self.cluster.network.cut(f"broker-{number}", ZOOKEEPER)

    async def ask(
        self,
        node: int,
        api: Api,
        body: dict[str, Any],
        *,
        login: Authenticate | None = None,
        **options: Any,
    ) -> Any:
        """Send a request as a client; or, with a login, on the listener for brokers."""
        port = BROKER_PORT if login is None else INTERNAL_PORT
        try:
            connection = await Connection.open(
                f"broker-{node}", port, timeout_s=1.0, authenticate=login
            )
            answer = await connection.request(Request(api, body), 3.0, **options)
        except ClientError:
            return None
        connection.close()
        return answer

    def produce(
        self, node: int, acks: int = -1, timeout_ms: int = 1_000, **producer: int
    ) -> ErrorCode:
        data = {"index": 0, "records": build_batch([(None, b"v", (), 0)], **producer)}
        body = {
            "transactional_id": None,
            "acks": acks,
            "timeout_ms": timeout_ms,
            "topic_data": [{"name": KEY.topic, "partition_data": [data]}],
        }
        answer = self.run(self.ask(node, Api.PRODUCE, body, max_version=12))
        if answer is None:
            return E.NETWORK_EXCEPTION
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def end(self, node: int, version: int = 7) -> tuple[ErrorCode, int]:
        """Return the error and the end offset from ListOffsets."""
        asked = {"partition_index": 0, "timestamp": -1}
        body = {"replica_id": -1, "topics": [{"name": KEY.topic, "partitions": [asked]}]}
        answer = self.run(
            self.ask(node, Api.LIST_OFFSETS, body, min_version=version, max_version=version)
        )
        if answer is None:
            return E.NETWORK_EXCEPTION, -1
        reported = answer.topics[0].partitions[0]
        return ErrorCode(reported.error_code), reported.offset


@contextmanager
def bed(**overrides: str) -> Iterator[Bed]:
    with repeatable(1):
        yield Bed(**overrides)


def test_a_lease_that_returns_counts_only_when_the_image_has_caught_up() -> None:
    with bed() as world:
        old = world.leader()
        cluster = world.broker(old).cluster
        assert cluster is not None
        machine = world.cluster.machines[old]
        machine.process.pause()
        machine.is_ready = False
        world.until(lambda: world.leader() not in (old, NOBODY))
        machine.process.resume()
        machine.is_ready = True
        world.until(lambda: not cluster.has_lease, timeout_s=1.0)
        for _ in range(10_000):
            world.wait(0.000_5)
            if cluster.has_lease:
                break
        assert cluster.has_lease
        assert not world.partition(old).is_leader, "it was elected away before"


@pytest.mark.parametrize("acks", [1, -1])
def test_a_sole_member_of_the_isr_takes_nothing_without_a_lease(acks: int) -> None:
    with bed(min_insync_replicas="1") as world:
        leader = world.leader()
        for follower in world.followers():
            world.cluster.machines[follower].kill()
        world.until(lambda: world.isr() == {leader})
        assert world.produce(leader, acks) is E.NONE
        world.isolate_from_zookeeper(leader)
        world.wait(1.0)
        assert world.produce(leader, acks) is E.NOT_ENOUGH_REPLICAS
        world.cluster.network.heal()
        world.until(lambda: world.produce(leader, acks) is E.NONE)


def test_without_a_lease_acks_1_waits_for_the_followers() -> None:
    with bed() as world:
        leader = world.leader()
        world.cluster.kill_zookeeper()
        world.wait(1.0)
        assert world.produce(leader, acks=1) is E.NONE
        for follower in world.followers():
            world.cluster.network.cut(f"broker-{leader}", f"broker-{follower}")
        assert world.produce(leader, acks=1, timeout_ms=300) is not E.NONE


def test_a_replaced_leader_does_not_return_the_log_end_offset() -> None:
    """The old leader has not heard of its replacement, and its lease has expired."""
    with bed() as world:
        old = world.leader()
        world.isolate_from_zookeeper(old)
        for follower in world.followers():
            world.cluster.network.cut(f"broker-{old}", f"broker-{follower}")
        world.until(lambda: world.leader() != old)
        assert world.produce(world.leader()) is E.NONE
        assert world.partition(old).is_leader
        assert world.end(old)[0] is not E.NONE
        assert world.end(world.leader()) == (E.NONE, 1)


def test_a_leader_that_was_replaced_does_not_blame_a_producer() -> None:
    """The old leader lacks what the producer has since written elsewhere (seed 670)."""
    with bed() as world:
        old, producer = world.leader(), {"producer_id": 1, "producer_epoch": 0}
        assert world.produce(old, base_sequence=0, **producer) is E.NONE
        world.isolate_from_zookeeper(old)
        world.until(lambda: world.leader() != old)
        for sequence in (1, 2):
            assert world.produce(world.leader(), base_sequence=sequence, **producer) is E.NONE
        assert world.partition(old).is_leader
        assert world.produce(old, base_sequence=3, **producer) is E.NOT_LEADER_OR_FOLLOWER


def test_a_leader_without_a_lease_refuses_what_is_out_of_order_when_it_is_certain_to_lead() -> None:
    with bed() as world:
        leader, producer = world.leader(), {"producer_id": 1, "producer_epoch": 0}
        assert world.produce(leader, base_sequence=0, **producer) is E.NONE
        world.cluster.kill_zookeeper()
        world.wait(1.0)
        assert world.produce(leader, base_sequence=7, **producer) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert world.produce(leader, base_sequence=1, **producer) is E.NONE


@pytest.mark.parametrize(
    ("version", "code"), [(4, E.LEADER_NOT_AVAILABLE), (5, E.OFFSET_NOT_AVAILABLE)]
)
def test_a_new_leader_returns_no_end_offset_before_its_first_high_watermark(
    version: int, code: ErrorCode
) -> None:
    with bed() as world:
        leader = world.leader()
        assert world.produce(leader) is E.NONE
        partition = world.partition(leader)
        assert partition.leadership is not None
        assert world.end(leader, version) == (E.NONE, 1)
        partition.leadership.epoch_start_offset = 2
        assert world.end(leader, version)[0] is code


def test_followers_get_the_log_end_offset_not_the_high_watermark() -> None:
    with bed() as world:
        leader = world.leader()
        for follower in world.followers():
            world.cluster.network.cut(f"broker-{leader}", f"broker-{follower}")
        assert world.produce(leader, acks=1) is E.NONE
        asked = {"partition_index": 0, "timestamp": -1}
        ends = {}
        for replica in (-1, world.followers()[0]):
            body = {"replica_id": replica, "topics": [{"name": "t", "partitions": [asked]}]}
            answer = world.run(world.ask(leader, Api.LIST_OFFSETS, body, login=AS_BROKER))
            ends[replica] = answer.topics[0].partitions[0].offset
        assert list(ends.values()) == [0, 1]


def test_a_new_leader_syncs_what_it_began_with() -> None:
    with bed(log_flush_acks_all="true") as world:
        assert world.produce(world.leader()) is E.NONE
        for machine in world.cluster.machines.values():
            machine.kill()
        for machine in world.cluster.machines.values():
            machine.start()
        world.until(lambda: world.leader() != NOBODY)
        world.until(lambda: world.partition(world.leader()).high_watermark == 1)


def test_a_leader_whose_disk_fails_leaves_it_to_others() -> None:
    with bed(log_flush_acks_all="true") as world:
        old = world.leader()
        assert world.produce(old) is E.NONE
        world.cluster.machines[old].disk.inject(Fault("sync", path="/t-0/"))
        assert world.produce(old) is E.KAFKA_STORAGE_ERROR
        world.until(lambda: world.leader() not in (old, NOBODY))
        world.until(lambda: world.produce(world.leader()) is E.NONE)
        assert old not in world.isr()


def test_a_leader_whose_disk_fails_is_replaced_before_anybody_else_can_die() -> None:
    """If the others died first, the failed broker would be the only ISR member, without data
    (seed 6509)."""
    with bed(log_flush_acks_all="true") as world:
        old = world.leader()
        world.cluster.machines[old].disk.inject(Fault("sync", path="/t-0/"))
        assert world.produce(old) is E.KAFKA_STORAGE_ERROR
        world.until(lambda: world.leader() not in (old, NOBODY), timeout_s=0.1)


def test_a_follower_with_a_full_disk_leaves_the_isr_and_returns() -> None:
    with bed(replica_lag_time_max_ms="1000") as world:
        leader, full = world.leader(), world.followers()[0]
        assert world.produce(leader) is E.NONE
        disk = world.cluster.machines[full].disk
        disk.fill(0)
        world.until(lambda: world.produce(leader) is E.NONE and full not in world.isr())
        assert world.partition(full).offline_reason is None
        disk.heal()
        world.until(lambda: full in world.isr())
        end = world.partition(leader).log.log_end_offset
        world.until(lambda: world.partition(full).log.log_end_offset == end)


def test_brokers_that_take_producer_ids_at_once_do_not_fail() -> None:
    with bed() as world:
        body = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        tasks = [
            world.client.loop.create_task(world.ask(node, Api.INIT_PRODUCER_ID, body))
            for node in world.cluster.machines
        ]
        world.until(lambda: all(task.done() for task in tasks))
        answers = [task.result() for task in tasks]
        assert [each.error_code for each in answers] == [0, 0, 0]
        assert len({each.producer_id for each in answers}) == 3


def test_metadata_omits_a_broker_whose_lease_has_expired() -> None:
    with bed() as world:
        dead = world.followers()[0]
        other = world.followers()[1]
        world.cluster.machines[dead].kill()
        session_s = 2.0

        def reported() -> set[int]:
            answer = world.run(world.ask(other, Api.METADATA, {"topics": []}))
            return {each.node_id for each in answer.brokers}

        began = world.cluster.scheduler.now
        world.until(lambda: dead not in reported())
        assert world.cluster.scheduler.now - began < session_s
        world.cluster.machines[dead].start()
        world.until(lambda: dead in reported())


def live_path(number: int) -> str:
    return f"/ottla/tree/live/{number}"


def registration(world: Bed, number: int) -> BrokerRegistration:
    node = world.cluster.zookeeper.tree[f"/ottla/tree{tree.registration_path(number)}"]
    return tree.decode_registration(number, Node(node.data, node.version), fenced=False)


def test_a_session_that_is_lost_while_its_broker_registers_is_followed_by_another() -> None:
    with bed() as world:
        zookeeper = world.cluster.zookeeper
        victim = world.followers()[0]
        expired: list[int] = []

        def expire_again(before: Tree, now: Tree, session_id: int) -> None:
            path = live_path(victim)
            if not expired and path in now and path not in before:
                expired.append(session_id)
                session = zookeeper.sessions[session_id]
                zookeeper.process.loop.call_soon(zookeeper.expire, session)

        zookeeper.on_commit.append(expire_again)
        zookeeper.expire(zookeeper.sessions[zookeeper.tree[live_path(victim)].owner])
        world.until(lambda: bool(expired))
        world.until(lambda: live_path(victim) not in zookeeper.tree)
        world.until(lambda: live_path(victim) in zookeeper.tree)
        world.until(lambda: victim in world.isr())


def test_a_broker_with_data_does_not_start_a_new_cluster_in_an_empty_zookeeper() -> None:
    with bed() as world:
        victim = world.followers()[0]
        machine = world.cluster.machines[victim]
        right = world.cluster.properties(victim)["zookeeper.connect"]
        world.until(lambda: KEY in world.broker(victim).partitions)
        machine.kill()
        world.cluster.use({"zookeeper.connect": f"{right}-of-another-cluster"})
        machine.start()
        world.until(lambda: machine.has_failed)
        assert isinstance(machine.start_error, UserError)
        assert "knows no cluster" in str(machine.start_error)
        assert f"{KEY.topic}-{KEY.partition}" in machine.disk.list(DATA)
        machine.kill()
        world.cluster.use({"zookeeper.connect": right})
        machine.start()
        world.until(lambda: machine.is_ready and victim in world.isr())


def test_a_machine_that_lost_power_reports_it_even_if_its_session_ends_while_it_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bed() as world:
        zookeeper = world.cluster.zookeeper
        victim = world.followers()[0]
        before = registration(world, victim).incarnation
        machine = world.cluster.machines[victim]
        machine.cut_power()
        world.wait(3.0)
        register, attempts = cluster_module.register, []

        async def register_without_a_session(*args: Any) -> Any:
            attempts.append(args)
            if len(attempts) == 1:
                joined = {node.owner for path, node in zookeeper.tree.items() if node.owner}
                for session in list(zookeeper.sessions.values()):
                    if session.id not in joined:
                        zookeeper.expire(session)
            return await register(*args)

        monkeypatch.setattr(cluster_module, "register", register_without_a_session)
        machine.start()
        world.until(lambda: machine.is_ready)
        assert not registration(world, victim).continues(before)
        world.until(lambda: victim in world.isr())


def test_a_broker_that_is_slow_to_start_takes_in_what_changes_meanwhile_after_its_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Partitions that the broker has not opened yet are not new: it opens each one once. It also
    drops a topic that is deleted before its partitions were opened."""
    with bed() as world:
        world.run(world._create("gone", 8))
        world.run(world._create("kept", 8))
        victim = world.followers()[0]
        machine, leader = world.cluster.machines[victim], world.leader()
        world.until(lambda: len(world.broker(victim).partitions) == 17)
        machine.kill()
        opened: list[TopicPartition] = []
        open_log = logs_module.open_log

        def open_and_tell(fs: Any, known: Any, report: Any) -> Any:
            if fs is machine.disk:
                opened.append(known.partition)
            return open_log(fs, known, report)

        monkeypatch.setattr(logs_module, "open_log", open_and_tell)
        world.cluster.scheduler.max_thread_delay_s = 0.5
        monkeypatch.setattr(broker_module, "OPEN_CHUNK", 1)
        machine.start()
        world.until(lambda: bool(opened))
        names = {"topics": [{"name": "gone"}], "timeout_ms": 5_000}
        answer = world.run(world.ask(leader, Api.DELETE_TOPICS, names))
        assert answer.responses[0].error_code == 0
        world.until(lambda: victim not in world.isr())
        assert len(opened) < 17, "it is still opening them"
        world.until(lambda: machine.is_ready)
        world.until(lambda: victim in world.isr())
        assert len(opened) == len(set(opened)) == 17
        assert {topic for topic, _ in world.broker(victim).partitions} == {KEY.topic, "kept"}
        assert "could not apply metadata revision" not in caplog.text


def test_a_log_that_could_not_be_opened_is_opened_later_unless_its_topic_has_gone_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bed() as world:
        world.run(world._create("gone"))
        victim = world.followers()[0]
        machine, leader = world.cluster.machines[victim], world.leader()
        gone = TopicPartition("gone", 0)
        world.until(lambda: gone in world.broker(victim).partitions)
        machine.kill()
        is_failing = True
        open_log = logs_module.open_log

        def open_unless_it_fails(fs: Any, known: Any, report: Any) -> Any:
            if is_failing and fs is machine.disk:
                raise OSError(errno.EIO, "no")
            return open_log(fs, known, report)

        monkeypatch.setattr(logs_module, "open_log", open_unless_it_fails)
        machine.start()
        world.until(lambda: machine.is_ready)
        broker = world.broker(victim)
        assert not broker.partitions
        is_failing = False
        world.cluster.scheduler.max_thread_delay_s = 30.0
        twice = [machine.process.loop.create_task(broker.open_missing()) for _ in range(2)]
        names = {"topics": [{"name": "gone"}], "timeout_ms": 5_000}
        world.run(world.ask(leader, Api.DELETE_TOPICS, names))
        world.until(lambda: "gone" not in broker.image.topics)
        assert not broker.partitions, "it is opening them"
        world.until(lambda: all(each.done() for each in twice), timeout_s=60.0)
        assert [each.exception() for each in twice] == [None, None]
        assert list(broker.partitions) == [KEY]
        assert "gone-0" not in machine.disk.list(DATA)
        world.until(lambda: victim in world.isr())
        world.cluster.scheduler.max_thread_delay_s = 0.004
        world.run(world._create("gone"))
        world.until(lambda: gone in broker.partitions)


def test_a_leader_reads_for_its_followers_only_what_has_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without news, the leader only records the fetch, which keeps the followers in sync."""
    with bed() as world:
        world.run(world._create("quiet", 9))
        world.until(lambda: all(len(each.partitions) == 10 for each in world.brokers()))
        world.wait(3.0)
        leader = world.leader()
        log, read, of_followers = world.partition(leader).log, Log.read, list[TopicPartition]()

        def read_and_tell(self: Log, offset: int, *args: Any, **options: Any) -> Any:
            if not options["in_file"]:
                of_followers.append(self.partition)
            return read(self, offset, *args, **options)

        monkeypatch.setattr(Log, "read", read_and_tell)
        for _ in range(3):
            assert world.produce(leader) is E.NONE
        assert set(of_followers) == {KEY}
        of_followers.clear()
        world.wait(6.0)
        assert len(of_followers) <= 2, "only what was produced last is reported"
        for broker in world.brokers():
            for partition in broker.partitions.values():
                assert partition.high_watermark == partition.log.log_end_offset
                if partition.leadership is not None:
                    assert set(partition.leadership.isr) == {1, 2, 3}
        assert log.log_end_offset == 3


def test_a_controller_whose_session_has_ended_elects_no_leader_in_the_next_one() -> None:
    """The controller's commit is in flight when the session ends, and is retried in the next
    session. No other controller was elected in between, so the epoch is unchanged (seeds 19
    and 39)."""
    with bed() as world:
        Oracle(world.cluster).watch(KEY.topic, 1)  # checks that only controllers elect
        number = world.broker(1).image.controller_id
        broker, zookeeper = world.broker(number), world.cluster.zookeeper
        assert broker.cluster is not None
        for other in world.cluster.machines.keys() - {number}:
            world.isolate_from_zookeeper(other)
        topic = broker.image.topics[KEY.topic]
        state = topic.partitions[0]
        leader = next(each for each in state.isr if each != state.leader)
        elected = state._replace(leader=leader, leader_epoch=state.leader_epoch + 1)
        commit = world.cluster.machines[number].process.loop.create_task(
            broker.cluster.controller._commit([LeadershipChange(topic, 0, elected)], {})
        )
        session = zookeeper.tree[live_path(number)].owner
        zookeeper.expire(zookeeper.sessions[session])
        world.until(commit.done)
        world.cluster.network.heal()
        world.until(lambda: world.leader() != NOBODY and world.produce(world.leader()) is E.NONE)


def shut_down(world: Bed, *numbers: int) -> float:
    """Send SIGTERM to all brokers at once, and return the seconds until the last one has ended."""
    machines = [world.cluster.machines[number] for number in numbers]
    started_at = world.cluster.scheduler.now
    tasks = [each.process.loop.create_task(each.shut_down()) for each in machines]
    world.until(lambda: all(task.done() for task in tasks), timeout_s=120)
    for task in tasks:
        task.result()
    return world.cluster.scheduler.now - started_at


def test_brokers_that_all_shut_down_wait_for_no_leader_and_lose_nothing() -> None:
    with bed() as world:
        world.run(world._create("u", partitions=3))  # each broker leads one of them
        assert world.produce(world.leader()) is E.NONE
        assert shut_down(world, 1, 2, 3) < 5.0
        for machine in world.cluster.machines.values():
            assert machine.disk.exists(f"{DATA}/.kafka_cleanshutdown")
            machine.kill()
            machine.start()
        world.until(lambda: world.leader() != NOBODY)
        assert world.end(world.leader()) == (E.NONE, 1)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_broker_shuts_down_without_zookeeper(hangs: bool) -> None:
    """An ensemble that hangs accepts requests and never answers."""
    with bed(zookeeper_session_timeout_ms="6000") as world:
        assert world.produce(world.leader()) is E.NONE
        if hangs:
            world.cluster.network.cut("broker-1", ZOOKEEPER)
        else:
            world.cluster.kill_zookeeper()
        assert shut_down(world, 1) < 6 + 10
        assert world.cluster.machines[1].disk.exists(f"{DATA}/.kafka_cleanshutdown")


def test_handing_over_takes_no_longer_than_its_timeout() -> None:
    """The controller is cut off from ZooKeeper, and no other can replace it while it has a lease
    and a session."""
    with bed(
        broker_lease_ms="60000",
        zookeeper_session_timeout_ms="60000",
        controlled_shutdown_timeout_ms="3000",
    ) as world:
        world.run(world._create("u", partitions=3))  # each broker leads one of them
        controller = world.broker(1).image.controller_id
        world.isolate_from_zookeeper(controller)
        stopping = next(number for number in (1, 2) if number != controller)
        assert 3.0 <= shut_down(world, stopping) < 3 + 10

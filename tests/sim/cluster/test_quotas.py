"""Client quotas in a cluster of three brokers, in virtual time."""

from __future__ import annotations

from typing import Any

from tests.sim.cluster.test_scenarios import KEY, Bed, E, bed

from ottla.base.quota import QuotaEntity, QuotaKey
from ottla.net.connection import Connection
from ottla.testing.simulation.cluster import BROKER_PORT
from ottla.wire.api import Api
from ottla.wire.records.builder import build_batch
from ottla.wire.request import Request

LIMIT = 100_000
APP = QuotaEntity(client_id="app")


def alter(world: Bed, node: int, key: QuotaKey, value: float, client_id: str | None = "app") -> E:
    body = {
        "entries": [
            {
                "entity": [{"entity_type": "client-id", "entity_name": client_id}],
                "ops": [{"key": key.value, "value": value, "remove": False}],
            }
        ],
        "validate_only": False,
    }
    answer = world.run(world.ask(node, Api.ALTER_CLIENT_QUOTAS, body))
    return E(answer.entries[0].error_code)


class Client:
    """One connection that sends a request when the previous one has been answered."""

    def __init__(self, world: Bed, node: int) -> None:
        self._world = world
        self._connection = world.run(
            Connection.open(f"broker-{node}", BROKER_PORT, client_id="app", timeout_s=1.0)
        )

    def ask(self, api: Api, body: dict[str, Any], **options: Any) -> Any:
        return self._world.run(self._connection.request(Request(api, body), 60.0, **options))

    def produce(self, size: int) -> Any:
        records = build_batch([(None, bytes(size - 100), (), 0)])
        partition = {"index": 0, "records": records}
        return self.ask(
            Api.PRODUCE,
            {
                "transactional_id": None,
                "acks": -1,
                "timeout_ms": 5_000,
                "topic_data": [{"name": KEY.topic, "partition_data": [partition]}],
            },
            max_version=12,
        )

    def close(self) -> None:
        self._connection.close()


def uses(world: Bed, client: Client, size: int, seconds: float) -> list[tuple[float, int]]:
    """Return when each of the requests of a greedy client was answered."""
    scheduler = world.cluster.scheduler
    begin, found = scheduler.now, []
    while scheduler.now < begin + seconds:
        answer = client.produce(size)
        assert answer.responses[0].partition_responses[0].error_code == E.NONE
        found.append((scheduler.now - begin, size))
    return found


def mean(found: list[tuple[float, int]], begin: float, end: float) -> float:
    return sum(size for at, size in found if begin <= at < end) / (end - begin)


def test_a_producer_stays_within_five_percent_of_its_quota() -> None:
    with bed() as world:
        leader = world.leader()
        assert alter(world, leader, QuotaKey.PRODUCER_BYTE_RATE, LIMIT) is E.NONE
        client = Client(world, leader)
        found = uses(world, client, 20_000, 32.0)
        client.close()
        for begin in (0.0, 10.5, 15.5, 20.5):
            assert 0.95 * LIMIT <= mean(found, begin, begin + 10) <= 1.05 * LIMIT, begin


def test_every_broker_applies_a_quota_that_any_broker_was_asked_for() -> None:
    with bed() as world:
        for node in world.cluster.machines:
            assert alter(world, node, QuotaKey.PRODUCER_BYTE_RATE, 1_000.0 + node) is E.NONE
            wait_for_limit(world, 1_000.0 + node)
            assert all(each.server.client_quotas is each.quotas for each in world.brokers())


def wait_for_limit(world: Bed, limit: float) -> None:
    expected = {APP: {QuotaKey.PRODUCER_BYTE_RATE: limit}}
    world.until(lambda: all(each.image.quotas == expected for each in world.brokers()))


def test_quotas_survive_a_restart_of_all_brokers() -> None:
    with bed() as world:
        assert alter(world, 1, QuotaKey.PRODUCER_BYTE_RATE, LIMIT) is E.NONE
        for machine in world.cluster.machines.values():
            machine.kill()
        for machine in world.cluster.machines.values():
            machine.start()
        world.until(lambda: world.leader() != 0)
        wait_for_limit(world, LIMIT)


def test_a_default_quota_does_not_delay_replication() -> None:
    with bed() as world:
        for key in (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE):
            assert alter(world, 1, key, 1_000, None) is E.NONE
        assert alter(world, 1, QuotaKey.REQUEST_PERCENTAGE, 0.001, None) is E.NONE
        client = Client(world, world.leader())
        begin = world.cluster.scheduler.now
        assert client.produce(100_000).throttle_time_ms > 80_000
        assert world.cluster.scheduler.now - begin < 1.0  # acks=all
        assert world.isr() == set(world.cluster.machines)
        client.close()


def test_the_controller_limits_changes_that_other_brokers_forward() -> None:
    with bed() as world:
        assert alter(world, 1, QuotaKey.CONTROLLER_MUTATION_RATE, 1.0) is E.NONE
        forwarding = next(
            number
            for number in world.cluster.machines
            if number != world.broker(1).image.controller_id
        )
        client = Client(world, forwarding)
        topics = [
            {"name": name, "num_partitions": 15, "replication_factor": 1} for name in ("a", "b")
        ]
        answer = client.ask(Api.CREATE_TOPICS, {"topics": topics, "timeout_ms": 5_000})
        assert [each.error_code for each in answer.topics] == [E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
        assert 3_000 < answer.throttle_time_ms <= 4_000
        begin = world.cluster.scheduler.now
        client.ask(Api.METADATA, {"topics": []})
        assert world.cluster.scheduler.now - begin > 2.5  # this broker did not read meanwhile
        client.close()

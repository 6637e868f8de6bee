"""Leadership, ISR membership and recovery of brokers whose disks are full."""

from __future__ import annotations

import logging

import pytest
from tests.sim.cluster.test_scenarios import KEY, NOBODY, E, bed

from ottla.wire.api import Api

LAG = {"replica_lag_time_max_ms": "30000"}
"""The default, so long that no test can rely on a follower being found lagging."""


def test_a_leader_with_a_full_disk_leaves_its_partition_to_another_in_sync_replica() -> None:
    with bed(**LAG) as world:
        full = world.leader()
        assert world.produce(full) is E.NONE
        end = world.partition(full).log.log_end_offset
        world.cluster.machines[full].disk.fill(0)
        assert world.produce(full, acks=1) is E.KAFKA_STORAGE_ERROR
        world.until(lambda: world.leader() not in (full, NOBODY), timeout_s=1.0)
        leader = world.leader()
        assert world.partition(leader).log.log_end_offset == end
        assert world.produce(leader) is E.NONE
        assert full not in world.isr()
        assert world.partition(full).offline_reason is None

        world.cluster.machines[full].disk.heal()
        world.until(lambda: full in world.isr())
        assert world.partition(full).log.log_end_offset == end + 1


def test_a_record_acknowledged_by_the_leader_alone_outlives_its_full_disk() -> None:
    """The followers may not have an acks=1 record yet; they must get it before another leads."""
    with bed(**LAG) as world:
        full = world.leader()
        assert world.produce(full) is E.NONE
        for follower in world.followers():
            world.cluster.network.cut(f"broker-{full}", f"broker-{follower}")
        assert world.produce(full, acks=1) is E.NONE
        end = world.partition(full).log.log_end_offset
        world.cluster.machines[full].disk.fill(0)
        assert world.produce(full, acks=1) is E.KAFKA_STORAGE_ERROR
        world.wait(2.0)
        assert world.leader() == full
        world.cluster.network.heal()
        world.until(lambda: world.leader() not in (full, NOBODY))
        assert world.partition(world.leader()).log.log_end_offset == end


def test_a_follower_with_a_full_disk_delays_no_others() -> None:
    """The follower leaves the ISR at once, not only after replica.lag.time.max.ms."""
    with bed(**LAG) as world:
        leader, full = world.leader(), world.followers()[0]
        assert world.produce(leader) is E.NONE
        world.cluster.machines[full].disk.fill(0)
        assert world.produce(leader, timeout_ms=2_000) is E.NONE
        assert full not in world.isr()
        world.wait(5.0)
        assert full not in world.isr()
        world.cluster.machines[full].disk.heal()
        world.until(lambda: full in world.isr())


def test_the_last_in_sync_replica_keeps_leading_and_serving_reads_with_a_full_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with bed(**LAG, min_insync_replicas="1") as world, caplog.at_level(logging.INFO):
        assert world.produce(world.leader()) is E.NONE
        for machine in world.cluster.machines.values():
            machine.disk.fill(0)

        def refused() -> bool:
            world.produce(world.leader(), acks=1)
            return world.leader() != NOBODY and world.isr() == {world.leader()}

        world.until(refused)
        last = world.leader()
        world.wait(3.0)
        assert world.leader() == last
        assert world.produce(last) is E.KAFKA_STORAGE_ERROR
        assert world.end(last) == (E.NONE, 1)
        errors = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert {each.message.split(":")[0] for each in errors} == {"/data rejects writes"}
        assert len(errors) == 3, "one of each broker"

        other = next(number for number in world.cluster.machines if number != last)
        world.cluster.machines[other].disk.heal()
        world.until(lambda: other in world.isr())
        world.produce(last, acks=1)
        world.until(lambda: world.leader() == other)
        assert world.produce(other) is E.NONE
        for machine in world.cluster.machines.values():
            machine.disk.heal()
        world.until(lambda: len(world.isr()) == 3)
        assert sum("accepts writes again after" in each.message for each in caplog.records) == 3


def test_commits_move_to_another_coordinator_when_the_disk_of_theirs_is_full() -> None:
    with bed(**LAG, offsets_topic_num_partitions="1") as world:
        offsets = ("__consumer_offsets", 0)
        find = {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}

        def coordinator() -> int:
            answer = world.run(world.ask(1, Api.FIND_COORDINATOR, find))
            found = answer.coordinators[0]
            return int(found.node_id) if not found.error_code else NOBODY

        def commit(node: int) -> int:
            body = {
                "group_id": "g",
                "topics": [
                    {
                        "name": KEY.topic,
                        "partitions": [{"partition_index": 0, "committed_offset": 7}],
                    }
                ],
            }
            answer = world.run(world.ask(node, Api.OFFSET_COMMIT, body, max_version=8))
            return int(answer.topics[0].partitions[0].error_code)

        world.until(lambda: coordinator() != NOBODY)
        full = coordinator()
        world.until(lambda: commit(full) == E.NONE)
        world.cluster.machines[full].disk.fill(0)
        assert commit(full) == E.NOT_COORDINATOR
        world.until(lambda: coordinator() not in (full, NOBODY))
        world.until(lambda: commit(coordinator()) == E.NONE)
        assert not world.broker(full).partitions[offsets].is_leader

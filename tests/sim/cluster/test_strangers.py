"""Clients that pose as brokers, on a listener that is not the one for brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.sim.cluster.test_scenarios import KEY, Bed, E, bed

from ottla.broker.handlers import envelope as envelope_module
from ottla.broker.handlers.envelope import ForwardedConnection
from ottla.core.security.principal import ANONYMOUS, Principal
from ottla.net.connection import Connection
from ottla.testing.simulation.cluster import BROKER_PORT
from ottla.wire import codec
from ottla.wire.api import Api
from ottla.wire.principal_data import PrincipalData, encode_principal
from ottla.wire.request import Request

EXTERNAL_PORT = 9093
TWO_LISTENERS = {
    "listeners": f"INTERNAL://broker-{{node.id}}:{BROKER_PORT},"
    f"EXTERNAL://broker-{{node.id}}:{EXTERNAL_PORT}",
    "listener_security_protocol_map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}


@contextmanager
def two_listeners() -> Iterator[Bed]:
    with bed(**TWO_LISTENERS) as world:
        yield world


def ask(
    world: Bed, node: int, api: Api, body: dict[str, Any], port: int = EXTERNAL_PORT, **options: Any
) -> Any:
    """Send a request with the client ID of a broker."""

    async def send() -> Any:
        connection = await Connection.open(f"broker-{node}", port, client_id="broker-9")
        try:
            return await connection.request(Request(api, body), 5.0, **options)
        finally:
            connection.close()

    return world.run(send())


def cut_off_followers(world: Bed) -> int:
    """Cut the leader off from its followers, and return it. Its next record is not committed."""
    leader = world.leader()
    for follower in world.followers():
        world.cluster.network.cut(f"broker-{leader}", f"broker-{follower}")
    return leader


def fetch_as(world: Bed, leader: int, replica: dict[str, Any], offset: int) -> Any:
    """Fetch without a session, as a replica, and return the part of the partition."""
    topic_id = world.broker(leader).image.topics[KEY.topic].topic_id
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    body = {
        **replica,
        "max_wait_ms": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": KEY.topic, "topic_id": topic_id, "partitions": [wanted]}],
    }
    version = 12 if "replica_id" in replica else 16
    answer = ask(world, leader, Api.FETCH, body, min_version=version, max_version=version)
    return answer.responses[0].partitions[0]


def test_a_stranger_who_poses_as_followers_does_not_raise_the_high_watermark() -> None:
    with two_listeners() as world:
        leader = cut_off_followers(world)
        assert world.produce(leader, acks=1) is E.NONE
        brokers = world.broker(leader).image.brokers
        codes = set()
        for follower in world.followers():
            replica = {"replica_id": follower, "replica_epoch": brokers[follower].incarnation}
            answer = fetch_as(world, leader, {"replica_state": replica}, 1)
            codes.add(answer.error_code)
        assert world.partition(leader).high_watermark == 0
        assert codes == {E.TOPIC_AUTHORIZATION_FAILED}


def test_a_stranger_does_not_continue_a_session_as_a_follower() -> None:
    with two_listeners() as world:
        leader = world.leader()
        topic_id = world.broker(leader).image.topics[KEY.topic].topic_id
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        body: dict[str, Any] = {
            "max_wait_ms": 0,
            "max_bytes": 1 << 20,
            "session_epoch": 0,
            "topics": [{"topic_id": topic_id, "partitions": [wanted]}],
        }
        opened = ask(world, leader, Api.FETCH, body)
        assert opened.session_id > 0
        session = {"session_id": opened.session_id, "session_epoch": 1, "topics": []}
        replica = {"replica_state": {"replica_id": world.followers()[0], "replica_epoch": 1}}
        answer = ask(world, leader, Api.FETCH, {**body, **session, **replica})
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        answer = ask(world, leader, Api.FETCH, {**body, **session})
        assert (answer.error_code, answer.session_id) == (E.NONE, opened.session_id)


def test_a_stranger_who_poses_as_a_follower_reads_nothing() -> None:
    with two_listeners() as world:
        leader = cut_off_followers(world)
        assert world.produce(leader, acks=1) is E.NONE
        for replica in ({"replica_id": 9}, {"replica_state": {"replica_id": 9}}):
            answer = fetch_as(world, leader, replica, 0)
            assert not answer.records
            assert answer.error_code == E.TOPIC_AUTHORIZATION_FAILED


def test_a_stranger_who_names_a_replica_gets_the_high_watermark_as_the_end() -> None:
    with two_listeners() as world:
        leader = cut_off_followers(world)
        assert world.produce(leader, acks=1) is E.NONE
        asked = {"partition_index": 0, "timestamp": -1}
        body = {"replica_id": 2, "topics": [{"name": KEY.topic, "partitions": [asked]}]}
        answer = ask(world, leader, Api.LIST_OFFSETS, body)
        assert answer.topics[0].partitions[0].offset == 0


def test_a_client_id_like_a_brokers_does_not_prevent_forwarding() -> None:
    with two_listeners() as world:
        for node, port in ((1, EXTERNAL_PORT), (2, EXTERNAL_PORT), (3, BROKER_PORT)):
            topic = {"name": f"new-{node}", "num_partitions": 1, "replication_factor": 3}
            body = {"topics": [topic], "timeout_ms": 5_000}
            answer = ask(world, node, Api.CREATE_TOPICS, body, port)
            assert answer.topics[0].error_code == E.NONE


def markers(world: Bed, node: int, port: int = EXTERNAL_PORT) -> int:
    marker = {
        "producer_id": 4_711,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": KEY.topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    answer = ask(world, node, Api.WRITE_TXN_MARKERS, {"markers": [marker]}, port)
    (written,) = answer.markers
    assert written.producer_id == 4_711
    code: int = written.topics[0].partitions[0].error_code
    return code


def test_only_brokers_and_super_users_write_markers() -> None:
    with two_listeners() as world:
        leader = world.leader()
        end = world.partition(leader).log.log_end_offset
        assert markers(world, leader) == E.CLUSTER_AUTHORIZATION_FAILED
        assert world.partition(leader).log.log_end_offset == end
        assert markers(world, leader, BROKER_PORT) == E.NONE
        assert world.partition(leader).log.log_end_offset == end + 1
    with bed(**TWO_LISTENERS, super_users="User:ANONYMOUS") as world:
        assert markers(world, world.leader()) == E.NONE


def test_only_brokers_add_partitions_to_several_transactions() -> None:
    with two_listeners() as world:
        for port, code in ((EXTERNAL_PORT, E.CLUSTER_AUTHORIZATION_FAILED), (BROKER_PORT, E.NONE)):
            answer = ask(world, 1, Api.ADD_PARTITIONS_TO_TXN, {"transactions": []}, port)
            assert answer.error_code == code


def test_only_brokers_look_up_epochs_as_replicas() -> None:
    with two_listeners() as world:
        leader = world.leader()
        asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
        codes = []
        for replica, port in ((2, EXTERNAL_PORT), (-1, EXTERNAL_PORT), (2, BROKER_PORT)):
            topics = [{"topic": KEY.topic, "partitions": [asked]}]
            body = {"replica_id": replica, "topics": topics}
            answer = ask(world, leader, Api.OFFSET_FOR_LEADER_EPOCH, body, port)
            codes.append(answer.topics[0].partitions[0].error_code)
        assert codes == [E.TOPIC_AUTHORIZATION_FAILED, E.NONE, E.NONE]


def test_only_brokers_forward_requests() -> None:
    with two_listeners() as world:
        controller = world.broker(1).image.controller_id
        topic = {"name": "forged", "num_partitions": 1, "replication_factor": 3}
        body = {"topics": [{**topic, "assignments": [], "configs": []}], "timeout_ms": 5_000}
        frame = b"".join(codec.encode_request(Api.CREATE_TOPICS, 7, 1, "app", body))[4:]
        envelope = {
            "request_data": frame,
            "request_principal": encode_principal(PrincipalData("User", "admin")),
            "client_host_address": bytes(4),
        }

        async def forge() -> Any:
            connection = await Connection.open(f"broker-{controller}", EXTERNAL_PORT)
            assert Api.ENVELOPE not in connection.api_versions
            return await connection.send(Request(Api.ENVELOPE, envelope), 0, 5.0)

        answer: Any = world.run(forge())
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        assert "forged" not in world.broker(controller).image.topics
        answer = ask(world, controller, Api.ENVELOPE, envelope, BROKER_PORT)
        assert answer.error_code == E.NONE
        assert "forged" in world.broker(controller).image.topics


def test_the_controller_sees_the_client_of_a_forwarded_request() -> None:
    with two_listeners() as world:
        controller = world.broker(1).image.controller_id
        other = next(each for each in world.cluster.machines if each != controller)
        seen = []

        class Seen(ForwardedConnection):
            def __init__(self, listener: str, peer: str, principal: Principal) -> None:
                super().__init__(listener, peer, principal)
                seen.append((listener, peer, principal))

        topic = {"name": "new", "num_partitions": 1, "replication_factor": 3}
        body = {"topics": [{**topic, "assignments": [], "configs": []}], "timeout_ms": 5_000}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(envelope_module, "ForwardedConnection", Seen)
            answer = ask(world, other, Api.CREATE_TOPICS, body)
        assert answer.topics[0].error_code == E.NONE
        assert seen == [("INTERNAL", "0.0.0.0", ANONYMOUS)]

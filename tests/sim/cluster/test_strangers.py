"""Clients that pose as brokers, on the listener for clients and on the one for brokers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim.cluster.test_scenarios import AS_BROKER, KEY, Bed, E, bed

from ottla.broker.authorization import Access
from ottla.broker.handlers import envelope as envelope_module
from ottla.broker.handlers.envelope import ForwardedConnection
from ottla.core.security.principal import ANONYMOUS, USER, Principal
from ottla.net.connection import Authenticate, Connection
from ottla.net.sasl import Plain, authenticator
from ottla.testing.simulation.cluster import BROKER_PORT, INTERNAL_PORT
from ottla.wire import codec
from ottla.wire.api import Api
from ottla.wire.principal_data import PrincipalData, encode_principal
from ottla.wire.request import Request

AS_ALICE = authenticator(Plain("alice", "secret of alice"), 1.0)
STRANGERS = {"client": None, "user": AS_ALICE}
by_a_stranger = pytest.mark.parametrize("login", STRANGERS.values(), ids=STRANGERS)


def ask(
    world: Bed,
    node: int,
    api: Api,
    body: dict[str, Any],
    login: Authenticate | None,
    *,
    version: int | None = None,
) -> Any:
    """Send a request with the client ID of a broker, with a login on the listener for brokers."""

    async def send() -> Any:
        port = BROKER_PORT if login is None else INTERNAL_PORT
        connection = await Connection.open(
            f"broker-{node}", port, client_id="broker-9", authenticate=login
        )
        if version is None:
            response: Any = await connection.request(Request(api, body), 5.0)
        else:
            response = await connection.send(Request(api, body), version, 5.0)
        connection.close()
        return response

    return world.run(send())


def with_a_record_that_is_not_committed(world: Bed) -> int:
    """Cut the leader off from its followers, write a record, and return the leader."""
    leader = world.leader()
    for follower in world.followers():
        world.cluster.network.cut(f"broker-{leader}", f"broker-{follower}")
    assert world.produce(leader, acks=1) is E.NONE
    return leader


def fetch(
    world: Bed, leader: int, fields: dict[str, Any], offset: int, login: Authenticate | None
) -> Any:
    """Fetch without a session, and return the part of the partition."""
    topic_id = world.broker(leader).image.topics[KEY.topic].topic_id
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    body = {
        **fields,
        "max_wait_ms": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": KEY.topic, "topic_id": topic_id, "partitions": [wanted]}],
    }
    version = 12 if "replica_id" in fields else 16
    return ask(world, leader, Api.FETCH, body, login, version=version).responses[0].partitions[0]


@by_a_stranger
def test_a_stranger_who_poses_as_followers_does_not_raise_the_high_watermark(
    login: Authenticate | None,
) -> None:
    with bed() as world:
        leader = with_a_record_that_is_not_committed(world)
        brokers = world.broker(leader).image.brokers
        for who, high_watermark, code in (
            (login, 0, E.TOPIC_AUTHORIZATION_FAILED),
            (AS_BROKER, 1, E.NONE),
        ):
            codes = set()
            for follower in world.followers():
                replica = {"replica_id": follower, "replica_epoch": brokers[follower].incarnation}
                codes.add(fetch(world, leader, {"replica_state": replica}, 1, who).error_code)
            assert world.partition(leader).high_watermark == high_watermark
            assert codes == {code}


@by_a_stranger
@pytest.mark.parametrize("fields", [{"replica_id": 9}, {"replica_state": {"replica_id": 9}}])
def test_a_stranger_who_poses_as_a_follower_reads_nothing(
    login: Authenticate | None, fields: dict[str, Any]
) -> None:
    with bed() as world:
        leader = with_a_record_that_is_not_committed(world)
        answer = fetch(world, leader, fields, 0, login)
        assert (answer.error_code, bytes(answer.records)) == (E.TOPIC_AUTHORIZATION_FAILED, b"")
        assert fetch(world, leader, fields, 0, AS_BROKER).records


def test_a_stranger_does_not_continue_a_session_as_a_follower() -> None:
    with bed() as world:
        leader = world.leader()
        topic_id = world.broker(leader).image.topics[KEY.topic].topic_id
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        body: dict[str, Any] = {
            "max_wait_ms": 0,
            "max_bytes": 1 << 20,
            "session_epoch": 0,
            "topics": [{"topic_id": topic_id, "partitions": [wanted]}],
        }
        opened = ask(world, leader, Api.FETCH, body, None)
        assert opened.session_id > 0
        session = {"session_id": opened.session_id, "session_epoch": 1, "topics": []}
        replica = {"replica_state": {"replica_id": world.followers()[0], "replica_epoch": 1}}
        answer = ask(world, leader, Api.FETCH, {**body, **session, **replica}, None)
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        answer = ask(world, leader, Api.FETCH, {**body, **session}, None)
        assert (answer.error_code, answer.session_id) == (E.NONE, opened.session_id)


@by_a_stranger
def test_a_stranger_who_names_a_replica_gets_the_high_watermark_as_the_end(
    login: Authenticate | None,
) -> None:
    with bed() as world:
        leader = with_a_record_that_is_not_committed(world)
        asked = {"partition_index": 0, "timestamp": -1}
        body = {"replica_id": 2, "topics": [{"name": KEY.topic, "partitions": [asked]}]}
        answer = ask(world, leader, Api.LIST_OFFSETS, body, login)
        assert answer.topics[0].partitions[0].offset == 0


@pytest.mark.parametrize(
    "login", [*STRANGERS.values(), AS_BROKER], ids=[*STRANGERS, "another program of a broker"]
)
def test_a_client_id_like_a_brokers_does_not_prevent_forwarding(
    login: Authenticate | None,
) -> None:
    with bed() as world:
        for node in world.cluster.machines:
            answer = ask(world, node, Api.CREATE_TOPICS, creation(f"new-{node}"), login)
            assert answer.topics[0].error_code == E.NONE


def creation(topic: str) -> dict[str, Any]:
    """Return the body of a CreateTopics request."""
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 3}
    return {"topics": [{**wanted, "assignments": [], "configs": []}], "timeout_ms": 5_000}


def write_marker(world: Bed, node: int, login: Authenticate | None) -> int:
    marker = {
        "producer_id": 4_711,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": KEY.topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    (written,) = ask(world, node, Api.WRITE_TXN_MARKERS, {"markers": [marker]}, login).markers
    assert written.producer_id == 4_711
    code: int = written.topics[0].partitions[0].error_code
    return code


@by_a_stranger
def test_only_brokers_write_markers(login: Authenticate | None) -> None:
    with bed() as world:
        leader = world.leader()
        end = world.partition(leader).log.log_end_offset
        assert write_marker(world, leader, login) == E.CLUSTER_AUTHORIZATION_FAILED
        assert world.partition(leader).log.log_end_offset == end
        assert write_marker(world, leader, AS_BROKER) == E.NONE
        assert world.partition(leader).log.log_end_offset == end + 1


def test_super_users_write_markers_through_any_listener() -> None:
    with bed(super_users="User:ANONYMOUS") as world:
        assert write_marker(world, world.leader(), None) == E.NONE
        assert write_marker(world, world.leader(), AS_ALICE) == E.CLUSTER_AUTHORIZATION_FAILED


def test_super_users_are_brokers_on_the_listener_for_brokers() -> None:
    with bed(super_users="User:alice") as world:
        leader = with_a_record_that_is_not_committed(world)
        assert fetch(world, leader, {"replica_id": 9}, 0, AS_ALICE).records


@by_a_stranger
def test_only_brokers_add_partitions_to_several_transactions(login: Authenticate | None) -> None:
    with bed() as world:
        body: dict[str, Any] = {"transactions": []}
        answer = ask(world, 1, Api.ADD_PARTITIONS_TO_TXN, body, login)
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        assert ask(world, 1, Api.ADD_PARTITIONS_TO_TXN, body, AS_BROKER).error_code == E.NONE


@by_a_stranger
def test_only_brokers_look_up_epochs_as_replicas(login: Authenticate | None) -> None:
    with bed() as world:
        asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
        codes = []
        for replica, who in ((2, login), (-1, login), (2, AS_BROKER)):
            topics = [{"topic": KEY.topic, "partitions": [asked]}]
            body = {"replica_id": replica, "topics": topics}
            answer = ask(world, world.leader(), Api.OFFSET_FOR_LEADER_EPOCH, body, who)
            codes.append(answer.topics[0].partitions[0].error_code)
        assert codes == [E.TOPIC_AUTHORIZATION_FAILED, E.NONE, E.NONE]


@by_a_stranger
def test_only_brokers_forward_requests(login: Authenticate | None) -> None:
    with bed() as world:
        controller = world.broker(1).image.controller_id
        frame = codec.encode_request(Api.CREATE_TOPICS, 7, 1, "app", creation("forged"))
        envelope = {
            "request_data": b"".join(frame)[4:],
            "request_principal": encode_principal(PrincipalData(USER, "admin")),
            "client_host_address": bytes(4),
        }
        for who, code in ((login, E.CLUSTER_AUTHORIZATION_FAILED), (AS_BROKER, E.NONE)):
            answer = ask(world, controller, Api.ENVELOPE, envelope, who, version=0)
            assert answer.error_code == code
            is_created = "forged" in world.broker(controller).image.topics
            assert is_created == (code is E.NONE)


@pytest.mark.parametrize(
    ("login", "principal"), [(None, ANONYMOUS), (AS_ALICE, Principal(USER, "alice"))]
)
def test_the_controller_sees_the_client_of_a_forwarded_request(
    login: Authenticate | None, principal: Principal
) -> None:
    with bed() as world, pytest.MonkeyPatch.context() as patched:
        controller = world.broker(1).image.controller_id
        other = next(each for each in world.cluster.machines if each != controller)
        seen = []

        class Seen(ForwardedConnection):
            def __init__(
                self, listener: str, peer: str, principal: Principal, access: Access | None
            ) -> None:
                super().__init__(listener, peer, principal, access)
                seen.append((listener, peer, principal))

        patched.setattr(envelope_module, "ForwardedConnection", Seen)
        answer = ask(world, other, Api.CREATE_TOPICS, creation("new"), login)
        assert answer.topics[0].error_code == E.NONE
        assert seen == [("INTERNAL", "0.0.0.0", principal)]


def test_everybody_may_be_a_broker_on_a_listener_without_authentication() -> None:
    plain = {
        "listeners": f"PLAINTEXT://broker-{{node.id}}:{BROKER_PORT}",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
    }
    with bed(**plain) as world:
        leader = with_a_record_that_is_not_committed(world)
        assert fetch(world, leader, {"replica_id": 9}, 0, None).records
        answer = ask(world, world.followers()[0], Api.CREATE_TOPICS, creation("new"), None)
        assert answer.topics[0].error_code in (E.NONE, E.NOT_CONTROLLER)


def test_brokers_authenticate_again_while_they_replicate() -> None:
    with bed(connections_max_reauth_ms="1500") as world:
        for _ in range(30):
            assert world.produce(world.leader()) is E.NONE
            world.wait(0.2)
        leader = world.broker(world.leader())
        assert leader.server.reauthentications_succeeded >= 2 * 3  # two followers
        for broker in world.brokers():
            assert broker.server.reauthentications_failed == broker.server.sessions_expired == 0
        assert world.isr() == {1, 2, 3}


def test_a_broker_with_a_wrong_password_does_not_replicate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with bed() as world:
        leader, follower = world.leader(), world.followers()[0]
        config = world.cluster.properties(follower)
        name = "listener.name.internal.plain.sasl.jaas.config"
        wrong = config[name].replace(' password="secret', ' password="wrong', 1)
        world.cluster.machines[follower].kill()
        world.cluster.use({name: wrong})
        world.cluster.machines[follower].start()
        world.until(lambda: follower not in world.isr())
        world.wait(5.0)
        assert follower not in world.isr()
        assert "rejected the credentials" in caplog.text
        assert world.produce(leader) is E.NONE

"""Tests of routing requests to handlers, and of ApiVersions."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.net.harness import (
    HEARTBEAT,
    PRODUCE,
    SYNC_GROUP,
    Client,
    Service,
    frame_of,
    on_a_loop,
    running,
    settled,
)

from ottla.base.errors import ErrorCode
from ottla.broker.context import Body, RequestContext
from ottla.broker.features import Features
from ottla.broker.handlers.api_versions import ApiVersions
from ottla.broker.router import HANDLERS, RequestRejected, Router, decode, encode
from ottla.core.security.peers import PeerRule
from ottla.wire import codec, schema
from ottla.wire.api import Api

API_VERSIONS = 18
CONNECTION = SimpleNamespace(listener="PLAINTEXT", peer="192.0.2.7")


class BrokerWithoutFeatures:
    peer_rule = PeerRule("PLAINTEXT", authenticates=False)
    cluster: object | None = None

    def features(self) -> Features:
        return Features({}, {}, -1)


WITHOUT_FEATURES = BrokerWithoutFeatures()


def answer(router: Router, frame: bytes, version: int, broker: Any = WITHOUT_FEATURES) -> Any:
    """Route a frame to its handler and decode the response as a client of `version` would."""
    view = memoryview(frame)[4:]
    route, context, position = router.open(view, CONNECTION)
    body = route.handle(broker, context, decode(context, view, position))
    assert isinstance(body, dict)
    encoded = b"".join(bytes(piece) for piece in encode(context, body))
    assert struct.unpack(">i", encoded[:4])[0] == len(encoded) - 4
    return codec.decode_response(context.api_key, version, memoryview(encoded)[4:])[1]


def software(name: str = "test-client", version: str = "1.0") -> Body:
    return {"client_software_name": name, "client_software_version": version}


@on_a_loop
async def test_every_version_of_a_listed_api_is_advertised_and_opened() -> None:
    router = Router(Service().handlers())
    advertised = {key: (low, high) for key, low, high in router.supported_versions()}
    assert list(advertised) == sorted(advertised)
    for key, (low, high) in advertised.items():
        versions = schema.versions(key)
        assert high == versions[-1]
        assert low == (0 if key == PRODUCE else versions[0])
        for version in versions:
            view = memoryview(frame_of(key, 5, version=version))[4:]
            _, context, _ = router.open(view, CONNECTION)
            assert context == RequestContext(
                key, version, 5, "test", "PLAINTEXT", "192.0.2.7", CONNECTION
            )


def test_versions_that_kafka_marks_as_unstable_are_not_served() -> None:
    advertised = {key: (low, high) for key, low, high in Router().supported_versions()}
    assert advertised[Api.INIT_PRODUCER_ID] == (0, 5)
    frame = memoryview(struct.pack(">hhih", Api.INIT_PRODUCER_ID, 6, 1, -1))
    with pytest.raises(RequestRejected, match="supports versions 0 to 5"):
        Router().open(frame, CONNECTION)


@on_a_loop
async def test_versions_outside_are_refused_with_a_sentence() -> None:
    router = Router(Service().handlers())
    for version in (-1, 2, schema.versions(PRODUCE)[-1] + 1):
        frame = struct.pack(">hhih", PRODUCE, version, 1, -1)
        with pytest.raises(RequestRejected, match=f"produce version {version} was requested"):
            router.open(memoryview(frame), CONNECTION)
    with pytest.raises(RequestRejected, match="API 17 is not supported by this broker"):
        router.open(memoryview(struct.pack(">hhih", 17, 0, 1, -1)), CONNECTION)


@on_a_loop
async def test_the_router_knows_which_handlers_are_coroutines() -> None:
    router = Router(Service().handlers())
    opened = {
        key: router.open(memoryview(frame_of(key, 1))[4:], CONNECTION)[0]
        for key in (HEARTBEAT, SYNC_GROUP)
    }
    assert not opened[HEARTBEAT].is_coroutine
    assert opened[SYNC_GROUP].is_coroutine


@pytest.mark.parametrize("version", list(schema.versions(API_VERSIONS)))
def test_api_versions_lists_what_is_served(version: int) -> None:
    router = Router()
    frame = frame_of(API_VERSIONS, 1, software() if version >= 3 else {}, version)
    response = answer(router, frame, version)
    assert response.error_code == ErrorCode.NONE
    reported = [(each.api_key, each.min_version, each.max_version) for each in response.api_keys]
    served = router.supported_versions()
    assert reported == [each for each in served if each[0] != Api.ENVELOPE]
    assert {key for key, _, _ in reported} == {*HANDLERS, API_VERSIONS}


@pytest.mark.parametrize(
    ("listener", "cluster", "is_listed"),
    [("PLAINTEXT", object(), True), ("PLAINTEXT", None, False), ("EXTERNAL", object(), False)],
)
def test_envelope_is_advertised_on_the_listener_for_brokers_of_a_cluster_only(
    listener: str, cluster: object | None, is_listed: bool
) -> None:
    broker = BrokerWithoutFeatures()
    broker.cluster = cluster
    router = Router()
    view = memoryview(frame_of(API_VERSIONS, 1, software(), 3))[4:]
    route, context, position = router.open(view, SimpleNamespace(listener=listener, peer="p"))
    body: Any = route.handle(broker, context, decode(context, view, position))
    assert (Api.ENVELOPE in [each["api_key"] for each in body["api_keys"]]) == is_listed


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_its_range() -> None:
    newest = schema.versions(API_VERSIONS)[-1]
    for version in (newest + 1, 999, -1):
        body = struct.pack(">hhih", API_VERSIONS, version, 77, 1) + b"c" + b"\x00whatever follows"
        frame = struct.pack(">i", len(body)) + body
        response = answer(Router(), frame, version=0)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        (reported,) = response.api_keys
        assert (reported.api_key, reported.min_version, reported.max_version) == (
            API_VERSIONS,
            0,
            newest,
        )


@on_a_loop
async def test_a_newer_client_can_go_down_on_the_same_connection() -> None:
    async with running() as (_, _, port):
        client = await Client.connect(port)
        body = struct.pack(">hhih", API_VERSIONS, 99, 77, -1) + b"\x00\x05newer\x02x\x00"
        await client.send(struct.pack(">i", len(body)), body)
        correlation_id, rest = await client.receive()
        assert correlation_id == 77
        assert rest == struct.pack(">hihhh", 35, 1, 18, 0, 4)
        await settled(client)


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "librdkafka", "x.y", "1", "a--.9"])
def test_good_software_names_are_taken(name: str) -> None:
    for body in (software(name=name), software(version=name)):
        assert answer(Router(), frame_of(API_VERSIONS, 1, body, 3), 3).error_code == 0


@pytest.mark.parametrize("name", ["", "-a", "a-", ".a", "a b", "a\n", "é", "a/b"])
def test_bad_software_names_are_an_invalid_request(name: str) -> None:
    for body in (software(name=name), software(version=name)):
        response = answer(Router(), frame_of(API_VERSIONS, 1, body, 3), 3)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.api_keys == []


class BrokerWithFeatures(BrokerWithoutFeatures):
    def features(self) -> Features:
        return Features({"metadata.version": (7, 25), "share.version": (0, 1)}, {"a": 2}, 42)


def test_features_are_reported_and_level_zero_only_to_those_who_understand_it() -> None:
    reported = {}
    for version in (3, 4):
        frame = frame_of(API_VERSIONS, 1, software(), version)
        response = answer(Router(), frame, version, BrokerWithFeatures())
        reported[version] = [
            (f.name, f.min_version, f.max_version) for f in response.supported_features
        ]
        assert response.finalized_features_epoch == 42
        (finalized,) = response.finalized_features
        assert (finalized.name, finalized.min_version_level, finalized.max_version_level) == (
            "a",
            2,
            2,
        )
    assert reported[3] == [("metadata.version", 7, 25)]
    assert reported[4] == [("metadata.version", 7, 25), ("share.version", 0, 1)]


def test_a_broker_without_features_lists_none() -> None:
    context = RequestContext(API_VERSIONS, 4, 1, None, "PLAINTEXT", "192.0.2.7")
    handler = ApiVersions([(API_VERSIONS, 0, 4)])
    body = handler.handle(WITHOUT_FEATURES, context, SimpleNamespace(**software()))
    assert (body["supported_features"], body["finalized_features_epoch"]) == ([], -1)

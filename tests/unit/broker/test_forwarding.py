"""Requests that one broker forwards to another in an Envelope."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.forwarding import (
    FORWARDED,
    Forwarding,
    Sender,
    forwarding,
    is_not_controller,
)
from ottla.broker.handlers.envelope import Envelope
from ottla.broker.log_limit import LogLimiter
from ottla.broker.router import Router
from ottla.core.controller.create_topics import NewTopic
from ottla.core.security.peers import PeerRule
from ottla.core.security.principal import ANONYMOUS, Principal
from ottla.net.errors import ConnectionLost, UnsupportedVersion
from ottla.wire import codec, rpc
from ottla.wire.api import Api
from ottla.wire.principal_data import PrincipalData, decode_principal, encode_principal
from ottla.wire.request import Request

VERSION = 7
ALICE = Principal("User", "alice")
CREATED = {"topics": [{"name": "t", "error_code": 0}]}
E = ErrorCode


def broker() -> Any:
    return SimpleNamespace(
        node_id=1,
        authorization=None,
        image=SimpleNamespace(controller_id=2),
        peer_rule=PeerRule("INTERNAL", authenticates=False),
        client_log=LogLimiter(logging.getLogger(__name__), lambda: 0.0),
    )


def context(*, is_peer: bool = True) -> RequestContext:
    connection: Any = SimpleNamespace(is_peer=is_peer, principal=ANONYMOUS, access=None)
    return RequestContext(Api.ENVELOPE, 0, 1, "broker-1", "INTERNAL", "192.0.2.1", connection)


def create_topics(version: int = VERSION, api: int = Api.CREATE_TOPICS) -> bytes:
    body = {"topics": [{"name": "t", "assignments": [], "configs": []}], "timeout_ms": 1}
    if api != Api.CREATE_TOPICS:
        body = {}
    return b"".join(codec.encode_request(api, version, 5, "app", body))[4:]


def envelope(**fields: Any) -> Any:
    given = {
        "request_data": create_topics(),
        "request_principal": encode_principal(PrincipalData("User", "alice")),
        "client_host_address": bytes([192, 0, 2, 7]),
        **fields,
    }
    frame = memoryview(b"".join(codec.encode_request(Api.ENVELOPE, 0, 1, "broker-1", given)))[4:]
    position = codec.decode_request_header(frame).body_position
    return codec.decode_request(Api.ENVELOPE, 0, frame, position)


class Controller:
    """The handlers of a controller."""

    def __init__(self) -> None:
        self.seen: list[RequestContext] = []
        self.error: KafkaError | None = None

    async def create_topics(self, broker: Any, context: RequestContext, request: Any) -> Any:
        self.seen.append(context)
        assert [topic.name for topic in request.topics] == ["t"]
        if self.error is not None:
            raise self.error
        return CREATED

    def ask(self, request: Any, *, is_peer: bool = True) -> Any:
        handler = Envelope({Api.CREATE_TOPICS: self.create_topics})
        return asyncio.run(handler.handle(broker(), context(is_peer=is_peer), request))


# ------------------------------------------------------------------------------- the receiving end


def test_the_handler_sees_the_client_and_not_the_broker() -> None:
    controller = Controller()
    answer = controller.ask(envelope())
    (seen,) = controller.seen
    assert (seen.principal, seen.peer, seen.client_id) == (ALICE, "192.0.2.7", "app")
    assert (seen.api_key, seen.api_version, seen.listener) == (19, VERSION, "INTERNAL")
    assert not seen.is_peer
    correlation_id, response = codec.decode_response(
        Api.CREATE_TOPICS, VERSION, memoryview(answer["response_data"])
    )
    assert correlation_id == 5
    assert response.topics[0].name == "t"


def test_addresses_of_version_6_are_read() -> None:
    controller = Controller()
    controller.ask(envelope(client_host_address=bytes(15) + b"\1"))
    assert controller.seen[0].peer == "::1"


def test_a_client_that_is_not_a_broker_cannot_forward(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller()
    answer = controller.ask(envelope(), is_peer=False)
    assert answer == {"error_code": E.CLUSTER_AUTHORIZATION_FAILED}
    assert not controller.seen
    assert "by User:ANONYMOUS at 192.0.2.1 on the listener INTERNAL" in caplog.text


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"request_data": b""}, E.INVALID_REQUEST),
        ({"request_data": b"\0\x13\0\7"}, E.INVALID_REQUEST),
        ({"request_data": create_topics(12, Api.METADATA)}, E.INVALID_REQUEST),
        ({"request_data": b"\0\x3a\0\0\0\0\0\1\xff\xff\0\1\1\1"}, E.INVALID_REQUEST),
        ({"client_host_address": b""}, E.INVALID_REQUEST),
        ({"client_host_address": bytes(5)}, E.INVALID_REQUEST),
        ({"request_data": b"\0\x13\0\x63\0\0\0\1\xff\xff"}, E.UNSUPPORTED_VERSION),
        ({"request_data": create_topics()[:-1]}, E.UNSUPPORTED_VERSION),
        ({"request_principal": None}, E.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\7"}, E.PRINCIPAL_DESERIALIZATION_FAILURE),
    ],
)
def test_envelopes_that_cannot_be_served_are_answered(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    controller = Controller()
    assert controller.ask(envelope(**fields)) == {"error_code": code}
    assert not controller.seen


def test_an_error_of_the_handler_is_that_of_the_envelope() -> None:
    controller = Controller()
    controller.error = KafkaError(E.INVALID_REQUEST)
    assert controller.ask(envelope()) == {"error_code": E.INVALID_REQUEST}


def test_the_router_serves_in_an_envelope_what_it_forwards() -> None:
    routes = Router()._routes
    handle: Any = routes[Api.ENVELOPE].handle
    assert handle.__self__._handlers.keys() == FORWARDED


# --------------------------------------------------------------------------------- the sending end


class Peers:
    """The connection to the controller."""

    def __init__(self, answer: Callable[[Request[Any]], Any]) -> None:
        self._answer = answer
        self.sent: list[Api] = []

    async def request(self, broker_id: int, request: Request[Any], *_: Any, **options: Any) -> Any:
        assert broker_id == 2
        self.sent.append(request.api)
        answer = self._answer(request)
        return await answer if asyncio.iscoroutine(answer) else answer


def forward(answer: Callable[[Request[Any]], Any]) -> tuple[Any, list[Api]]:
    """Forward a request, and return the response or the error, and what was sent."""
    forwarding = Forwarding(broker())
    peers: Any = Peers(answer)
    forwarding._peers = peers
    request = rpc.create_topics(topics=[{"name": "t", "assignments": [], "configs": []}])
    sender = Sender(5, "app", ALICE, "192.0.2.7")
    try:
        return asyncio.run(forwarding.forward(request, VERSION, sender)), peers.sent
    except KafkaError as error:
        return error, peers.sent


def test_an_envelope_reaches_the_handler_and_its_response_the_client() -> None:
    controller = Controller()

    async def answer(request: Request[Any]) -> Any:
        handler = Envelope({Api.CREATE_TOPICS: controller.create_topics})
        body = await handler.handle(broker(), context(), envelope(**request.body))
        return SimpleNamespace(error_code=0, **body)

    response, sent = forward(answer)
    assert response.topics[0].name == "t"
    assert sent == [Api.ENVELOPE]
    (seen,) = controller.seen
    assert (seen.principal, seen.peer, seen.client_id) == (ALICE, "192.0.2.7", "app")
    assert seen.correlation_id == 5


def test_a_controller_without_envelopes_gets_the_request_itself() -> None:
    def answer(request: Request[Any]) -> Any:
        if request.api is Api.ENVELOPE:
            raise UnsupportedVersion("not known yet")
        return "the response"

    assert forward(answer) == ("the response", [Api.ENVELOPE, Api.CREATE_TOPICS])


@pytest.mark.parametrize(
    "response",
    [
        SimpleNamespace(error_code=E.CLUSTER_AUTHORIZATION_FAILED, response_data=None),
        SimpleNamespace(error_code=0, response_data=None),
        SimpleNamespace(error_code=0, response_data=b"\0\0"),
    ],
)
def test_a_refused_envelope_is_a_controller_that_was_not_reached(response: Any) -> None:
    error, _ = forward(lambda request: response)
    assert error.code == E.NOT_CONTROLLER


def test_a_lost_connection_is_a_controller_that_was_not_reached() -> None:
    def answer(request: Request[Any]) -> Any:
        raise ConnectionLost("gone")

    error, _ = forward(answer)
    assert error.code == E.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.7", bytes([192, 0, 2, 7])),
        ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\1"),
        ("broker-1", bytes(4)),
    ],
)
def test_the_address_is_sent_in_its_binary_form(host: str, expected: bytes) -> None:
    found = []

    def answer(request: Request[Any]) -> Any:
        found.append(request.body["client_host_address"])
        raise ConnectionLost("enough")

    forwarding = Forwarding(broker())
    peers: Any = Peers(answer)
    forwarding._peers = peers
    with pytest.raises(KafkaError):
        asyncio.run(forwarding.forward(rpc.create_topics(), VERSION, Sender(1, None, ALICE, host)))
    assert found == [expected]


def test_topics_are_created_for_the_client_that_needs_them_or_for_the_broker() -> None:
    senders = []

    def answer(request: Request[Any]) -> Any:
        principal = decode_principal(request.body["request_principal"])
        senders.append((f"{principal.type}:{principal.name}", request.body["client_host_address"]))
        raise ConnectionLost("enough")

    to_controller = Forwarding(broker())
    peers: Any = Peers(answer)
    to_controller._peers = peers
    for sender in (Sender(1, None, ALICE, "192.0.2.7"), None):
        with pytest.raises(KafkaError):
            asyncio.run(to_controller.create_topics([NewTopic("t")], sender))
    assert senders == [
        ("User:alice", bytes([192, 0, 2, 7])),
        ("User:ANONYMOUS", bytes([127, 0, 0, 1])),
    ]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([E.NOT_CONTROLLER], True),
        ([E.NOT_CONTROLLER, E.TOPIC_AUTHORIZATION_FAILED], True),
        ([E.NOT_CONTROLLER, E.UNKNOWN_TOPIC_OR_PARTITION], True),
        ([E.NOT_CONTROLLER, E.NONE], False),
        ([E.NOT_CONTROLLER, E.REQUEST_TIMED_OUT], False),
        ([E.TOPIC_AUTHORIZATION_FAILED], False),
        ([], False),
    ],
)
def test_a_request_is_retried_while_no_controller_has_decided_a_part_of_it(
    codes: list[ErrorCode], expected: bool
) -> None:
    response = {"throttle_time_ms": 0, "topics": [{"error_code": each} for each in codes]}
    assert is_not_controller(response) is expected


# ------------------------------------------------------------------------- rejected before sending


def alter_configs(*names: str) -> Any:
    """Return a decoded request for changes of brokers."""
    resource = {"resource_type": 4, "configs": []}
    body = {"resources": [{**resource, "resource_name": name} for name in names]}
    frame = codec.encode_request(Api.ALTER_CONFIGS, 2, 5, "app", {**body, "validate_only": False})
    data = memoryview(b"".join(map(bytes, frame))[4:])
    position = codec.decode_request_header(data)[4]
    return codec.decode_request(Api.ALTER_CONFIGS, 2, data, position)


def accepted(name: str, code: ErrorCode = E.NONE) -> dict[str, Any]:
    return {"error_code": code, "error_message": None, "resource_type": 4, "resource_name": name}


@pytest.mark.parametrize(
    ("names", "forwarded"), [(("1", "2"), ["2"]), (("2",), ["2"]), (("1",), None)]
)
def test_a_broker_rejects_what_only_it_can_check_and_forwards_the_rest(
    names: tuple[str, ...], forwarded: list[str] | None
) -> None:
    asked: list[list[str]] = []

    async def forward(request: Request[Any], version: int, sender: Sender) -> Any:
        asked.append([each["resource_name"] for each in request.body["resources"]])
        return alter_configs_response(asked[-1])

    async def reject(*_: Any) -> list[dict[str, Any]]:
        return [accepted("1", E.INVALID_REQUEST)] if "1" in names else []

    cluster = SimpleNamespace(is_controller=False, forwarding=SimpleNamespace(forward=forward))
    handle: Any = forwarding(
        lambda *_: pytest.fail("this broker is not the controller"), reject=reject
    )
    its_context = RequestContext(Api.ALTER_CONFIGS, 2, 5, "app", "INTERNAL", "192.0.2.1")
    response = asyncio.run(
        handle(SimpleNamespace(cluster=cluster), its_context, alter_configs(*names))
    )
    results = {each["resource_name"]: each["error_code"] for each in response["responses"]}
    assert results == {each: E.INVALID_REQUEST if each == "1" else E.NONE for each in names}
    assert asked == ([] if forwarded is None else [forwarded])


def alter_configs_response(names: list[str]) -> Any:
    body = {"throttle_time_ms": 0, "responses": [accepted(name) for name in names]}
    data = b"".join(map(bytes, codec.encode_response(Api.ALTER_CONFIGS, 2, 5, body)))
    return codec.decode_response(Api.ALTER_CONFIGS, 2, memoryview(data)[4:])[1]

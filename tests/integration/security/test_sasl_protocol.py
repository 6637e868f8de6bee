"""The SASL dialogue with requests written by hand: order, limits, failures, re-authentication."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from scramp import ScramClient
from tests.integration.security.sasl_broker import (
    MECHANISMS,
    PASSWORDS,
    TIMEOUT_S,
    add_users,
    sasl_properties,
)
from tests.raw_client import Api, ConnectionClosed, RawClient

from ottla.base.errors import ErrorCode
from ottla.broker.authentication import AUTHENTICATION_TIMEOUT_S, STRANGERS_BYTES
from ottla.broker.server import Server
from ottla.core.security.principal import Principal
from ottla.testing.broker_thread import BrokerThread
from ottla.wire import codec

SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}
ALICE = b"\0alice\0alice-secret"
POLL_S = 0.01


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=sasl_properties()) as broker:
        add_users(broker)
        yield broker


def connect(broker: BrokerThread, listener: str = "SASL_PLAINTEXT") -> RawClient:
    return RawClient(broker.broker.ports[listener])


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with connect(broker) as client:
        yield client


def select(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> None:
    answer = client.call(Api.SASL_HANDSHAKE, version, mechanism=mechanism)
    assert answer.error_code == ErrorCode.NONE
    assert tuple(answer.mechanisms) == MECHANISMS


def authenticate(client: RawClient, token: bytes = ALICE, version: int = 2) -> int:
    """Authenticate with PLAIN, and return the lifetime of the session."""
    select(client)
    answer = client.call(Api.SASL_AUTHENTICATE, version, auth_bytes=token)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return int(getattr(answer, "session_lifetime_ms", 0))


def assert_is_served(client: RawClient) -> None:
    assert client.call(Api.METADATA, topics=[]).brokers


def assert_is_closed(client: RawClient) -> None:
    with pytest.raises(ConnectionClosed):
        client.receive_frame()


def wait_for(server: Server, **counts: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while any(getattr(server, name) != count for name, count in counts.items()):
        assert time.monotonic() < deadline, {name: getattr(server, name) for name in counts}
        time.sleep(POLL_S)


# ---------------------------------------------------------------------------- allowed requests


def test_a_client_authenticates_and_its_principal_is_known(
    broker: BrokerThread, client: RawClient
) -> None:
    server = broker.broker.server
    before = server.authentications_succeeded
    assert client.call(Api.API_VERSIONS, **SOFTWARE).error_code == ErrorCode.NONE
    assert authenticate(client) == 0
    assert_is_served(client)
    assert server.authentications_succeeded == before + 1
    principals = broker.call(lambda: [each.principal for each in server.connections])
    assert Principal("User", "alice") in principals


def test_requests_may_be_sent_without_waiting_for_the_responses(client: RawClient) -> None:
    requests: list[tuple[Api, int, dict[str, object]]] = [
        (Api.API_VERSIONS, 3, SOFTWARE),
        (Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        (Api.SASL_AUTHENTICATE, 2, {"auth_bytes": ALICE}),
        (Api.METADATA, 12, {"topics": []}),
    ]
    for number, (api, version, body) in enumerate(requests, 1):
        assert client.send(api, version, **body) == number
    for number, (api, version, _) in enumerate(requests, 1):
        answer = client.receive(api, version, number)
        assert getattr(answer, "error_code", 0) == ErrorCode.NONE


def test_api_versions_may_be_repeated_only_after_an_unsupported_version(
    client: RawClient,
) -> None:
    head = struct.pack(">hhih", Api.API_VERSIONS, 99, 1, -1)
    client.send_frame(head)
    assert client.receive_frame()[4:6] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
    assert client.call(Api.API_VERSIONS, 0).error_code == ErrorCode.NONE
    client.send(Api.API_VERSIONS, 0)
    assert_is_closed(client)


@pytest.mark.parametrize("api", [Api.METADATA, Api.PRODUCE, Api.SASL_AUTHENTICATE])
def test_another_request_before_the_handshake_closes_the_connection(
    client: RawClient, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    client.call(Api.API_VERSIONS, **SOFTWARE)
    client.send_frame(struct.pack(">hhih", api, 1, 1, -1))
    assert_is_closed(client)
    assert f"the client sent {api.name} before it was authenticated" in caplog.text


def test_another_request_after_the_handshake_closes_the_connection(client: RawClient) -> None:
    select(client)
    client.send(Api.METADATA, 12, topics=[])
    assert_is_closed(client)


def test_sasl_after_the_authentication_is_an_illegal_state(client: RawClient) -> None:
    authenticate(client)
    answer = client.call(Api.SASL_HANDSHAKE, mechanism="PLAIN")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = client.call(Api.SASL_AUTHENTICATE, auth_bytes=ALICE)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert_is_served(client)


# --------------------------------------------------------------------------- handshake version 0


def scram(user: str, mechanism: str, password: str | None = None) -> ScramClient:
    return ScramClient([mechanism], user, PASSWORDS[user] if password is None else password)


def test_tokens_follow_version_0_of_the_handshake_without_headers(client: RawClient) -> None:
    select(client, "PLAIN", version=0)
    client.send_frame(ALICE)
    assert client.receive_frame() == b""
    assert_is_served(client)


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_scram_works_with_version_0_of_the_handshake(client: RawClient, mechanism: str) -> None:
    select(client, mechanism, version=0)
    user = scram("bob", mechanism)
    client.send_frame(user.get_client_first().encode())
    user.set_server_first(client.receive_frame().decode())
    client.send_frame(user.get_client_final().encode())
    user.set_server_final(client.receive_frame().decode())
    assert_is_served(client)


@pytest.mark.parametrize("token", [b"", b"x", b"\0a\0b", b"\0alice\0guess", bytes(100_000)])
def test_a_wrong_token_after_version_0_closes_the_connection_without_an_answer(
    broker: BrokerThread, client: RawClient, token: bytes
) -> None:
    server = broker.broker.server
    before = server.authentications_failed
    select(client, "PLAIN", version=0)
    client.send_frame(token)
    assert_is_closed(client)
    assert server.authentications_failed == before + 1


def test_a_short_token_is_a_token_after_version_0() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    properties = sasl_properties(listener__name__sasl_plaintext__plain__sasl__jaas__config=jaas)
    with BrokerThread(overrides=properties) as broker, connect(broker) as client:
        select(client, "PLAIN", version=0)
        client.send_frame(b"\0a\0b")
        assert client.receive_frame() == b""
        assert_is_served(client)


# ---------------------------------------------------------------------------------------- failures


def test_an_unsupported_mechanism_is_answered_with_the_enabled_ones(client: RawClient) -> None:
    answer = client.call(Api.SASL_HANDSHAKE, mechanism="GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert tuple(answer.mechanisms) == MECHANISMS
    assert_is_closed(client)


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
@pytest.mark.parametrize(("user", "password"), [("alice", "guess"), ("nobody", "guess")])
def test_an_unknown_user_gets_the_same_messages_as_a_wrong_password(
    client: RawClient, mechanism: str, user: str, password: str
) -> None:
    select(client, mechanism)
    dialogue = ScramClient([mechanism], user, password)
    first = dialogue.get_client_first().encode()
    challenge = client.call(Api.SASL_AUTHENTICATE, auth_bytes=first)
    assert challenge.error_code == ErrorCode.NONE
    assert bytes(challenge.auth_bytes).endswith(b",i=4096")
    dialogue.set_server_first(bytes(challenge.auth_bytes).decode())
    final = dialogue.get_client_final().encode()
    answer = client.call(Api.SASL_AUTHENTICATE, auth_bytes=final)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )
    assert_is_closed(client)


def test_failures_are_delayed_and_nobody_else_waits() -> None:
    delay_s = 1.0
    properties = sasl_properties(connection__failed__authentication__delay__ms="1000")
    with BrokerThread(overrides=properties) as broker:
        clients = [connect(broker) for _ in range(20)]
        for client in clients:
            select(client)
        started = time.monotonic()
        for client in clients:
            client.send(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0guess")
            client.send(Api.METADATA, 12, topics=[])  # is not served any more
        with connect(broker) as other:
            authenticate(other)
            assert_is_served(other)
            assert time.monotonic() - started < delay_s
        for client in clients:
            answer = client.receive(Api.SASL_AUTHENTICATE, 2, 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert time.monotonic() - started > delay_s - 0.01  # timers count milliseconds
            assert_is_closed(client)
            client.close()
        assert broker.broker.server.authentications_failed == 20


def test_a_client_that_disconnects_during_the_delay_leaves_nothing_behind(
    broker: BrokerThread,
) -> None:
    server = broker.broker.server
    before = server.connections_open
    client = connect(broker)
    select(client)
    client.send(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0guess")
    client.close()
    wait_for(server, connections_open=before)
    assert server.requests_failed == 0


# ------------------------------------------------------------------------------------------ frames


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack(">i", 524_289), "sasl.server.max.receive.size is 524288"),
        (struct.pack(">ih", 20_000_000, 0), "sasl.server.max.receive.size is 524288"),
        (struct.pack(">i", 2**31 - 1), "sasl.server.max.receive.size is 524288"),
        (struct.pack(">i", -1), "a valid request is longer"),
        (struct.pack(">i", 7), "a valid request is longer"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS client connected"),
        (b"GET / HTTP/1.1\r\n", "an HTTP client connected"),
        (struct.pack(">i", 8) + bytes(8), "the client sent PRODUCE before"),
        (struct.pack(">ihhih", 10, 17, 1, 1, 50), "closing"),
    ],
)
def test_a_frame_that_cannot_be_valid_closes_the_connection(
    broker: BrokerThread, data: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(
        ("127.0.0.1", broker.broker.ports["SASL_PLAINTEXT"]), TIMEOUT_S
    ) as client:
        client.sendall(data)
        try:
            assert client.recv(100) == b""
        except ConnectionResetError:
            pass
    assert words.lower() in caplog.text.lower()
    assert broker.broker.server.requests_failed == 0


def test_a_large_token_is_accepted_and_its_memory_released(
    broker: BrokerThread, client: RawClient
) -> None:
    memory = broker.broker.server.request_memory
    token = b"\0alice\0" + b"x" * 400_000
    select(client)
    answer = client.call(Api.SASL_AUTHENTICATE, auth_bytes=token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert_is_closed(client)
    assert broker.call(lambda: memory.used_bytes) == 0


def test_an_authenticated_client_may_send_large_requests(client: RawClient) -> None:
    authenticate(client)
    client.create_topic("large")
    value = bytes(700_000)
    assert client.produce("large", [(None, value, (), 1)]).error_code == ErrorCode.NONE


def test_frames_that_were_begun_by_strangers_take_little_memory(broker: BrokerThread) -> None:
    """Each claims the largest frame and sends half of it."""
    server = broker.broker.server
    refused = server.connections_closed_abusive
    count = STRANGERS_BYTES // 524_288 + 8
    strangers = [connect(broker) for _ in range(count)]
    for each in strangers:
        each._socket.sendall(struct.pack(">i", 524_288) + struct.pack(">hh", 17, 1) + bytes(50_000))
    wait_for(server, connections_closed_abusive=refused + 8 + 1)
    assert broker.call(lambda: server.request_memory.used_bytes) <= STRANGERS_BYTES
    with connect(broker) as client:
        authenticate(client)
        assert_is_served(client)
    for each in strangers:
        each.close()
    deadline = time.monotonic() + TIMEOUT_S
    while broker.call(lambda: server.request_memory.used_bytes):
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def test_half_open_authentications_end_and_disturb_nobody(broker: BrokerThread) -> None:
    server = broker.broker.server
    failed = server.authentications_failed
    silent, asked, selected = ([connect(broker) for _ in range(100)] for _ in range(3))
    for client in asked:
        client.call(Api.API_VERSIONS, 0)
    for client in selected:
        select(client, "SCRAM-SHA-512")
    with connect(broker) as client:
        authenticate(client)
        now = time.monotonic()
        broker.call(lambda: server.sweep(now + AUTHENTICATION_TIMEOUT_S / 2))
        assert server.authentications_failed == failed
        broker.call(lambda: server.sweep(now + AUTHENTICATION_TIMEOUT_S))
        assert server.authentications_failed == failed + 300
        assert_is_served(client)
    for each in (*silent, *asked, *selected):
        assert_is_closed(each)
        each.close()


def test_a_connection_that_must_wait_has_its_whole_time_afterwards() -> None:
    properties = sasl_properties(max__connection__creation__rate="1")
    with BrokerThread(overrides=properties) as broker, connect(broker) as first:
        authenticate(first)
        with connect(broker) as waiting:
            server = broker.broker.server
            wait_for(server, connections_open=2)
            later = time.monotonic() + AUTHENTICATION_TIMEOUT_S
            broker.call(lambda: server.sweep(later))
            authenticate(waiting)
            assert_is_served(waiting)


# -------------------------------------------------------------------------------- re-authentication


@pytest.fixture(scope="module")
def limited() -> Iterator[BrokerThread]:
    """A broker whose clients must authenticate again after a minute, and with SCRAM after two."""
    properties = sasl_properties(
        connections__max__reauth__ms="120000",
        listener__name__sasl_plaintext__plain__connections__max__reauth__ms="60000",
    )
    with BrokerThread(overrides=properties) as broker:
        add_users(broker)
        yield broker


def pass_time(broker: BrokerThread, seconds: float) -> None:
    """Shift the ends of all sessions and the times of the last re-authentications."""

    def shift() -> None:
        for connection in broker.broker.server.connections:
            authentication = connection.authentication
            if authentication is None:
                continue
            dialogue = authentication._dialogue  # type: ignore[attr-defined]
            if dialogue._session_ends_at is not None:
                dialogue._session_ends_at -= seconds
            if dialogue._reauthenticated_at is not None:
                dialogue._reauthenticated_at -= seconds

    broker.call(shift)


def test_a_client_authenticates_again_and_is_served_meanwhile(limited: BrokerThread) -> None:
    server = limited.broker.server
    with connect(limited) as client:
        assert authenticate(client) == 60_000
        for number in range(1, 4):
            pass_time(limited, 50)
            assert_is_served(client)
            repeated = server.reauthentications_succeeded
            assert authenticate(client) == 60_000, number
            assert server.reauthentications_succeeded == repeated + 1
        pass_time(limited, 50)
        assert_is_served(client)


def test_version_0_of_sasl_authenticate_has_no_lifetime(limited: BrokerThread) -> None:
    with connect(limited) as client:
        assert authenticate(client, version=0) == 0
        assert_is_served(client)
        pass_time(limited, 61)
        client.send(Api.METADATA, 12, topics=[])
        assert_is_closed(client)


def test_a_request_after_the_end_of_the_session_closes_the_connection(
    limited: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    expired = limited.broker.server.sessions_expired
    with connect(limited) as client:
        authenticate(client)
        pass_time(limited, 61)
        client.send(Api.METADATA, 12, topics=[])
        assert_is_closed(client)
    assert limited.broker.server.sessions_expired == expired + 1
    assert "did not authenticate again before its session ended" in caplog.text


def test_repeated_produce_requests_end_with_the_session(limited: BrokerThread) -> None:
    """They are served without being decoded (produce_fast_path.py), but not without the check."""
    with connect(limited) as client:
        authenticate(client)
        client.create_topic("fast")
        record = [(None, b"v", (), 1)]
        for _ in range(3):
            assert client.produce("fast", record).error_code == ErrorCode.NONE
        pass_time(limited, 61)
        with pytest.raises(ConnectionClosed):
            client.produce("fast", record)


def test_a_client_may_authenticate_again_after_the_end_of_its_session(
    limited: BrokerThread,
) -> None:
    with connect(limited) as client:
        authenticate(client)
        pass_time(limited, 61)
        assert authenticate(client) == 60_000
        assert_is_served(client)


def test_a_second_re_authentication_within_a_second_is_refused(limited: BrokerThread) -> None:
    with connect(limited) as client:
        authenticate(client)
        authenticate(client)
        answer = client.call(Api.SASL_HANDSHAKE, mechanism="PLAIN")
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert_is_served(client)
        pass_time(limited, 1)
        authenticate(client)


@pytest.mark.parametrize(
    ("mechanism", "token", "words"),
    [
        ("PLAIN", b"\0bob\0bob-secret", "Cannot change principals during re-authentication"),
        ("PLAIN", b"\0alice\0guess", "Invalid username or password"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=x", "not supported for re-authentication of mechanism"),
    ],
)
def test_another_user_or_mechanism_at_the_re_authentication_closes_the_connection(
    limited: BrokerThread, mechanism: str, token: bytes, words: str
) -> None:
    server = limited.broker.server
    failed = server.reauthentications_failed
    with connect(limited) as client:
        authenticate(client)
        select(client, mechanism)
        answer = client.call(Api.SASL_AUTHENTICATE, auth_bytes=token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert words in answer.error_message
        assert_is_closed(client)
    assert server.reauthentications_failed == failed + 1


def test_other_requests_are_not_served_during_the_re_authentication(
    limited: BrokerThread,
) -> None:
    with connect(limited) as client:
        authenticate(client)
        select(client)
        client.send(Api.METADATA, 12, topics=[])
        assert_is_closed(client)


def test_a_re_authentication_has_a_time_limit(limited: BrokerThread) -> None:
    server = limited.broker.server
    with connect(limited) as client, connect(limited) as other:
        authenticate(client)
        authenticate(other)
        select(client)
        later = time.monotonic() + AUTHENTICATION_TIMEOUT_S
        limited.call(lambda: server.sweep(later))
        assert_is_closed(client)
        assert_is_served(other)


def test_a_delayed_response_precedes_the_re_authentication(limited: BrokerThread) -> None:
    with connect(limited) as client:
        authenticate(client)
        client.create_topic("awaited")
        topics = [{"topic": "awaited", "partitions": [{"partition": 0, "fetch_offset": 0}]}]
        wait = {"replica_id": -1, "max_wait_ms": 300, "min_bytes": 1, "max_bytes": 1_000}
        client._socket.sendall(
            b"".join(codec.encode_request(Api.FETCH, 4, 77, "raw", {**wait, "topics": topics}))
        )
        sent = client.send(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.receive(Api.FETCH, 4, 77)
        assert client.receive(Api.SASL_HANDSHAKE, 1, sent).error_code == ErrorCode.NONE
        answer = client.call(Api.SASL_AUTHENTICATE, auth_bytes=ALICE)
        assert answer.session_lifetime_ms == 60_000


# ---------------------------------------------------------------------------------------- changes


def test_changed_users_apply_to_new_connections(broker: BrokerThread) -> None:
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"

    def alter(value: str | None) -> None:
        config = {"name": name, "config_operation": 1 if value is None else 0, "value": value}
        resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
        with connect(broker, "PLAINTEXT") as admin:
            answer = admin.call(Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource])
        assert answer.responses[0].error_code == ErrorCode.NONE

    with connect(broker) as before:
        authenticate(before)
        alter(f'{module} required user_carol="new";')
        with connect(broker) as client:
            authenticate(client, b"\0carol\0new")
        with connect(broker) as client:
            select(client)
            answer = client.call(Api.SASL_AUTHENTICATE, auth_bytes=ALICE)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert_is_served(before)
        alter(None)
        with connect(broker) as client:
            authenticate(client)


def test_large_handshakes_of_version_0_leave_no_memory_behind(broker: BrokerThread) -> None:
    memory, name = broker.broker.server.request_memory, "x" * 32_000
    body = {"mechanism": "PLAIN"}
    frame = b"".join(codec.encode_request(Api.SASL_HANDSHAKE, 0, 1, name, body))
    for _ in range(2):
        strangers = [connect(broker) for _ in range(STRANGERS_BYTES // len(frame) // 2 + 1)]
        for each in strangers:
            each._socket.sendall(frame[:5_000])
        deadline = time.monotonic() + TIMEOUT_S
        while broker.call(lambda: memory.used_bytes) < len(strangers) * len(name):
            assert time.monotonic() < deadline
            time.sleep(POLL_S)
        for each in strangers:
            each._socket.sendall(frame[5_000:])
            assert each.receive(Api.SASL_HANDSHAKE, 0, 1).error_code == ErrorCode.NONE
            each.close()
    with connect(broker) as client:
        select(client)
        begin_large_token(client, broker)
        assert client.receive(Api.SASL_AUTHENTICATE, 2, 7).error_code == (
            ErrorCode.SASL_AUTHENTICATION_FAILED
        )


def begin_large_token(client: RawClient, broker: BrokerThread) -> None:
    """Send a token in two parts, so that the broker keeps the first."""
    server = broker.broker.server
    body = {"auth_bytes": b"\0alice\0" + b"x" * 10_000}
    frame = b"".join(codec.encode_request(Api.SASL_AUTHENTICATE, 2, 7, "raw", body))
    before = server.bytes_in
    client._socket.sendall(frame[:5_000])
    wait_for(server, bytes_in=before + 5_000)
    client._socket.sendall(frame[5_000:])

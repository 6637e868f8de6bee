"""SASL/OAUTHBEARER listeners with real clients, and tokens that are not accepted."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.integration.client.certificates import Authority, needs_openssl
from tests.integration.security.test_tls_listener import pem
from tests.jwt_issuer import (
    AUDIENCE,
    ISSUER,
    KeyServer,
    SigningKey,
    TokenEndpoint,
    claims,
    key_set,
    sign,
)
from tests.raw_client import Api, ConnectionClosed, RawClient

from ottla import Producer
from ottla.base.errors import ErrorCode
from ottla.client.errors import AuthenticationFailed
from ottla.testing.broker import BrokerFailed
from ottla.testing.broker_thread import BrokerThread

TIMEOUT_S = 20.0
KEY = SigningKey("k1", "RS256")
ELLIPTIC = SigningKey("k2", "ES256")
INVALID = b'{"status":"invalid_token"}'
PREFIX = "sasl.oauthbearer."


def properties(url: str, **changes: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{PREFIX}jwks.endpoint.url": url,
        f"{PREFIX}expected.issuer": ISSUER,
        f"{PREFIX}expected.audience": f"other,{AUDIENCE}",
        **{name.replace("__", "."): value for name, value in changes.items()},
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    path = tmp_path_factory.mktemp("issuer") / "keys.json"
    path.write_bytes(key_set(KEY, ELLIPTIC))
    with BrokerThread(overrides=properties(path.as_uri())) as broker:
        yield broker


class Session:
    """A connection that authenticates request by request."""

    def __init__(self, broker: BrokerThread) -> None:
        self.client = RawClient(broker.broker.ports["SASL_PLAINTEXT"])

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def send(self, message: bytes) -> Any:
        handshake = self.client.call(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        assert handshake.error_code == ErrorCode.NONE
        return self.client.call(Api.SASL_AUTHENTICATE, 2, auth_bytes=message)

    def authenticate(self, token: str, extensions: str = "", name: str = "") -> Any:
        authorization = f"a={name}" if name else ""
        message = f"n,{authorization},\x01auth=Bearer {token}\x01{extensions}\x01"
        return self.send(message.encode())

    def acknowledge(self) -> Any:
        return self.client.call(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")

    def metadata(self) -> Any:
        return self.client.call(Api.METADATA, topics=[])


# ----------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("key", [KEY, ELLIPTIC], ids=lambda key: key.algorithm)
def test_a_valid_token_authenticates_until_it_expires(
    broker: BrokerThread, key: SigningKey
) -> None:
    with Session(broker) as session:
        answer = session.authenticate(sign(key), "logicalCluster=lkc-1\x01")
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b"")
        assert 290_000 < answer.session_lifetime_ms <= 300_000
        assert session.metadata().brokers


def unsigned(header: dict[str, str], payload: dict[str, Any]) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in (header, payload)
    )


def with_public_key_as_secret() -> str:
    public = KEY.private.public_key()
    secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = unsigned({"alg": "HS256", "kid": "k1"}, claims())
    signature = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), "sha256"))
    return f"{signed}.{signature.rstrip(b'=').decode()}"


def forged(key: SigningKey, subject: str) -> str:
    header, _, signature = sign(key).split(".")
    payload = unsigned({}, claims(sub=subject)).partition(".")[2]
    return f"{header}.{payload}.{signature}"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (lambda: sign(SigningKey("k1", "RS256")), "the signature is wrong"),
        (lambda: forged(KEY, "admin"), "the signature is wrong"),
        (lambda: forged(ELLIPTIC, "admin"), "the signature is wrong"),
        (lambda: sign(SigningKey("k9")), "no key of the issuer fits the token"),
        (lambda: sign(KEY, aud="payroll"), "the audience is 'payroll'"),
        (lambda: sign(KEY, aud=...), "the audience is None"),
        (lambda: sign(KEY, iss="https://evil"), "the issuer is 'https://evil'"),
        (lambda: sign(KEY, exp=time.time() - 100, iat=1), "the token expired"),
        (lambda: sign(KEY, exp=...), "the claim exp is missing"),
        (lambda: sign(KEY, nbf=time.time() + 100), "in the future"),
        (lambda: sign(KEY, iat=time.time() + 100), "in the future"),
        (lambda: sign(KEY, sub=...), "names the principal, is missing"),
        (lambda: unsigned({"alg": "none"}, claims()) + ".AAAA", "'none' is not accepted"),
        (with_public_key_as_secret, "'HS256' is not accepted"),
        (lambda: "nonsense", "not a signed JWT"),
    ],
)
def test_a_token_that_is_not_valid_is_answered_as_by_kafka_and_logged(
    broker: BrokerThread,
    token: Callable[[], str],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = token()
    with Session(broker) as session:
        challenge = session.authenticate(text)
        assert (challenge.error_code, challenge.auth_bytes) == (ErrorCode.NONE, INVALID)
        failure = session.acknowledge()
        assert failure.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert failure.error_message == INVALID.decode()
        session.client.assert_is_closed()
    server = broker.broker._server
    assert server is not None
    assert server.authentications_failed
    if reason in caplog.text:  # the log is limited in rate
        assert "(OAUTHBEARER)" in caplog.text
    assert text.rpartition(".")[2] not in caplog.text


def test_the_reason_is_logged_once_and_without_the_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(KEY))
    token = sign(KEY, aud="payroll")
    with BrokerThread(overrides=properties(path.as_uri())) as broker, Session(broker) as session:
        session.authenticate(token)
        session.acknowledge()
    failures = [each for each in caplog.messages if "authentication of" in each]
    assert len(failures) == 1
    assert failures[0].endswith("failed: the audience is 'payroll' (OAUTHBEARER)")
    assert token not in caplog.text


def test_a_second_token_after_an_error_is_not_accepted(broker: BrokerThread) -> None:
    with Session(broker) as session:
        assert session.authenticate("nonsense").auth_bytes == INVALID
        message = f"n,,\x01auth=Bearer {sign(KEY)}\x01\x01".encode()
        answer = session.client.call(Api.SASL_AUTHENTICATE, 2, auth_bytes=message)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        session.client.assert_is_closed()


def test_a_malformed_message_fails_at_once(broker: BrokerThread) -> None:
    with Session(broker) as session:
        answer = session.send(b"n,,\x01auth=Basic eDp5\x01\x01")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        session.client.assert_is_closed()


def test_a_client_cannot_act_as_another_principal(broker: BrokerThread) -> None:
    with Session(broker) as session:
        assert session.authenticate(sign(KEY), name="alice").error_code == ErrorCode.NONE
    with Session(broker) as session:
        answer = session.authenticate(sign(KEY), name="admin")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "authorization id" in answer.error_message


def test_handshake_version_0_is_not_supported(broker: BrokerThread) -> None:
    with Session(broker) as session:
        answer = session.client.call(Api.SASL_HANDSHAKE, 0, mechanism="OAUTHBEARER")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_the_connection_is_closed_when_the_token_expires(broker: BrokerThread) -> None:
    with Session(broker) as session:
        expires_at = time.time() + 0.7
        answer = session.authenticate(sign(KEY, exp=expires_at))
        assert 0 < answer.session_lifetime_ms <= 700
        assert session.metadata().brokers
        with pytest.raises((ConnectionClosed, ConnectionError)):
            ask_until(session, expires_at + TIMEOUT_S)


def ask_until(session: Session, deadline: float) -> None:
    while time.time() < deadline:
        session.metadata()


def test_a_client_authenticates_again_with_a_new_token(broker: BrokerThread) -> None:
    with Session(broker) as session:
        session.authenticate(sign(KEY, exp=time.time() + 2))
        again = session.authenticate(sign(KEY, exp=time.time() + 60))
        assert again.session_lifetime_ms > 50_000
        assert session.metadata().brokers


def test_a_client_cannot_change_its_principal(broker: BrokerThread) -> None:
    with Session(broker) as session:
        session.authenticate(sign(KEY))
        again = session.authenticate(sign(KEY, sub="admin"))
        assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in again.error_message


def test_a_rotated_key_is_fetched_while_the_client_waits() -> None:
    with (
        KeyServer(key_set(KEY)) as issuer,
        BrokerThread(overrides=properties(issuer.url)) as broker,
    ):
        issuer.document = key_set(ELLIPTIC)
        with Session(broker) as session:
            assert session.authenticate(sign(ELLIPTIC)).auth_bytes == b""
        fetched = issuer.requests
        for number in range(20):
            with Session(broker) as session:
                made_up = sign(SigningKey(f"made-up-{number}"))
                assert session.authenticate(made_up).auth_bytes == INVALID
        assert issuer.requests == fetched == 2


# --------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sasl__oauthbearer__expected__issuer": ""}, "allow.unverified.issuer=true"),
        ({"sasl__oauthbearer__expected__audience": ""}, "allow.unverified.audience=true"),
        ({"sasl__oauthbearer__jwks__endpoint__url": "file:///missing.json"}, "no such file"),
        ({"sasl__oauthbearer__jwks__endpoint__url": "idp"}, "must be a URL"),
        ({"sasl__server__callback__handler__class": "com.example.Handler"}, "Java code"),
        ({"sasl__oauthbearer__jwt__validator__class": "com.example.V"}, "Java code"),
    ],
)
def test_a_broker_that_would_be_open_or_closed_for_all_does_not_start(
    changes: dict[str, str], problem: str, broker: BrokerThread
) -> None:
    with (
        pytest.raises(BrokerFailed) as raised,
        BrokerThread(overrides=properties("https://127.0.0.1:1/keys", **changes)),
    ):
        pass
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


# -------------------------------------------------------------------------------- real clients


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    directory = tmp_path_factory.mktemp("secured")
    keys = directory / "keys.json"
    keys.write_bytes(key_set(KEY))
    own = authority.sign("broker", "DNS:localhost,IP:127.0.0.1")
    changes = {
        "listeners": "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": pem(own, directory, "broker"),
    }
    with BrokerThread(overrides=properties(keys.as_uri()) | changes) as broker:
        yield broker


def address(broker: BrokerThread) -> str:
    return f"127.0.0.1:{broker.broker.ports['SASL_SSL']}"


@needs_openssl
def test_confluent_kafka_authenticates_again_with_new_tokens(
    secured: BrokerThread, authority: Authority
) -> None:
    import confluent_kafka

    errors: list[str] = []

    def new_token(_config: str) -> tuple[str, float]:
        # librdkafka must get the next token before it authenticates again.
        return sign(KEY, exp=time.time() + 5), time.time() + 2

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address(secured),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": authority.certificate,
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": new_token,
            "error_cb": lambda error: errors.append(str(error)),
        }
    )
    server = secured.broker._server
    assert server is not None
    deadline = time.monotonic() + 30
    while server.reauthentications_succeeded < 2 and time.monotonic() < deadline:
        producer.produce("confluent", b"v")
        assert producer.flush(TIMEOUT_S) == 0
        producer.poll(0.1)
    assert server.reauthentications_succeeded >= 2
    assert errors == []


@needs_openssl
def test_confluent_kafka_fetches_a_token_by_oidc(
    secured: BrokerThread, authority: Authority
) -> None:
    import confluent_kafka

    endpoint = TokenEndpoint(KEY)
    try:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address(secured),
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": authority.certificate,
                "sasl.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "app",
                "sasl.oauthbearer.client.secret": "app-secret",
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            }
        )
        producer.produce("oidc", b"v")
        assert producer.flush(TIMEOUT_S) == 0
        assert endpoint.forms == ["grant_type=client_credentials&scope=kafka"]
    finally:
        endpoint.close()


@needs_openssl
def test_kafka_python_authenticates(secured: BrokerThread, authority: Authority) -> None:
    import kafka
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return sign(KEY)

    producer = kafka.KafkaProducer(
        bootstrap_servers=address(secured),
        security_protocol="SASL_SSL",
        ssl_cafile=authority.certificate,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    try:
        assert producer.send("kafka-python", b"v").get(TIMEOUT_S).offset == 0
    finally:
        producer.close()


@needs_openssl
def test_aiokafka_authenticates(secured: BrokerThread, authority: Authority) -> None:
    import asyncio
    import ssl

    import aiokafka
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return sign(KEY)

    async def produce() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address(secured),
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=authority.certificate),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        async with producer:
            record = await producer.send_and_wait("aiokafka", b"v")
        return int(record.offset)

    assert asyncio.run(produce()) == 0


@needs_openssl
def test_our_clients_authenticate_by_function_and_authenticate_again(
    secured: BrokerThread, authority: Authority
) -> None:
    server = secured.broker.server
    before = server.reauthentications_succeeded

    def new_token() -> tuple[str, float]:
        expires_at = time.time() + 2
        return sign(KEY, sub="ours", exp=expires_at), expires_at

    profile = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.certificate,
        "sasl.mechanism": "OAUTHBEARER",
    }
    with Producer(address(secured), profile=profile, oauth_cb=new_token) as producer:
        deadline = time.monotonic() + TIMEOUT_S
        while server.reauthentications_succeeded < before + 2 and time.monotonic() < deadline:
            producer.send("ours", b"v").result(TIMEOUT_S)
            time.sleep(0.01)
        principals = {str(each.principal) for each in server.connections}
    assert server.reauthentications_succeeded >= before + 2
    assert "User:ours" in principals


@needs_openssl
def test_our_clients_fetch_tokens_from_an_endpoint(
    secured: BrokerThread, authority: Authority
) -> None:
    endpoint = TokenEndpoint(KEY)
    profile = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.certificate,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.credentials.client.id": "app",
        "sasl.oauthbearer.client.credentials.client.secret": "app-secret",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
    }
    try:
        with Producer(address(secured), profile=profile) as producer:
            assert producer.send("endpoint", b"v").result(TIMEOUT_S).offset == 0
    finally:
        endpoint.close()


@needs_openssl
def test_our_clients_report_that_a_token_is_not_accepted(
    secured: BrokerThread, authority: Authority
) -> None:
    profile = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.certificate,
        "sasl.mechanism": "OAUTHBEARER",
    }
    with (
        pytest.raises(AuthenticationFailed) as raised,
        Producer(
            address(secured),
            profile=profile,
            oauth_cb=lambda: (sign(KEY, aud="payroll"), time.time() + 60),
        ),
    ):
        pass
    assert str(raised.value).endswith("rejected the credentials: invalid token")

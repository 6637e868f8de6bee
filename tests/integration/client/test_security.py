"""TLS through a terminating proxy, and SASL with a broker that checks it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.client.certificates import Authority, needs_openssl
from tests.integration.client.fake_broker import FakeBroker, Stream
from tests.integration.client.tls_proxy import TlsProxy

from ottla.client.admin import Admin
from ottla.client.errors import (
    AuthenticationFailed,
    BrokersUnreachable,
    ClientError,
    InvalidConfig,
)
from ottla.testing.broker import BrokerProcess
from ottla.wire.api import Api

SOON_MS = 1_500
ITERATIONS = 4096
SALT = b"salt of the tests"


# ----------------------------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def server_context(authority: Authority, names: str = "DNS:localhost") -> ssl.SSLContext:
    own = authority.sign(f"broker-{names.replace(':', '-')}", names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    return context


@pytest.fixture(scope="module")
def proxy(authority: Authority) -> Iterator[TlsProxy]:
    """Start a broker behind a proxy whose certificate is for `localhost`."""
    with TlsProxy(server_context(authority)) as proxy:
        advertised = f"PLAINTEXT://localhost:{proxy.port}"
        with BrokerProcess(overrides={"advertised.listeners": advertised}) as broker:
            proxy.target = broker.port
            yield proxy


@needs_openssl
def test_a_broker_is_reached_through_tls(proxy: TlsProxy, authority: Authority) -> None:
    with Admin(
        f"localhost:{proxy.port}",
        security_protocol="SSL",
        ssl_ca_location=authority.certificate,
    ) as admin:
        admin.create_topics("through-tls")
        assert "through-tls" in admin.list_topics()
        assert admin.describe_cluster().nodes[1].port == proxy.port


@needs_openssl
def test_a_profile_with_javas_names_does_the_same(
    proxy: TlsProxy, authority: Authority, tmp_path: Path
) -> None:
    profile = tmp_path / "client.properties"
    profile.write_text(
        f"bootstrap.servers=localhost:{proxy.port}\nsecurity.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.certificate}\n"
    )
    with Admin(profile=profile) as admin:
        admin.list_topics()


@needs_openssl
def test_an_authority_that_is_not_trusted_is_a_failure(proxy: TlsProxy) -> None:
    start = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=f"localhost:{proxy.port} is not trusted"):
        Admin(f"localhost:{proxy.port}", security_protocol="SSL")
    assert time.monotonic() - start < 10


@needs_openssl
def test_a_certificate_for_another_host_is_refused_unless_configured(
    proxy: TlsProxy, authority: Authority
) -> None:
    options: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_ca_location": authority.certificate,
        "default_api_timeout_ms": SOON_MS,
    }
    with pytest.raises(AuthenticationFailed, match=r"not valid for '127\.0\.0\.1'"):
        Admin(f"127.0.0.1:{proxy.port}", **options)
    with Admin(
        f"127.0.0.1:{proxy.port}", ssl_endpoint_identification_algorithm="", **options
    ) as admin:
        admin.list_topics()


@needs_openssl
def test_a_client_shows_its_own_certificate(authority: Authority) -> None:
    context = server_context(authority, "IP:127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.certificate)
    mine = authority.sign("client", "DNS:client", password="open sesame")
    options: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_ca_location": authority.certificate,
        "default_api_timeout_ms": SOON_MS,
    }
    with FakeBroker(lambda stream: stream.serve(), tls=context) as broker:
        with Admin(
            broker.bootstrap,
            ssl_certificate_location=mine.certificate,
            ssl_key_location=mine.key,
            ssl_key_password="open sesame",
            **options,
        ) as admin:
            assert admin.config.ssl_key_password == "open sesame"
        with pytest.raises(AuthenticationFailed, match="requires a client certificate"):
            Admin(broker.bootstrap, **options)


def test_tls_to_a_plaintext_broker_is_a_clear_error(broker: BrokerProcess) -> None:
    start = time.monotonic()
    with pytest.raises(BrokersUnreachable, match=f"127.0.0.1:{broker.port}"):
        Admin(broker.bootstrap, security_protocol="SSL", default_api_timeout_ms=SOON_MS)
    assert time.monotonic() - start < 10


def test_files_that_cannot_be_read_are_an_error_before_anything_is_connected() -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.ca\.location=/nowhere/ca\.pem cannot be"):
        Admin("localhost:1", security_protocol="SSL", ssl_ca_location="/nowhere/ca.pem")


# ---------------------------------------------------------------------------------------- SASL


class SaslScript:
    """A broker that rejects clients that do not know the password."""

    def __init__(self, mechanism: str, user: str = "alice", password: str = "secret") -> None:
        self.mechanism = mechanism
        self.user = user
        self.password = password
        self.lies = False
        """Whether the broker itself does not know the password."""

    def __call__(self, stream: Stream) -> None:
        stream.open()
        asked = stream.receive()
        assert asked is not None
        assert asked.api == Api.SASL_HANDSHAKE
        if asked.body.mechanism != self.mechanism:
            stream.answer(asked, error_code=33, mechanisms=[self.mechanism])
            return
        stream.answer(asked, error_code=0, mechanisms=[self.mechanism])
        let_in = self._plain(stream) if self.mechanism == "PLAIN" else self._scram(stream)
        if let_in:
            stream.serve()

    def _plain(self, stream: Stream) -> bool:
        asked = stream.receive()
        assert asked is not None
        expected = f"\0{self.user}\0{self.password}".encode()
        if bytes(asked.body.auth_bytes) == expected:
            stream.answer(asked, error_code=0, error_message=None, auth_bytes=b"")
            return True
        stream.answer(asked, error_code=58, error_message="Invalid credentials", auth_bytes=b"")
        return False

    def _scram(self, stream: Stream) -> bool:
        digest = self.mechanism.removeprefix("SCRAM-").replace("-", "").lower()

        def sign(key: bytes, message: bytes) -> bytes:
            return hmac.new(key, message, digest).digest()

        first = stream.receive()
        assert first is not None
        bare = bytes(first.body.auth_bytes).decode().removeprefix("n,,")
        user, nonce = (part.split("=", 1)[1] for part in bare.split(","))
        challenge = f"r={nonce}more,s={base64.b64encode(SALT).decode()},i={ITERATIONS}"
        stream.answer(first, error_code=0, error_message=None, auth_bytes=challenge.encode())
        final = stream.receive()
        if final is None:
            return False
        text = bytes(final.body.auth_bytes).decode()
        without_proof, _, proof = text.rpartition(",p=")
        message = f"{bare},{challenge},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(digest, self.password.encode(), SALT, ITERATIONS)
        stored = hashlib.new(digest, sign(salted, b"Client Key")).digest()
        signature = sign(stored, message)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if user != self.user or hashlib.new(digest, key).digest() != stored:
            stream.answer(final, error_code=58, error_message="no entry", auth_bytes=b"")
            return False
        server = sign(sign(salted, b"Server Key"), message)
        if self.lies:
            server = bytes(len(server))
        answer = b"v=" + base64.b64encode(server)
        stream.answer(final, error_code=0, error_message=None, auth_bytes=answer)
        return True


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def connect(broker: FakeBroker, mechanism: str, **more: Any) -> str | None:
    options: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "default_api_timeout_ms": SOON_MS,
        **more,
    }
    with Admin(broker.bootstrap, **options) as admin:
        return admin._async._cluster.metadata.cluster_id


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_knows_the_password_is_let_in(mechanism: str) -> None:
    with FakeBroker(SaslScript(mechanism)) as broker:
        assert connect(broker, mechanism, sasl_username="alice", sasl_password="secret") == "fake"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_javas_jaas_config_does_the_same(mechanism: str) -> None:
    module = "scram.ScramLoginModule" if mechanism != "PLAIN" else "plain.PlainLoginModule"
    jaas = (
        f'org.apache.kafka.common.security.{module} required username="alice" password="sec\\"ret";'
    )
    with FakeBroker(SaslScript(mechanism, password='sec"ret')) as broker:
        assert connect(broker, mechanism, sasl_jaas_config=jaas) == "fake"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_fails_at_once_and_is_not_retried(mechanism: str) -> None:
    start = time.monotonic()
    with FakeBroker(SaslScript(mechanism)) as broker:
        with pytest.raises(AuthenticationFailed, match="rejected the credentials") as failure:
            connect(broker, mechanism, sasl_username="alice", sasl_password="guess")
        assert broker.connections == 1
    assert failure.value.fatal
    assert time.monotonic() - start < SOON_MS / 1000


def test_a_mechanism_that_the_broker_has_not_is_named_with_those_it_has() -> None:
    with (
        FakeBroker(SaslScript("SCRAM-SHA-512")) as broker,
        pytest.raises(
            AuthenticationFailed,
            match="does not support the SASL mechanism PLAIN; it supports SCRAM-SHA-512",
        ),
    ):
        connect(broker, "PLAIN", sasl_username="alice", sasl_password="secret")


def test_a_broker_that_does_not_know_the_password_itself_is_not_believed() -> None:
    script = SaslScript("SCRAM-SHA-256")
    script.lies = True
    with (
        FakeBroker(script) as broker,
        pytest.raises(AuthenticationFailed, match="could not prove"),
    ):
        connect(broker, "SCRAM-SHA-256", sasl_username="alice", sasl_password="secret")


def test_names_with_commas_and_equals_signs_are_distinguished() -> None:
    script = SaslScript("SCRAM-SHA-256", user="a=3Db=2Cc")
    with FakeBroker(script) as broker:
        assert connect(broker, "SCRAM-SHA-256", sasl_username="a=b,c", sasl_password="secret")


@needs_openssl
def test_sasl_over_tls(authority: Authority) -> None:
    context = server_context(authority, "IP:127.0.0.1")
    with FakeBroker(SaslScript("PLAIN"), tls=context) as broker:
        cluster_id = connect(
            broker,
            "PLAIN",
            security_protocol="SASL_SSL",
            ssl_ca_location=authority.certificate,
            sasl_username="alice",
            sasl_password="secret",
        )
    assert cluster_id == "fake"


def test_sasl_without_a_user_is_an_error_before_anything_is_connected() -> None:
    with pytest.raises(InvalidConfig, match=r"sasl\.username"):
        Admin("localhost:1", security_protocol="SASL_PLAINTEXT")


def test_a_broker_without_sasl_is_a_clear_error() -> None:
    with (
        FakeBroker(lambda stream: stream.serve({3: (0, 13), 18: (0, 4)})) as broker,
        pytest.raises(ClientError, match="SASL_HANDSHAKE"),
    ):
        connect(broker, "PLAIN", sasl_username="alice", sasl_password="secret")

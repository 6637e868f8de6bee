"""TLS listeners with real clients: who gets in, who does not, and what is logged."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.integration.cli.running import running_on
from tests.integration.client.certificates import Authority, Certificate, needs_openssl

from ottla import Admin, ConfigResource, Consumer, Producer, ResourceType
from ottla.base.errors import ErrorCode
from ottla.client.errors import ClientError
from ottla.testing.broker import BrokerProcess
from ottla.testing.broker_thread import BrokerThread

pytestmark = needs_openssl

NAMES = "DNS:localhost,IP:127.0.0.1"
TIMEOUT_S = 20.0
MB = 1024 * 1024


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority, which nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


def pem(own: Certificate, directory: Path, name: str) -> str:
    """Return a file with a key and its certificate, as Kafka's PEM key stores have."""
    path = directory / f"{name}.pem"
    path.write_text(Path(own.key).read_text() + Path(own.certificate).read_text())
    return str(path)


def tls_properties(authority: Authority, directory: Path, **more: str) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": pem(authority.sign("broker", NAMES), directory, "broker"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@pytest.fixture(scope="module")
def broker(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("keys")
    with BrokerProcess(overrides=tls_properties(authority, directory)) as broker:
        yield broker


def address(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{broker.ports['SSL']}"


def trusting(authority: Authority) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": authority.certificate}


def test_records_pass_through_tls(broker: BrokerProcess, authority: Authority) -> None:
    with Producer(address(broker), profile=trusting(authority)) as producer:
        for number in range(1_000):
            producer.send("ours", b"%d" % number)
    with Consumer(
        address(broker),
        profile=trusting(authority),
        group_id="g",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(["ours"])
        found = []
        while len(found) < 1_000:
            found += [each.value for each in consumer.poll(timeout_s=TIMEOUT_S)]
    assert found == [b"%d" % number for number in range(1_000)]


def test_other_clients_use_tls(broker: BrokerProcess, authority: Authority) -> None:
    import confluent_kafka
    import kafka

    confluent = confluent_kafka.Producer(
        {
            "bootstrap.servers": address(broker),
            "security.protocol": "SSL",
            "ssl.ca.location": authority.certificate,
        }
    )
    confluent.produce("others", b"confluent")
    assert confluent.flush(TIMEOUT_S) == 0
    python = kafka.KafkaConsumer(
        "others",
        bootstrap_servers=address(broker),
        security_protocol="SSL",
        ssl_cafile=authority.certificate,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
    )
    assert next(python).value == b"confluent"
    python.close()


def test_records_are_never_sent_past_the_encryption(
    broker: BrokerProcess, authority: Authority
) -> None:
    """A response that is large enough for sendfile arrives encrypted and intact."""
    value = bytes(1_000) * 1_000
    with Producer(address(broker), profile=trusting(authority)) as producer:
        for _ in range(8):
            producer.send("large", value, partition=0).result(TIMEOUT_S)
    with Consumer(address(broker), profile=trusting(authority)) as consumer:
        partition = consumer.partitions_for("large")[0]
        consumer.assign([partition])
        consumer.seek_to_beginning()
        found: list[bytes | None] = []
        while len(found) < 8:
            found += [each.value for each in consumer.poll(timeout_s=TIMEOUT_S)]
    assert found == [value] * 8


def test_a_client_that_trusts_another_authority_is_not_served(
    broker: BrokerProcess, stranger: Authority
) -> None:
    with (
        pytest.raises(ClientError, match="certificate"),
        Producer(address(broker), profile=trusting(stranger), max_block_ms=5_000),
    ):
        pass
    broker.wait_for_log("The TLS handshake with 127.0.0.1:.* failed: the client")


def test_a_client_without_tls_is_reported(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.ports["SSL"]), TIMEOUT_S) as client:
        client.sendall(b"\0\0\0\x20\0\x12\0\0\0\0\0\1\0\4test")
        client.settimeout(TIMEOUT_S)
        with suppress(ConnectionError):
            while client.recv(100):
                pass
    broker.wait_for_log("The TLS handshake with 127.0.0.1:.* failed: the client does not use TLS")


def test_a_tls_client_on_a_plaintext_listener_is_reported(
    broker: BrokerProcess, authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=authority.certificate)
    with (
        socket.create_connection(("127.0.0.1", broker.ports["PLAINTEXT"]), TIMEOUT_S) as client,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(client, server_hostname="localhost")
    broker.wait_for_log("TLS client connected to a port that expects the plaintext Kafka protocol")


@pytest.mark.timeout(90)
def test_a_connection_that_stays_silent_is_closed(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.ports["SSL"]), TIMEOUT_S) as client:
        client.settimeout(TIMEOUT_S)
        assert client.recv(100) == b""
    broker.wait_for_log("failed: the handshake took longer than 10 seconds")


# ------------------------------------------------------------------------- client certificates


def test_clients_need_a_certificate_and_a_principal(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    properties = tls_properties(
        authority,
        tmp_path,
        ssl__client__auth="required",
        ssl__principal__mapping__rules="RULE:^CN=(app-.*)$/$1/",
    )
    app, other, forged = (
        signer.sign(name, "DNS:client")
        for signer, name in ((authority, "app-1"), (authority, "other"), (stranger, "app-1"))
    )

    def profile(own: Certificate | None) -> dict[str, str]:
        keys = {} if own is None else {
            "ssl.certificate.location": own.certificate, "ssl.key.location": own.key
        }  # fmt: skip
        return {**trusting(authority), **keys}

    with BrokerProcess(overrides=properties) as broker:
        with Producer(address(broker), profile=profile(app)) as producer:
            producer.send("mtls", b"v").result(TIMEOUT_S)
        for own, reason in (
            (None, "the client has no certificate"),
            (forged, "the certificate of the client is not accepted"),
            (other, "no rule of ssl.principal.mapping.rules matches CN=other"),
        ):
            with (
                pytest.raises(ClientError),
                Producer(address(broker), profile=profile(own), max_block_ms=5_000),
            ):
                pass
            broker.wait_for_log(reason)
        assert "Traceback" not in broker.log()


def send_request(broker: BrokerProcess, context: ssl.SSLContext) -> None:
    """Send a request and receive the first byte of the response.

    With TLS 1.3, a client considers the handshake complete before the server does.
    """
    with (
        socket.create_connection(("127.0.0.1", broker.ports["SSL"]), TIMEOUT_S) as client,
        context.wrap_socket(client, server_hostname="localhost") as secured,
    ):
        secured.sendall(b"\0\0\0\x0e\0\x12\0\0\0\0\0\1\xff\xff\0\0\0\0")
        secured.recv(1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_learn_why_the_handshake_failed(
    authority: Authority, stranger: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Without an alert, a client would retry as after a network failure."""
    forged = stranger.sign("app-1", "DNS:client")
    properties = tls_properties(authority, tmp_path, ssl__client__auth="required")
    with BrokerProcess(overrides=properties) as broker:
        for keys, alert in (
            (None, "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"),
            (forged, "UNKNOWN_CA"),
        ):
            context = ssl.create_default_context(cafile=authority.certificate)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.maximum_version = version
            if keys is not None:
                context.load_cert_chain(keys.certificate, keys.key)
            with pytest.raises(ssl.SSLError, match=alert):
                send_request(broker, context)


def test_a_requested_certificate_is_optional_but_verified(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """CPython cannot name the accepted authorities in the request, so clients send any certificate
    that they have."""
    import confluent_kafka

    own, forged = (signer.sign("app-1", "DNS:client") for signer in (authority, stranger))
    properties = tls_properties(authority, tmp_path, ssl__client__auth="requested")
    with BrokerThread(overrides=properties) as broker:

        def principals() -> set[str]:
            connections = broker.broker.server.connections
            return broker.call(lambda: {str(each.principal) for each in connections})

        def errors_of_client(keys: Certificate | None, principal: str | None) -> str:
            """Return what a client reported until it had connected as the principal."""
            errors: list[str] = []
            settings: dict[str, object] = {
                **trusting(authority),
                "bootstrap.servers": f"127.0.0.1:{broker.broker.ports['SSL']}",
                "error_cb": lambda error: errors.append(str(error)),
            }
            if keys is not None:
                settings["ssl.certificate.location"] = keys.certificate
                settings["ssl.key.location"] = keys.key
            client = confluent_kafka.Producer(settings)
            # librdkafka may connect again, to the address in the answer of its first connection.
            deadline = time.monotonic() + TIMEOUT_S
            while principal not in principals() if principal else not errors:
                assert time.monotonic() < deadline, (principals(), errors)
                client.poll(0.05)
            return str(errors)

        assert errors_of_client(None, "User:ANONYMOUS") == "[]"
        assert errors_of_client(own, "User:CN=app-1") == "[]"
        assert "unknown ca" in errors_of_client(forged, None)


# ------------------------------------------------------------------------------------- reloading


def serial_number(broker: BrokerProcess, authority: Authority) -> str:
    context = ssl.create_default_context(cafile=authority.certificate)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with (
        socket.create_connection(("127.0.0.1", broker.ports["SSL"]), TIMEOUT_S) as client,
        context.wrap_socket(client, server_hostname="localhost") as secured,
    ):
        certificate = secured.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


def test_a_changed_certificate_is_used_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    properties = tls_properties(authority, tmp_path)
    store = Path(properties["ssl.keystore.location"])
    with BrokerProcess(overrides=properties) as broker:
        before = serial_number(broker, authority)
        with Producer(address(broker), profile=trusting(authority)) as producer:
            producer.send("renewed", b"1").result(TIMEOUT_S)
            store.write_text("half a certificate")
            broker.wait_for_log("listener SSL keeps its TLS certificates: .*PEM format")
            assert serial_number(broker, authority) == before
            pem(authority.sign("stranger", NAMES), tmp_path, "broker")
            broker.wait_for_log("The new certificate is for CN=stranger")
            pem(authority.sign("broker", NAMES), tmp_path, "broker")
            broker.wait_for_log("listener SSL uses changed TLS certificates")
            assert serial_number(broker, authority) != before
            producer.send("renewed", b"2").result(TIMEOUT_S)


def test_altered_tls_properties_are_used_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    properties = tls_properties(authority, tmp_path)
    renewed = pem(authority.sign("broker", NAMES), tmp_path, "renewed")
    stranger = pem(authority.sign("stranger", NAMES), tmp_path, "stranger")
    missing = str(tmp_path / "missing.pem")
    own, all_brokers = (ConfigResource(ResourceType.BROKER, each) for each in ("1", ""))
    name = "listener.name.ssl.ssl.keystore.location"
    with (
        BrokerProcess(overrides={"node.id": "1", **properties}) as broker,
        Admin(address(broker), profile=trusting(authority)) as admin,
    ):
        before = serial_number(broker, authority)
        for path, reason in (
            (missing, "missing.pem cannot be used: no such file"),
            (stranger, "The new certificate is for CN=stranger"),
        ):
            with pytest.raises(ClientError, match=reason) as raised:
                admin.alter_configs({own: {name: path}})
            assert raised.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(ClientError, match="only for one broker"):
            admin.alter_configs({all_brokers: {"ssl.keystore.location": renewed}})
        assert serial_number(broker, authority) == before

        admin.alter_configs({own: {name: renewed}})
        assert serial_number(broker, authority) != before
        broker.wait_for_log("listener SSL uses changed TLS certificates, valid until 2")


# ------------------------------------------------------------------------------------ certificates


def dated(authority: Authority, directory: Path, name: str, first: int, last: int) -> Certificate:
    """Return a client's certificate that is valid from one day to another one, from today."""
    today = datetime.datetime.now(datetime.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.load_pem_x509_certificate(Path(authority.certificate).read_bytes())
    signing = serialization.load_pem_private_key(
        Path(authority.certificate).with_suffix(".key").read_bytes(), None
    )
    assert isinstance(signing, rsa.RSAPrivateKey)
    signed = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(signer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today + datetime.timedelta(days=first))
        .not_valid_after(today + datetime.timedelta(days=last))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(signing, hashes.SHA256())
    )
    own = Certificate(str(directory / f"{name}.crt"), str(directory / f"{name}.key"))
    Path(own.certificate).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    Path(own.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return own


DATES = [("expired", -2, -1, "has expired"), ("future", 1, 2, "is not yet valid")]


def test_client_certificates_must_be_valid_now(authority: Authority, tmp_path: Path) -> None:
    properties = tls_properties(authority, tmp_path, ssl__client__auth="required")
    with BrokerProcess(overrides=properties) as broker:
        for name, first, last, reason in DATES:
            own = dated(authority, tmp_path, name, first, last)
            profile = trusting(authority) | {
                "ssl.certificate.location": own.certificate,
                "ssl.key.location": own.key,
            }
            with (
                pytest.raises(ClientError),
                Producer(address(broker), profile=profile, max_block_ms=5_000),
            ):
                pass
            broker.wait_for_log(f"certificate of the client is not accepted: certificate {reason}")


@pytest.mark.parametrize(("name", "first", "last", "reason"), DATES)
def test_a_broker_whose_certificate_is_not_valid_now_is_not_trusted(
    authority: Authority, tmp_path: Path, name: str, first: int, last: int, reason: str
) -> None:
    store = pem(dated(authority, tmp_path, name, first, last), tmp_path, "dated")
    properties = tls_properties(authority, tmp_path) | {"ssl.keystore.location": store}
    with (
        BrokerProcess(overrides=properties) as broker,
        pytest.raises(ClientError, match=reason),
        Producer(address(broker), profile=trusting(authority), max_block_ms=5_000),
    ):
        pass


def test_the_status_of_a_cluster_shows_when_certificates_expire(
    broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> None:
    profile = tmp_path / "client.properties"
    properties = {"bootstrap.servers": address(broker), **trusting(authority)}
    profile.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    ran = running_on(address(broker))("cluster status", "--command-config", str(profile))
    assert "Certificates that expire soon: 1" in ran.lines
    with Admin(address(broker), profile=trusting(authority)) as admin:
        (expires,) = admin.certificate_expiry().values()
    assert expires is not None
    assert any(expires.isoformat() in line for line in ran.lines)
    left = expires - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=1) < left <= datetime.timedelta(days=2)
    broker.wait_for_log("the TLS certificate of listener SSL expires at")
    with Admin(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as admin:
        assert list(admin.certificate_expiry().values()) == [None]


# ------------------------------------------------------------------------------------- strangers


@pytest.mark.timeout(120)
def test_a_thousand_half_open_handshakes_disturb_nobody(
    broker: BrokerProcess, authority: Authority
) -> None:
    """Each stranger sends the first half of a TLS handshake, and nothing more."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    half = outgoing.read()[:100]
    before = resident_bytes(broker.pid)
    with (
        Producer(address(broker), profile=trusting(authority)) as producer,
        ExitStack() as open_connections,
    ):
        producer.send("undisturbed", b"before").result(TIMEOUT_S)
        strangers = []
        for _ in range(1_000):
            stranger = open_connections.enter_context(
                socket.create_connection(("127.0.0.1", broker.ports["SSL"]), TIMEOUT_S)
            )
            stranger.sendall(half)
            strangers.append(stranger)
        producer.send("undisturbed", b"meanwhile").result(TIMEOUT_S)
        with Producer(address(broker), profile=trusting(authority)) as newcomer:
            newcomer.send("undisturbed", b"new").result(TIMEOUT_S)
        assert resident_bytes(broker.pid) < before + 128 * MB
        for stranger in strangers:
            stranger.settimeout(2 * TIMEOUT_S)
            with suppress(ConnectionResetError):
                while stranger.recv(100):
                    pass
        producer.send("undisturbed", b"after").result(TIMEOUT_S)
    # The log is not flooded: repetitions are counted.
    assert broker.log().count("took longer than 10 seconds") < 100
    assert "Traceback" not in broker.log()


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

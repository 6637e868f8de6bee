"""TLS listeners with real clients: who gets in, who does not, and what is logged."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, Certificate, needs_openssl

from ottla import Consumer, Producer
from ottla.client.errors import ClientError
from ottla.testing.broker import BrokerProcess
from ottla.testing.broker_thread import BrokerThread

pytestmark = needs_openssl

NAMES = "DNS:localhost,IP:127.0.0.1"
TIMEOUT_S = 20.0


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


def assert_confluent_reports_a_tls_error(address: str, trusted: Authority) -> None:
    # A function of its own: the producer would otherwise live, and connect again and again, as long
    # as the tracebacks of the errors that the test catches.
    import confluent_kafka

    errors: list[confluent_kafka.KafkaError] = []
    confluent = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.ca.location": trusted.certificate,
            "error_cb": errors.append,
        }
    )
    deadline = time.monotonic() + TIMEOUT_S
    while confluent_kafka.KafkaError._SSL not in [each.code() for each in errors]:
        assert time.monotonic() < deadline, errors
        confluent.poll(0.1)


def test_no_other_client_trusts_a_broker_of_another_authority(
    broker: BrokerProcess, stranger: Authority
) -> None:
    """A broker in the middle, whose certificate another authority has signed, gets no request."""
    import kafka
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaConnectionError
    from aiokafka.helpers import create_ssl_context
    from kafka.errors import KafkaError as KafkaPythonError

    assert_confluent_reports_a_tls_error(address(broker), stranger)

    with pytest.raises(KafkaPythonError):
        kafka.KafkaProducer(
            bootstrap_servers=address(broker),
            security_protocol="SSL",
            ssl_cafile=stranger.certificate,
            bootstrap_timeout_ms=3_000,
        )

    async def connect() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address(broker),
            security_protocol="SSL",
            ssl_context=create_ssl_context(cafile=stranger.certificate),
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(connect())


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat")
def test_kcat_does_not_trust_a_broker_of_another_authority(
    broker: BrokerProcess, authority: Authority, stranger: Authority
) -> None:
    for trusted, succeeds in ((authority, True), (stranger, False)):
        run = subprocess.run(
            [
                *("kcat", "-L", "-m", "10", "-b", address(broker), "-X", "security.protocol=SSL"),
                *("-X", f"ssl.ca.location={trusted.certificate}"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (run.returncode == 0) == succeeds, run.stderr
    assert "certificate verify failed" in run.stderr


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

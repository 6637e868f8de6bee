"""Clients with keys in every form, against a broker that requires a certificate."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, Certificate, needs_openssl

from ottla import Admin, AsyncAdmin
from ottla.client.errors import ClientError, InvalidConfig
from ottla.testing.broker import BrokerProcess

pytestmark = needs_openssl

PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.sign("client", "DNS:client", password=PASSWORD)


@pytest.fixture(scope="module")
def stores(home: Path, authority: Authority, own: Certificate) -> Path:
    """A directory with the key and the authority in every format."""
    (home / "both.pem").write_text(text(own.key) + text(own.certificate))
    openssl(
        *("-export", "-in", own.certificate, "-inkey", own.key, "-passin", f"pass:{PASSWORD}"),
        *("-passout", f"pass:{PASSWORD}", "-out", str(home / "me.p12")),
    )
    openssl(
        *("-export", "-nokeys", "-in", authority.certificate, "-passout", f"pass:{PASSWORD}"),
        *("-out", str(home / "trust.p12")),
    )
    return home


@pytest.fixture(scope="module")
def broker(home: Path, authority: Authority) -> Iterator[BrokerProcess]:
    signed = authority.sign("broker", "DNS:localhost,IP:127.0.0.1")
    (home / "broker.pem").write_text(text(signed.key) + text(signed.certificate))
    overrides = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "ssl.client.auth": "required",
    }
    with BrokerProcess(overrides=overrides) as broker:
        yield broker


def text(path: str | Path) -> str:
    return Path(path).read_text()


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", "pkcs12", *arguments], check=True, capture_output=True)


def connect(broker: BrokerProcess, properties: dict[str, str]) -> None:
    with Admin(
        f"127.0.0.1:{broker.ports['SSL']}",
        profile={"security.protocol": "SSL", **properties},
        default_api_timeout_ms=10_000,
    ) as admin:
        admin.list_topics()


FORMS = ("java pem", "java pkcs12", "java inline", "rdkafka files", "rdkafka inline", "rdkafka p12")


def properties_of(
    form: str, stores: Path, authority: Authority, own: Certificate
) -> dict[str, str]:
    p12 = {"ssl.keystore.location": f"{stores}/me.p12", "ssl.keystore.password": PASSWORD}
    match form:
        case "java pem":
            return {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": f"{stores}/both.pem",
                "ssl.key.password": PASSWORD,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": authority.certificate,
            }
        case "java pkcs12":
            return p12 | {
                "ssl.keystore.type": "PKCS12",
                "ssl.key.password": PASSWORD,
                "ssl.truststore.type": "PKCS12",
                "ssl.truststore.location": f"{stores}/trust.p12",
                "ssl.truststore.password": PASSWORD,
            }
        case "java inline":
            return {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": text(own.key),
                "ssl.keystore.certificate.chain": text(own.certificate),
                "ssl.key.password": PASSWORD,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": text(authority.certificate),
            }
        case "rdkafka files":
            return {
                "ssl.certificate.location": own.certificate,
                "ssl.key.location": own.key,
                "ssl.key.password": PASSWORD,
                "ssl.ca.location": authority.certificate,
            }
        case "rdkafka inline":
            return {
                "ssl.certificate.pem": text(own.certificate),
                "ssl.key.pem": text(own.key),
                "ssl.key.password": PASSWORD,
                "ssl.ca.pem": text(authority.certificate),
            }
        case _:
            return p12 | {"ssl.ca.location": authority.certificate}


@pytest.mark.parametrize("form", FORMS)
def test_a_key_is_accepted_in_every_form(
    form: str, broker: BrokerProcess, stores: Path, authority: Authority, own: Certificate
) -> None:
    connect(broker, properties_of(form, stores, authority, own))


@pytest.mark.parametrize("form", FORMS)
def test_another_machine_can_use_the_contents_of_the_files(
    form: str, broker: BrokerProcess, stores: Path, authority: Authority, own: Certificate
) -> None:
    from ottla.client.config import CommonConfig
    from ottla.client.inlined_files import with_inlined_files

    given = {"security.protocol": "SSL", **properties_of(form, stores, authority, own)}
    if form != "rdkafka inline":
        given = with_inlined_files(CommonConfig, given)
    assert not [name for name in given if name.endswith(".location")]
    connect(broker, given)


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_password_is_one_sentence_without_the_password(
    form: str, broker: BrokerProcess, stores: Path, authority: Authority, own: Certificate
) -> None:
    given = properties_of(form, stores, authority, own)
    given = {
        name: "wrong MARKER" if name in ("ssl.key.password", "ssl.keystore.password") else value
        for name, value in given.items()
    }
    with pytest.raises(InvalidConfig, match=r"cannot be used: .*password") as failure:
        connect(broker, given)
    assert "MARKER" not in str(failure.value)
    assert "PRIVATE" not in str(failure.value)


def test_a_client_without_a_key_is_refused(broker: BrokerProcess, authority: Authority) -> None:
    with pytest.raises(ClientError, match="a client certificate"):
        connect(broker, {"ssl.ca.location": authority.certificate})


@pytest.mark.parametrize(
    "more",
    [
        {"ssl.enabled.protocols": "TLSv1.2"},
        {"ssl.protocol": "TLSv1.2"},
        {
            "ssl.enabled.protocols": "TLSv1.2",
            "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        },
        {"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"},
    ],
)
def test_versions_and_cipher_suites_can_be_chosen(
    more: dict[str, str],
    broker: BrokerProcess,
    stores: Path,
    authority: Authority,
    own: Certificate,
) -> None:
    connect(broker, properties_of("java pem", stores, authority, own) | more)


def test_a_long_running_client_uses_a_renewed_certificate(
    broker: BrokerProcess, home: Path, authority: Authority, own: Certificate
) -> None:
    """The client outlives a certificate that the broker no longer accepts."""
    (home / "stranger").mkdir()
    outdated = Authority(home / "stranger").sign("client", "DNS:client")
    renewed = authority.sign("renewed", "DNS:client")
    path = home / "current.pem"

    def install(certificate: Certificate) -> None:
        path.write_text(text(certificate.key) + text(certificate.certificate))

    async def run() -> None:
        install(renewed)
        properties = {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(path),
            "ssl.truststore.location": authority.certificate,
        }
        async with AsyncAdmin(
            f"127.0.0.1:{broker.ports['SSL']}", profile=properties, default_api_timeout_ms=5_000
        ) as admin:
            await admin.list_topics()
            install(outdated)
            await admin._cluster.release()
            with pytest.raises(ClientError, match="certificate"):
                await admin.list_topics()
            install(renewed)
            await admin.list_topics()

    asyncio.run(run())

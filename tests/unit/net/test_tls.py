"""Key and trust stores in every format, and the messages for those that cannot be used."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, Certificate, needs_openssl

from ottla.base.config.tls_settings import TlsSettings
from ottla.base.errors import UserError
from ottla.net.tls import MAX_STORE_BYTES, certificate_of, client_context, server_context

pytestmark = needs_openssl

PASSWORD = "secret of the tests"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.sign("localhost", "DNS:localhost,IP:127.0.0.1")


def text(path: str) -> str:
    return Path(path).read_text()


def pkcs12(home: Path, own: Certificate, authority: Authority) -> str:
    store = home / "store.p12"
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", own.certificate, "-inkey", own.key,
         "-certfile", authority.certificate, "-passout", f"pass:{PASSWORD}", "-out", str(store)],
        check=True, capture_output=True,
    )  # fmt: skip
    return str(store)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Connect two contexts in memory, and return the client's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = server.wrap_bio(to_server, to_client, server_side=True)
    right = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    pending = {left, right}
    for _ in range(10):
        for each in tuple(pending):
            try:
                each.do_handshake()
                pending.discard(each)
            except ssl.SSLWantReadError:
                pass
    assert not pending
    return right


def trusted(authority: Authority) -> TlsSettings:
    return TlsSettings(truststore_location=authority.certificate)


def test_a_pem_file_with_key_and_certificate(
    home: Path, own: Certificate, authority: Authority
) -> None:
    store = home / "both.pem"
    store.write_text(text(own.key) + text(own.certificate))
    server = server_context(TlsSettings(keystore_location=str(store), keystore_type="PEM"))
    assert server.options & ssl.OP_NO_RENEGOTIATION
    assert handshake(server, client_context(trusted(authority))).version() == "TLSv1.3"


def test_pem_in_properties(own: Certificate, authority: Authority) -> None:
    server = TlsSettings(
        keystore_key=text(own.key), keystore_certificate_chain=text(own.certificate)
    )
    client = TlsSettings(truststore_certificates=text(authority.certificate))
    handshake(server_context(server), client_context(client))


def test_an_encrypted_key(authority: Authority) -> None:
    own = authority.sign("encrypted", "DNS:localhost", password=PASSWORD)
    settings = TlsSettings(
        keystore_key=text(own.key),
        keystore_certificate_chain=text(own.certificate),
        key_password=PASSWORD,
    )
    handshake(server_context(settings), client_context(trusted(authority)))
    with pytest.raises(UserError, match=r"ssl\.keystore\.key"):
        server_context(replace(settings, key_password="wrong"))
    with pytest.raises(UserError, match=r"ssl\.keystore\.key"):
        server_context(replace(settings, key_password=None))


@pytest.mark.parametrize("type_", ["PKCS12", "JKS"])
def test_pkcs12_stores(home: Path, own: Certificate, authority: Authority, type_: str) -> None:
    store = pkcs12(home, own, authority)
    server = TlsSettings(keystore_location=store, keystore_type=type_, keystore_password=PASSWORD)
    client = TlsSettings(
        truststore_location=store, truststore_type=type_, truststore_password=PASSWORD
    )
    handshake(server_context(server), client_context(client))
    assert certificate_of(server).subject == "CN=localhost"
    assert certificate_of(server).names == {"localhost", "127.0.0.1"}
    with pytest.raises(UserError, match=r"password in ssl\.keystore\.password is wrong"):
        server_context(replace(server, keystore_password="wrong"))


def test_a_client_refuses_another_name_unless_told(authority: Authority) -> None:
    own = authority.sign("elsewhere", "DNS:elsewhere")
    server = server_context(
        TlsSettings(keystore_key=text(own.key), keystore_certificate_chain=text(own.certificate))
    )
    settings = trusted(authority)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context(settings))
    handshake(server, client_context(replace(settings, endpoint_identification_algorithm="")))


def test_client_certificates_are_verified(own: Certificate, authority: Authority) -> None:
    keys = {
        "keystore_key": text(own.key), "keystore_certificate_chain": text(own.certificate)
    }  # fmt: skip
    trust = {"truststore_location": authority.certificate}
    server = server_context(TlsSettings(**keys, **trust, client_auth="required"))
    handshake(server, client_context(TlsSettings(**keys, **trust)))
    with pytest.raises(ssl.SSLError):
        handshake(server, client_context(TlsSettings(**trust, enabled_protocols=("TLSv1.2",))))


@pytest.mark.parametrize(
    ("suites", "protocols", "version", "cipher"),
    [
        ((), ("TLSv1.2",), "TLSv1.2", None),
        (
            ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",),
            ("TLSv1.2", "TLSv1.3"),
            "TLSv1.2",
            "ECDHE-RSA-AES256-GCM-SHA384",
        ),
        (
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",),
            ("TLSv1.2",),
            "TLSv1.2",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ),
        (("TLS_AES_256_GCM_SHA384",), ("TLSv1.2", "TLSv1.3"), "TLSv1.3", None),
    ],
)
def test_versions_and_cipher_suites(
    own: Certificate,
    authority: Authority,
    suites: tuple[str, ...],
    protocols: tuple[str, ...],
    version: str,
    cipher: str | None,
) -> None:
    server = TlsSettings(
        keystore_key=text(own.key),
        keystore_certificate_chain=text(own.certificate),
        cipher_suites=suites,
        enabled_protocols=protocols,
    )
    connected = handshake(server_context(server), client_context(trusted(authority)))
    assert connected.version() == version
    used = connected.cipher()
    assert used is not None
    assert cipher is None or used[0] == cipher


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "A TLS listener needs a certificate. Set ssl.keystore.location"),
        ({"keystore_location": "/nowhere"}, "ssl.keystore.location=/nowhere cannot be used: no su"),
        ({"keystore_key": "x"}, "ssl.keystore.certificate.chain must be set together"),
        ({"enabled_protocols": ("TLSv1.1",)}, "ssl.enabled.protocols=TLSv1.1 cannot be used"),
        ({"cipher_suites": ("NONE",)}, "ssl.cipher.suites=NONE cannot be used"),
    ],
)
def test_settings_that_cannot_be_used_are_named(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        server_context(TlsSettings(**changes))  # type: ignore[arg-type]


def test_a_jks_store_is_reported_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(UserError, match="keytool -importkeystore"):
        server_context(TlsSettings(keystore_location=str(store)))


def test_secrets_are_not_in_the_representation() -> None:
    settings = TlsSettings(
        keystore_password=PASSWORD, key_password=PASSWORD, keystore_key=PASSWORD,
        truststore_password=PASSWORD,
    )  # fmt: skip
    assert PASSWORD not in repr(settings)


def test_a_broker_knows_its_subject_as_others_see_it(home: Path) -> None:
    """OpenSSL, in the handshake, and cryptography, in the store, name attributes differently."""
    names = "/C=DE/O=Ottla, Inc./OU=a+OU=b/UID=7/emailAddress=a@b.c/organizationIdentifier=x"
    key, certificate = home / "odd.key", home / "odd.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-utf8",
         "-multivalue-rdn", "-subj", f"{names}/CN=b", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    settings = TlsSettings(
        keystore_type="PEM",
        keystore_key=text(str(key)),
        keystore_certificate_chain=text(str(certificate)),
        truststore_type="PEM",
        truststore_location=str(certificate),
    )
    side = handshake(server_context(settings), client_context(settings))
    seen = side.getpeercert()
    assert seen is not None
    attributes = certificate_of(settings).attributes
    assert attributes == [[*each] for each in seen["subject"]]
    assert len(attributes) == 7


def test_a_device_as_a_store_does_not_fill_the_memory() -> None:
    for settings in (
        TlsSettings(keystore_location="/dev/zero"),
        TlsSettings(truststore_location="/dev/zero"),
    ):
        with pytest.raises(UserError, match=f"has more than {MAX_STORE_BYTES} bytes"):
            client_context(settings)

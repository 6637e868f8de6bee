"""Tests of the certificate authority, with real TLS handshakes in memory."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from ottla.base.errors import UserError
from ottla.cli.secure.certificates import (
    Authority,
    Issued,
    certificate_count,
    facts,
)
from ottla.cli.secure.plan import LOOPBACK

NOW = datetime.now(UTC).replace(microsecond=0)
HOSTS = ["broker.example.com", *LOOPBACK]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create(NOW)


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("broker-1", HOSTS, NOW)


def certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def handshake(tmp_path: Path, issued: Issued, trusted: bytes, host: str) -> None:
    """Perform a TLS handshake in which both sides verify the certificate of the other."""
    store = tmp_path / "store.pem"
    store.write_bytes(issued.store)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (client, server):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_cert_chain(store)
        context.load_verify_locations(cadata=trusted.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
        if not sides:
            return
    raise AssertionError("the handshake did not end")


@pytest.mark.parametrize("host", HOSTS)
def test_clients_and_brokers_accept_the_certificate_for_every_name(
    tmp_path: Path, authority: Authority, issued: Issued, host: str
) -> None:
    handshake(tmp_path, issued, authority.certificate, host)


def test_another_name_is_refused(tmp_path: Path, authority: Authority, issued: Issued) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'other\.example\.com'"):
        handshake(tmp_path, issued, authority.certificate, "other.example.com")


def test_another_authority_is_refused(tmp_path: Path, issued: Issued) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, issued, Authority.create(NOW).certificate, "localhost")


def test_keys_are_ecdsa_p256(authority: Authority, issued: Issued) -> None:
    for pem in (authority.key, issued.key):
        key = serialization.load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.curve.name == "secp256r1"


def test_the_authority_is_valid_for_ten_years_and_certificates_for_ninety_days(
    authority: Authority, issued: Issued
) -> None:
    assert facts(authority.certificate).expires_at == NOW + timedelta(days=3650)
    assert facts(issued.chain).expires_at == NOW + timedelta(days=90)


def test_a_certificate_is_valid_for_clocks_that_are_slow(issued: Issued) -> None:
    assert certificate(issued.chain).not_valid_before_utc == NOW - timedelta(hours=1)


def test_a_certificate_is_for_servers_and_clients_but_not_for_signing(issued: Issued) -> None:
    extensions = certificate(issued.chain).extensions
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_a_certificate_does_not_outlive_its_authority(authority: Authority) -> None:
    late = NOW + timedelta(days=3640)
    assert facts(authority.issue("b", HOSTS, late).chain).expires_at == NOW + timedelta(days=3650)
    with pytest.raises(UserError, match=r"authority expired at .* ottla secure renew --ca"):
        authority.issue("b", HOSTS, NOW + timedelta(days=3651))


def test_names_are_not_repeated_and_may_be_international(authority: Authority) -> None:
    issued = authority.issue("b", ["::1", "0:0::1", "localhost", "localhost", "münchen.de"], NOW)
    assert facts(issued.chain).names == ("::1", "localhost", "xn--mnchen-3ya.de")


def test_a_name_that_no_certificate_can_have_is_refused(authority: Authority) -> None:
    with pytest.raises(UserError, match="cannot be part of a certificate"):
        authority.issue("b", ["é" * 70], NOW)


def test_an_authority_is_loaded_with_its_key_from_any_place_among_the_trusted(
    tmp_path: Path, authority: Authority
) -> None:
    trusted = Authority.create(NOW).certificate + authority.certificate
    loaded = Authority.load(authority.key, trusted)
    assert loaded.certificate == authority.certificate
    handshake(tmp_path, loaded.issue("b", HOSTS, NOW), authority.certificate, "localhost")


def test_a_key_without_its_certificate_is_refused(authority: Authority) -> None:
    with pytest.raises(UserError, match=r"ca\.pem has no certificate for the private key"):
        Authority.load(authority.key, Authority.create(NOW).certificate)
    with pytest.raises(UserError, match=r"ca\.key cannot be used"):
        Authority.load(b"nothing", authority.certificate)


# ----------------------------------------------------------------------------------- renewal


def test_a_renewed_certificate_differs_in_key_and_time_only(
    tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    later = NOW + timedelta(days=60)
    renewed = authority.renew(issued.store, later)
    old, new = certificate(issued.chain), certificate(renewed.chain)
    assert (new.subject, facts(renewed.chain).names) == (old.subject, facts(issued.chain).names)
    assert facts(renewed.chain).expires_at == later + timedelta(days=90)
    assert new.public_key() != old.public_key()
    assert new.serial_number != old.serial_number


def test_names_can_be_added_with_a_renewal(authority: Authority, issued: Issued) -> None:
    renewed = authority.renew(issued.store, NOW, more_hosts=["new.example.com", "localhost"])
    assert facts(renewed.chain).names == (*HOSTS, "new.example.com")


def test_a_renewed_certificate_keeps_the_kind_of_key(tmp_path: Path, authority: Authority) -> None:
    key = rsa.generate_private_key(65537, 3072)
    own = authority.issue("b", HOSTS, NOW)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    renewed = authority.renew(pem + own.chain, NOW)
    public = certificate(renewed.chain).public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    assert public.key_size == 3072
    handshake(tmp_path, renewed, authority.certificate, "localhost")


def test_while_an_authority_is_replaced_clients_may_trust_either(
    tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    successor, cross = authority.succeed(NOW)
    renewed = successor.renew(issued.store, NOW, cross_certificates=cross)
    assert certificate_count(renewed.chain) == 2
    for trusted in (
        authority.certificate,
        successor.certificate,
        successor.certificate + authority.certificate,
    ):
        handshake(tmp_path, renewed, trusted, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, issued, successor.certificate, "localhost")


def test_an_authority_can_be_replaced_again_before_the_first_one_is_dropped(
    tmp_path: Path, authority: Authority, issued: Issued
) -> None:
    second, cross_of_second = authority.succeed(NOW)
    third, cross_of_third = second.succeed(NOW)
    cross = cross_of_third + cross_of_second
    renewed = third.renew(issued.store, NOW, cross_certificates=cross)
    for each in (authority, second, third):
        handshake(tmp_path, renewed, each.certificate, "localhost")


def test_an_expired_authority_can_be_replaced(tmp_path: Path, authority: Authority) -> None:
    successor, cross = authority.succeed(NOW + timedelta(days=4000))
    assert cross == b""
    assert facts(successor.certificate).expires_at == NOW + timedelta(days=7650)


def test_the_representation_of_a_certificate_has_no_key(issued: Issued) -> None:
    assert "PRIVATE" not in repr(issued)

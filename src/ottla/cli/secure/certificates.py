"""A certificate authority, the certificates of brokers, and their renewal.

Nothing here reads a file or a clock: functions take PEM text and the time, and return PEM text.
Keys are ECDSA P-256, because a handshake with RSA takes a broker several times as long. A renewed
certificate keeps the kind of key of its predecessor, in case an administrator has replaced it.

While one authority replaces another, brokers present a cross certificate: the new authority's key,
signed by the old authority. A client that trusts either of the two accepts the brokers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ottla.base.errors import UserError
from ottla.base.installation import install_extra

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError:
    raise UserError(
        "Certificates require the package cryptography. Install it with: "
        f"{install_extra('security')}"
    ) from None

AUTHORITY_LIFETIME = timedelta(days=3650)
CERTIFICATE_LIFETIME = timedelta(days=90)
CLOCK_SKEW = timedelta(hours=1)
"""A certificate is valid from this long before its creation, for clocks that are slow."""
ORGANIZATION = "Ottla"
_RSA_EXPONENT = 65537

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Issued:
    """A private key and its certificates, in PEM format."""

    key: bytes = field(repr=False)
    chain: bytes
    """The certificate, followed by the cross certificates if there are any."""

    @property
    def store(self) -> bytes:
        """The contents of a PEM key store."""
        return self.key + self.chain


@dataclass(frozen=True)
class Facts:
    """Facts about a certificate for its user."""

    subject: str
    names: tuple[str, ...]
    """Subject alternative names."""
    expires_at: datetime


class Authority:
    """A certificate authority: a private key and the certificate that clients trust."""

    def __init__(self, key: PrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, now: datetime) -> Authority:
        """Return a new authority, with a name of its own."""
        key = ec.generate_private_key(ec.SECP256R1())
        # OpenSSL finds an issuer by its name first, so that two authorities need different ones.
        name = _name(f"Ottla CA {x509.random_serial_number() % 2**32:08x}")
        return cls(key, _authority_certificate(name, key, name, key, now, now + AUTHORITY_LIFETIME))

    @classmethod
    def load(cls, key: bytes, trusted: bytes) -> Authority:
        """Return the authority with a private key.

        Args:
            key: The private key, in PEM format.
            trusted: Certificates in PEM format, one of which belongs to the key.

        Raises:
            UserError: The key cannot be used, or none of the certificates belongs to it.
        """
        private = _private_key(key, "ca.key")
        wanted = _public_bytes(private)
        for certificate in _certificates(trusted, "ca.pem"):
            if _public_der(certificate) == wanted:
                return cls(private, certificate)
        raise UserError("ca.pem has no certificate for the private key in ca.key.")

    @property
    def key(self) -> bytes:
        """The private key, in PEM format."""
        return _key_pem(self._key)

    @property
    def certificate(self) -> bytes:
        """The certificate, in PEM format."""
        return _pem(self._certificate)

    def issue(
        self, name: str, hosts: Iterable[str], now: datetime, cross_certificates: bytes = b""
    ) -> Issued:
        """Return a key and a certificate for a broker.

        Args:
            name: Common name of the broker.
            hosts: Host names and addresses by which clients and brokers connect to it.
            now: The current time.
            cross_certificates: PEM text to append to the certificate.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        return self._issue(_name(name), _alternative_names(hosts), key, now, cross_certificates)

    def renew(
        self,
        current: bytes,
        now: datetime,
        *,
        more_hosts: Iterable[str] = (),
        cross_certificates: bytes = b"",
    ) -> Issued:
        """Return a successor of a certificate, with a new key.

        The successor has the same distinguished name, the same subject alternative names and the
        same kind of key.

        Args:
            current: A PEM key store, with a key and its certificate.
            now: The current time.
            more_hosts: Host names and addresses to add.
            cross_certificates: PEM text to append to the certificate.

        Raises:
            UserError: The key store cannot be read.
        """
        certificate = _certificates(current, "The current certificate")[0]
        key = _private_key(current, "The current certificate")
        names = list(_names_of(certificate))
        names += [name for name in _alternative_names(more_hosts) if name not in names]
        return self._issue(certificate.subject, names, _similar(key), now, cross_certificates)

    def succeed(self, now: datetime) -> tuple[Authority, bytes]:
        """Return an authority that replaces this one, and its cross certificate in PEM format.

        An authority that has expired signs no cross certificate: no client accepts it anyway.
        """
        successor = Authority.create(now)
        if self._certificate.not_valid_after_utc <= now:
            return successor, b""
        cross = _authority_certificate(
            successor._certificate.subject,
            successor._key,
            self._certificate.subject,
            self._key,
            now,
            min(self._certificate.not_valid_after_utc, now + AUTHORITY_LIFETIME),
            self._certificate,
        )
        return successor, _pem(cross)

    def _issue(
        self,
        subject: x509.Name,
        names: Sequence[x509.GeneralName],
        key: PrivateKey,
        now: datetime,
        cross_certificates: bytes,
    ) -> Issued:
        end = min(now + CERTIFICATE_LIFETIME, self._certificate.not_valid_after_utc)
        if end <= now:
            raise UserError(
                f"The certificate authority expired at {end:%Y-%m-%d %H:%M:%S} UTC. Replace it "
                "with: ottla secure renew --ca"
            )
        builder = _builder(subject, key, self._certificate.subject, now, end)
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                _key_usage(digital_signature=True, key_encipherment=_is_rsa(key)), critical=True
            )
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(_issued_by(self._certificate), critical=False)
        )
        signed = builder.sign(self._key, hashes.SHA256())
        return Issued(_key_pem(key), _pem(signed) + cross_certificates)


def facts(pem: bytes) -> Facts:
    """Return the facts about the first certificate in PEM text.

    Raises:
        UserError: There is no certificate in it.
    """
    certificate = _certificates(pem, "The file")[0]
    names = tuple(str(name.value) for name in _names_of(certificate))
    return Facts(certificate.subject.rfc4514_string(), names, certificate.not_valid_after_utc)


def certificate_count(pem: bytes) -> int:
    """Return the number of certificates in PEM text."""
    return len(_certificates(pem, "The file"))


# --------------------------------------------------------------------------------- certificates


def _authority_certificate(
    subject: x509.Name,
    key: PrivateKey,
    issuer: x509.Name,
    issuer_key: PrivateKey,
    now: datetime,
    end: datetime,
    issuer_certificate: x509.Certificate | None = None,
) -> x509.Certificate:
    builder = _builder(subject, key, issuer, now, end)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    ).add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    if issuer_certificate is not None:
        builder = builder.add_extension(_issued_by(issuer_certificate), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _builder(
    subject: x509.Name, key: PrivateKey, issuer: x509.Name, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _issued_by(certificate: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:  # a certificate that an administrator has put here
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def _key_usage(
    *,
    digital_signature: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _alternative_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for host in hosts:
        name = _alternative_name(host)
        if name not in found:
            found.append(name)
    return found


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host if host.isascii() else host.encode("idna").decode("ascii"))
    except ValueError:
        raise UserError(f"The host name {host!r} cannot be part of a certificate.") from None


def _names_of(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])


# ------------------------------------------------------------------------------------ PEM text


def _similar(key: PrivateKey) -> PrivateKey:
    if isinstance(key, rsa.RSAPrivateKey):
        return rsa.generate_private_key(_RSA_EXPONENT, key.key_size)
    return ec.generate_private_key(key.curve)


def _is_rsa(key: PrivateKey) -> bool:
    return isinstance(key, rsa.RSAPrivateKey)


def _private_key(pem: bytes, what: str) -> PrivateKey:
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        raise UserError(
            f"{what} cannot be used: it has no private key without a password."
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise UserError(f"{what} cannot be used: its key is neither an ECDSA nor an RSA key.")
    return key


def _certificates(pem: bytes, what: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise UserError(f"{what} cannot be used: it has no certificate in PEM format.") from None


def _key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _public_bytes(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _public_der(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

"""Certificate authorities whose certificates are renewed while servers use them."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = datetime.timedelta(days=60)
"""Longer than the time before the expiry at which brokers log warnings."""
PEM = serialization.Encoding.PEM


class Authority:
    """A certificate authority that signs certificates for servers and clients on this machine."""

    def __init__(self, name: str) -> None:
        self._name = _common_name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        own = self._builder(self._name, self._key.public_key(), is_authority=True)
        own = own.add_extension(usage, critical=True)
        self.certificate = own.sign(self._key, hashes.SHA256()).public_bytes(PEM)
        """The authority's own certificate, in PEM format."""

    def sign(self, name: str) -> bytes:
        """Return a new private key and its certificate, in PEM format."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = self._builder(_common_name(name), key.public_key(), is_authority=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        secret = key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return secret + builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def replace(path: Path, content: bytes) -> None:
    """Replace a private file in one step."""
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    os.replace(new, path)


def trusting(*authorities: bytes) -> ssl.SSLContext:
    """Return the context of a client that trusts authorities, given by their certificates."""
    return ssl.create_default_context(cadata="".join(each.decode() for each in authorities))


def serial_number(pem: bytes) -> int:
    """Return the serial number of the first certificate in a PEM file."""
    return x509.load_pem_x509_certificates(pem)[0].serial_number

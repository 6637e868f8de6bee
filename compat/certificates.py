"""A certificate authority, and certificates of a broker and a client on this machine."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = datetime.timedelta(days=1)


class Certificates:
    """ECDSA certificates (P-256) in PEM files, which Apache Kafka and Ottla both read."""

    def __init__(self, directory: Path) -> None:
        """Create the files.

        Args:
            directory: An existing directory for them.
        """
        self.authority = directory / "authority.pem"
        self._key_store = directory / "broker.pem"
        self._client_key_store = directory / "client.pem"
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _certificate("authority", authority_key, authority_key, "authority", ca=True)
        self.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
        for name, path in (("broker", self._key_store), ("client", self._client_key_store)):
            key = ec.generate_private_key(ec.SECP256R1())
            own = _certificate(name, key, authority_key, "authority", ca=False)
            path.touch(mode=0o600)
            path.write_bytes(
                key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
                + own.public_bytes(serialization.Encoding.PEM)
            )

    def broker_properties(self) -> dict[str, str]:
        """Return the properties of the TLS listener of either broker."""
        return _stores(self._key_store, self.authority)

    def trusting_properties(self) -> dict[str, str]:
        """Return the properties of Java's clients that trust the broker."""
        trusting = _stores(self._key_store, self.authority)
        return {name: text for name, text in trusting.items() if "truststore" in name}

    def client_properties(self) -> dict[str, str]:
        """Return the properties of Java's clients that have a certificate."""
        return _stores(self._client_key_store, self.authority)

    def librdkafka_properties(self) -> dict[str, str]:
        """Return librdkafka's properties for connections to the TLS listeners."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.authority)}

    def client_context(self) -> ssl.SSLContext:
        """Return the context of connections from this process."""
        return ssl.create_default_context(cafile=str(self.authority))


def _stores(key_store: Path, trust_store: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust_store),
    }


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    issuer: str,
    *,
    ca: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFETIME)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if ca:
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
        builder = builder.add_extension(usage, critical=True)
    else:
        names = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())

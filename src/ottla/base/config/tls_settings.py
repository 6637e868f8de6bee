"""Settings of TLS: for a listener of a broker, for connections between brokers, and for clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ottla.base.config.broker_security_table import SSL_KEYS
from ottla.base.config.listener import SecurityProtocol
from ottla.base.config.validator import Value


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The `ssl.` properties, by Kafka's names. The representation contains no secrets."""

    prefix: str = "ssl."
    """Start of the properties' names, for messages."""
    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    keystore_type: str = "JKS"
    keystore_location: str | None = None
    key_location: str | None = None
    """PEM file with the private key, if the key store holds only certificates (librdkafka)."""
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    keystore_key: str | None = field(default=None, repr=False)
    keystore_certificate_chain: str | None = field(default=None, repr=False)
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    truststore_certificates: str | None = field(default=None, repr=False)
    client_auth: str = "none"
    endpoint_identification_algorithm: str = "https"
    principal_mapping_rules: str = "DEFAULT"
    allow_dn_changes: bool = False
    allow_san_changes: bool = False
    names: tuple[tuple[str, str], ...] = ()
    """Settings that a client's user has set by other names, and these names, for messages."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files with keys and certificates."""
        files = (self.keystore_location, self.key_location, self.truststore_location)
        return tuple(each for each in files if each)

    def name_of(self, setting: str) -> str:
        """Return the name of a property, such as `listener.name.internal.ssl.keystore.location`."""
        return dict(self.names).get(setting) or f"{self.prefix}{setting}"


def listener_prefix(listener: str) -> str:
    """Return the start of the names of properties that apply to one listener."""
    return f"listener.name.{listener.lower()}."


def listener_tls(
    listener: str,
    protocol: SecurityProtocol,
    values: Mapping[str, Value],
    overrides: Mapping[str, Value],
) -> TlsSettings:
    """Return the TLS settings of a listener.

    As in Kafka, a listener with SASL asks for client certificates only if its own `ssl.client.auth`
    says so (KIP-684).

    Args:
        listener: Name of the listener.
        protocol: Security protocol of the listener.
        values: Values of the properties for all listeners, by name.
        overrides: Values of the properties for this listener, by their names without the prefix.
    """
    known = {each.name for each in fields(TlsSettings)}
    found: dict[str, object] = {}
    for key in SSL_KEYS:
        attribute = key.name.removeprefix("ssl.").replace(".", "_")
        assert attribute in known, key.name
        value = overrides[key.name] if key.name in overrides else values[key.name]
        found[attribute] = tuple(value) if isinstance(value, list) else value
    if protocol.has_sasl and "ssl.client.auth" not in overrides:
        found["client_auth"] = "none"
    prefix = f"{listener_prefix(listener)}ssl." if overrides else "ssl."
    return TlsSettings(prefix=prefix, **found)  # type: ignore[arg-type]

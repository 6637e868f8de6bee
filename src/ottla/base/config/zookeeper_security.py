"""Settings of secure connections to ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.base.config.broker_zookeeper_table import ZOOKEEPER_SECURITY_KEYS, ZOOKEEPER_TLS_KEYS
from ottla.base.config.definition import ConfigError, ConfigTable
from ottla.base.config.tls_settings import TlsSettings
from ottla.base.config.validator import Value
from ottla.base.errors import UserError

SASL = "sasl"
DIGEST = "digest"

_TABLE = ConfigTable("ZooKeeper security", ZOOKEEPER_SECURITY_KEYS)
_PREFIX = "zookeeper.ssl."
_ANY_FORMAT = "JKS"
"""Type of a store whose format is recognized by its content."""


@dataclass(frozen=True, slots=True)
class ZooKeeperCredentials:
    """A user of ZooKeeper. The representation does not contain the password."""

    user: str
    password: str = field(repr=False)
    scheme: str = SASL
    """SASL for DIGEST-MD5, or DIGEST for ZooKeeper's scheme of that name."""


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """How a process connects to ZooKeeper, and who may access the nodes that it creates."""

    tls: TlsSettings | None = None
    credentials: ZooKeeperCredentials | None = None
    set_acl: bool = False

    @property
    def has_identity(self) -> bool:
        """Whether ZooKeeper can know who connects: by a password or a certificate."""
        has_certificate = self.tls is not None and self.tls.keystore_location is not None
        return self.credentials is not None or has_certificate

    @property
    def sends_password_in_plain_text(self) -> bool:
        return (
            self.credentials is not None and self.credentials.scheme == DIGEST and self.tls is None
        )


def zookeeper_security(values: Mapping[str, Value]) -> ZooKeeperSecurity:
    """Return the settings from the values of all properties in ZOOKEEPER_SECURITY_KEYS.

    Raises:
        ConfigError: The values contradict each other.
    """
    tls = _tls(values) if values["zookeeper.ssl.client.enable"] else None
    security = ZooKeeperSecurity(tls, _credentials(values), bool(values["zookeeper.set.acl"]))
    if security.set_acl and not security.has_identity:
        allowed = (
            "requires that ZooKeeper knows the broker: set zookeeper.auth.user and "
            "zookeeper.auth.password, or zookeeper.ssl.client.enable=true and "
            "zookeeper.ssl.keystore.location"
        )
        raise ConfigError("zookeeper.set.acl", "true", allowed)
    return security


def parse_zookeeper_security(properties: Mapping[str, str]) -> ZooKeeperSecurity:
    """Return the settings among the properties of a broker, whose others are not checked.

    Raises:
        UserError: A property is invalid. The message is a sentence.
    """
    parsed = _TABLE.parse({name: text for name, text in properties.items() if name in _TABLE})
    values: dict[str, Value] = {key.name: key.default for key in _TABLE}
    values.update(parsed.values)
    try:
        if parsed.errors:
            raise parsed.errors[0]
        return zookeeper_security(values)
    except ConfigError as error:
        raise UserError(str(error)) from None


def without_tls(properties: Mapping[str, str]) -> list[str]:
    """Return the TLS properties that have no effect because TLS is not enabled."""
    names = {key.name for key in ZOOKEEPER_TLS_KEYS if key.name.startswith(_PREFIX)}
    enable = "zookeeper.ssl.client.enable"
    if properties.get(enable, "").strip().lower() == "true":
        return []
    return sorted((names & properties.keys()) - {enable})


def _tls(values: Mapping[str, Value]) -> TlsSettings:
    password = _text(values, "zookeeper.ssl.keystore.password")
    return TlsSettings(
        prefix=_PREFIX,
        protocol=_text(values, "zookeeper.ssl.protocol") or "TLSv1.3",
        enabled_protocols=_items(values, "zookeeper.ssl.enabled.protocols"),
        cipher_suites=_items(values, "zookeeper.ssl.cipher.suites"),
        keystore_type=_text(values, "zookeeper.ssl.keystore.type") or _ANY_FORMAT,
        keystore_location=_text(values, "zookeeper.ssl.keystore.location"),
        keystore_password=password,
        key_password=password,  # ZooKeeper has one property for both
        truststore_type=_text(values, "zookeeper.ssl.truststore.type") or _ANY_FORMAT,
        truststore_location=_text(values, "zookeeper.ssl.truststore.location"),
        truststore_password=_text(values, "zookeeper.ssl.truststore.password"),
        endpoint_identification_algorithm=(
            _text(values, "zookeeper.ssl.endpoint.identification.algorithm") or ""
        ),
    )


def _credentials(values: Mapping[str, Value]) -> ZooKeeperCredentials | None:
    user, password = values["zookeeper.auth.user"], values["zookeeper.auth.password"]
    scheme = values["zookeeper.auth.scheme"]
    if not user and not password:
        return None
    if not user:
        raise ConfigError("zookeeper.auth.user", "''", "must be set with zookeeper.auth.password")
    if not password:
        allowed = "must be set with zookeeper.auth.user"
        raise ConfigError("zookeeper.auth.password", "''", allowed)
    assert isinstance(scheme, str)
    if scheme == DIGEST and ":" in str(user):
        allowed = "must not contain a colon with zookeeper.auth.scheme=digest"
        raise ConfigError("zookeeper.auth.user", user, allowed)
    return ZooKeeperCredentials(str(user), str(password), scheme)


def _text(values: Mapping[str, Value], name: str) -> str | None:
    value = values[name]
    return None if value is None else str(value)


def _items(values: Mapping[str, Value], name: str) -> tuple[str, ...]:
    value = values[name]
    assert isinstance(value, list)
    return tuple(value)

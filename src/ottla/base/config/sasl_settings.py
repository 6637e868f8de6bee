"""SASL settings of a listener: the mechanisms, their credentials and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.base.config.broker_sasl_table import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    SASL_MECHANISMS,
    SCRAM_MECHANISMS,
)
from ottla.base.config.definition import ConfigError
from ottla.base.config.oauthbearer_settings import OAuthBearerSettings, listener_oauthbearer
from ottla.base.config.secrets import HIDDEN
from ottla.base.config.tls_settings import listener_prefix
from ottla.base.config.validator import Value
from ottla.base.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasError,
    LoginModule,
    parse_jaas,
)

_MODULES = {
    PLAIN: PLAIN_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, SCRAM_MODULE),
    OAUTHBEARER: OAUTHBEARER_MODULE,
}


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """The settings of one SASL mechanism of a listener."""

    name: str
    jaas: LoginModule | None
    """The credentials in `sasl.jaas.config`, if it is set."""
    max_reauth_ms: int
    """Time after which a client must authenticate again; 0 for no limit."""
    oauthbearer: OAuthBearerSettings | None = None
    """The checks of tokens; None for other mechanisms."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The settings of a listener that uses SASL."""

    mechanisms: tuple[MechanismSettings, ...]
    max_receive_bytes: int
    """Largest request of a client that is not authenticated."""
    failure_delay_ms: int
    """Time by which the response to a failed authentication is delayed."""
    inter_broker_mechanism: str
    """Mechanism of connections to other brokers, if this is the listener for them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the mechanisms."""
        return tuple(each.name for each in self.mechanisms)

    def inter_broker_login(self) -> LoginModule | None:
        """Return the credentials for connections to other brokers, or None if there are none."""
        for each in self.mechanisms:
            if each.name == self.inter_broker_mechanism:
                return each.jaas
        return None


def listener_sasl(
    listener: str, values: Mapping[str, Value], overrides: Mapping[str, Value]
) -> SaslSettings:
    """Return the SASL settings of a listener.

    Args:
        listener: Name of the listener.
        values: Values of the properties for all listeners, by name.
        overrides: Values of the properties for this listener, by their names without the prefix.

    Raises:
        ConfigError: A mechanism is not supported, or lacks its credentials.
    """

    def value(name: str) -> Value:
        return overrides[name] if name in overrides else values[name]

    enabled = value("sasl.enabled.mechanisms")
    max_receive_bytes = value("sasl.server.max.receive.size")
    failure_delay_ms = values["connection.failed.authentication.delay.ms"]
    inter_broker = values["sasl.mechanism.inter.broker.protocol"]
    assert isinstance(enabled, list)
    assert isinstance(max_receive_bytes, int)
    assert isinstance(failure_delay_ms, int)
    assert isinstance(inter_broker, str)
    _check_mechanisms(listener, enabled, "sasl.enabled.mechanisms" in overrides)
    return SaslSettings(
        tuple(_mechanism(listener, name, values, overrides) for name in enabled),
        max_receive_bytes,
        failure_delay_ms,
        inter_broker,
    )


def _check_mechanisms(listener: str, enabled: list[str], is_override: bool) -> None:
    name = f"{listener_prefix(listener) if is_override else ''}sasl.enabled.mechanisms"
    supported = ", ".join(SASL_MECHANISMS)
    if not enabled:
        allowed = f"must have a mechanism for the listener {listener}: {supported}"
        raise ConfigError(name, "''", allowed)
    if GSSAPI in enabled:
        allowed = (
            f"must not have GSSAPI, because Ottla does not support Kerberos; the listener "
            f"{listener} can use {supported}"
        )
        raise ConfigError(name, ",".join(enabled), allowed)
    if unknown := [each for each in enabled if each not in SASL_MECHANISMS]:
        allowed = f"must not have {', '.join(unknown)}; the listener {listener} can use {supported}"
        raise ConfigError(name, ",".join(enabled), allowed)


def _mechanism(
    listener: str, mechanism: str, values: Mapping[str, Value], overrides: Mapping[str, Value]
) -> MechanismSettings:
    max_reauth_ms = next(
        (
            overrides[name]
            for name in (
                f"{mechanism.lower()}.connections.max.reauth.ms",
                "connections.max.reauth.ms",
            )
            if name in overrides
        ),
        values["connections.max.reauth.ms"],
    )
    assert isinstance(max_reauth_ms, int)
    jaas = _jaas(listener, mechanism, overrides)
    oauthbearer = None
    if mechanism == OAUTHBEARER:
        options = {} if jaas is None else jaas.options
        oauthbearer = listener_oauthbearer(listener, values, overrides, options)
    return MechanismSettings(mechanism, jaas, max(0, max_reauth_ms), oauthbearer)


def _jaas(listener: str, mechanism: str, overrides: Mapping[str, Value]) -> LoginModule | None:
    key = f"{mechanism.lower()}.sasl.jaas.config"
    name = f"{listener_prefix(listener)}{key}"
    text = overrides.get(key)
    if text is None:
        if mechanism != PLAIN:
            return None
        allowed = (
            f'must be set to {PLAIN_MODULE} required user_<name>="<password>" …; because the '
            f"listener {listener} uses PLAIN. Ottla does not read the file in "
            "java.security.auth.login.config"
        )
        raise ConfigError(name, "''", allowed)
    assert isinstance(text, str)
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(name, HIDDEN, str(error)) from None
    expected = _MODULES[mechanism]
    if module.name != expected:
        raise ConfigError(name, HIDDEN, f"must use the login module {expected}")
    return module

"""Settings of SASL/OAUTHBEARER for one listener."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from ottla.base.config.broker_oauthbearer_table import OAUTHBEARER_KEYS
from ottla.base.config.broker_security_table import SSL_KEYS
from ottla.base.config.definition import ConfigError
from ottla.base.config.secrets import HIDDEN
from ottla.base.config.tls_settings import TlsSettings, listener_prefix
from ottla.base.config.validator import Value

_START = "sasl.oauthbearer."
_MECHANISM = "oauthbearer."
_LISTS = ("enabled_protocols", "cipher_suites")


@dataclass(frozen=True, slots=True)
class OAuthBearerSettings:
    """The `sasl.oauthbearer.` properties of a listener, by Kafka's names."""

    prefix: str = ""
    """Start of the properties' names, `listener.name.<name>.oauthbearer.`, for messages."""
    jwks_endpoint_url: str = ""
    jwks_endpoint_refresh_ms: int = 3_600_000
    jwks_endpoint_retry_backoff_ms: int = 100
    jwks_endpoint_retry_backoff_max_ms: int = 10_000
    clock_skew_seconds: int = 30
    expected_audience: tuple[str, ...] = ()
    allow_unverified_audience: bool = False
    expected_issuer: str | None = None
    allow_unverified_issuer: bool = False
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"
    jwt_validator_class: str = ""
    tls: TlsSettings = field(default_factory=TlsSettings)
    """The `ssl.` options of the listener's `sasl.jaas.config`, for the connection to the URL."""

    def name_of(self, setting: str) -> str:
        """Return the name of a property with the listener's prefix."""
        return f"{self.prefix}{_START}{setting}"

    @property
    def url(self) -> SplitResult:
        """The parts of the URL of the keys."""
        return urlsplit(self.jwks_endpoint_url)

    @property
    def jwks_file(self) -> str | None:
        """Path of the file with the keys, or None if they are fetched over HTTP."""
        return unquote(self.url.path) if self.url.scheme == "file" else None


def listener_oauthbearer(
    listener: str,
    values: Mapping[str, Value],
    overrides: Mapping[str, Value],
    jaas_options: Mapping[str, str],
) -> OAuthBearerSettings:
    """Return the settings of a listener that enables OAUTHBEARER.

    As in Kafka since version 4.4, the listener must say whose tokens it accepts, and for which
    audience.

    Args:
        listener: Name of the listener.
        values: Values of the properties for all listeners, by name.
        overrides: Values of the properties for this listener, by their names without the
            listener's prefix. Those for OAUTHBEARER only begin with `oauthbearer.`.
        jaas_options: Options in the listener's `sasl.jaas.config`.

    Raises:
        ConfigError: A required property is missing, or a value cannot be used.
    """
    found: dict[str, object] = {}
    for key in OAUTHBEARER_KEYS:
        value = values[key.name]
        for name in (f"{_MECHANISM}{key.name}", key.name):
            if name in overrides:
                value = overrides[name]
                break
        if value is not None:
            attribute = key.name.removeprefix(_START).replace(".", "_")
            found[attribute] = tuple(value) if isinstance(value, list) else value
    prefix = f"{listener_prefix(listener)}{_MECHANISM}"
    tls = _tls_settings(prefix, jaas_options)
    settings = OAuthBearerSettings(prefix=prefix, tls=tls, **found)  # type: ignore[arg-type]
    _check_url(settings, listener)
    _check_claims(settings, listener)
    return settings


def _check_url(settings: OAuthBearerSettings, listener: str) -> None:
    name, shown = settings.name_of("jwks.endpoint.url"), settings.jwks_endpoint_url or "''"
    if not settings.jwks_endpoint_url:
        allowed = f"must be the JWKS URL of the issuer, because listener {listener} has OAUTHBEARER"
        raise ConfigError(name, shown, allowed)
    try:
        url = settings.url
        is_valid = url.port != 0
    except ValueError:
        is_valid = False
    else:
        if url.username is not None or url.password is not None:
            raise ConfigError(name, HIDDEN, "must not have a user name or a password")
    if is_valid and url.scheme == "file":
        is_valid = bool(url.path) and url.netloc in ("", "localhost")
    elif is_valid:
        is_valid = url.scheme in ("https", "http") and bool(url.hostname)
    if not is_valid:
        raise ConfigError(name, shown, "must be a URL with https, http or file:///")


def _check_claims(settings: OAuthBearerSettings, listener: str) -> None:
    for claim, expected, is_allowed in (
        ("issuer", settings.expected_issuer, settings.allow_unverified_issuer),
        ("audience", settings.expected_audience, settings.allow_unverified_audience),
    ):
        if not expected and not is_allowed:
            allowed = (
                f"must be set, because listener {listener} would accept the tokens of every "
                f"{claim}; to allow that, set {settings.name_of(f'allow.unverified.{claim}')}=true"
            )
            raise ConfigError(settings.name_of(f"expected.{claim}"), "''", allowed)
    for setting in ("scope.claim.name", "sub.claim.name"):
        if not getattr(settings, setting.replace(".", "_")):
            raise ConfigError(settings.name_of(setting), "''", "must not be empty")


def _tls_settings(prefix: str, options: Mapping[str, str]) -> TlsSettings:
    known = {key.name for key in SSL_KEYS}
    found: dict[str, object] = {}
    for name, text in options.items():
        attribute = name.removeprefix("ssl.").replace(".", "_")
        if name in known:
            found[attribute] = tuple(text.split(",")) if attribute in _LISTS else text
        elif name.startswith("ssl."):
            allowed = f"must not have the unknown option {name}"
            raise ConfigError(f"{prefix}sasl.jaas.config", HIDDEN, allowed)
    return TlsSettings(prefix="ssl.", **found)  # type: ignore[arg-type]

"""Authentication of a client's connections by SASL.

A user name and a password come from `sasl.username` and `sasl.password`, or from Java's
`sasl.jaas.config`; tokens come from `ottla.client.oauth`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.config import CommonConfig
from ottla.client.errors import InvalidConfig
from ottla.client.jaas import jaas_options
from ottla.client.oauth import token_source
from ottla.net import sasl
from ottla.net.oauthbearer import OAUTHBEARER, OAuthBearer

if TYPE_CHECKING:
    from ottla.net.connection import Authenticate


def authenticator(config: CommonConfig) -> Authenticate | None:
    if not config.security_protocol.upper().startswith("SASL"):
        return None
    timeout_s = config.socket_connection_setup_timeout_ms / 1000
    return sasl.authenticator(_mechanism(config), timeout_s)


def _mechanism(config: CommonConfig) -> sasl.SaslMechanism:
    if config.sasl_mechanism == OAUTHBEARER:
        return OAuthBearer(token_source(config))
    username, password = credentials(config)
    if config.sasl_mechanism == sasl.PLAIN:
        return sasl.Plain(username, password)
    return sasl.Scram(
        config.sasl_mechanism, username, password, is_token=_uses_delegation_token(config)
    )


def _uses_delegation_token(config: CommonConfig) -> bool:
    """Return whether `sasl.jaas.config` has the option `tokenauth="true"`."""
    return jaas_options(config.sasl_jaas_config).get("tokenauth", "").lower() == "true"


def credentials(config: CommonConfig) -> tuple[str, str]:
    username, password = config.sasl_username, config.sasl_password
    if config.sasl_jaas_config:
        options = jaas_options(config.sasl_jaas_config)
        username = username or options.get("username", "")
        password = password or options.get("password", "")
    if not username:
        raise InvalidConfig(
            f"security.protocol is {config.security_protocol}: "
            "sasl.username and sasl.password must be set."
        )
    return username, password

"""How this broker logs in to other brokers, if the listener for brokers uses SASL.

To add a mechanism, add a function to `LOGINS`, and the name to `LOGIN_MECHANISMS`
(base/config/broker_sasl_table.py). The function gets the login module of the mechanism in
`listener.name.<listener>.<mechanism>.sasl.jaas.config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.base.config.broker_sasl_table import PLAIN, SCRAM_MECHANISMS
from ottla.base.config.sasl_settings import SaslSettings
from ottla.base.jaas import LoginModule
from ottla.core.security.principal import USER, Principal
from ottla.net import sasl
from ottla.net.connection import Authenticate

TIMEOUT_S = 5.0
"""Time limit for each response during an authentication."""


class Login(NamedTuple):
    """A mechanism with credentials, and the principal that other brokers derive from them."""

    mechanism: sasl.SaslMechanism
    principal: Principal | None
    """None if only the other broker knows it; `super.users` must contain it then."""


def _plain(name: str, module: LoginModule) -> Login | None:
    user, password = module.username, module.password
    if not user or not password:
        return None
    return Login(sasl.Plain(user, password), Principal(USER, user))


def _scram(name: str, module: LoginModule) -> Login | None:
    user, password = module.username, module.password
    if not user or not password:
        return None
    return Login(sasl.Scram(name, user, password), Principal(USER, user))


LOGINS: Mapping[str, Callable[[str, LoginModule], Login | None]] = {
    PLAIN: _plain,
    **dict.fromkeys(SCRAM_MECHANISMS, _scram),
}
"""Mechanism -> function that returns the login of a login module, or None if it has no user. The
configuration has checked that the brokers of a cluster have one."""


class PeerLogin:
    """The credentials of this broker. Changed ones are used for new connections."""

    def __init__(self) -> None:
        self._settings: SaslSettings | None = None
        self.principal: Principal | None = None
        """Principal of this broker, or None if it has no credentials or does not know it."""
        self.authenticate: Authenticate | None = None
        """Authenticates a connection, or None if the listener for brokers does not use SASL."""

    def use_settings(self, settings: SaslSettings | None) -> None:
        """Use the settings of the listener for brokers.

        Args:
            settings: The settings; None if the listener does not use SASL.
        """
        if settings == self._settings:
            return
        self._settings = settings
        self.principal = self.authenticate = None
        if settings is None:
            return
        name, module = settings.inter_broker_mechanism, settings.inter_broker_login()
        login = LOGINS[name](name, module) if name in LOGINS and module is not None else None
        if login is not None:
            self.principal = login.principal
            self.authenticate = sasl.authenticator(login.mechanism, TIMEOUT_S)

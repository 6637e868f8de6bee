"""TLS contexts of the listeners, which are replaced when their files or properties change.

A new context applies to new connections; existing ones keep theirs. A file that cannot be used is
logged, and the last usable context stays: a certificate that is being written must not stop a
broker. As in Kafka, a new certificate must keep the distinguished name and the subject alternative
names of the old one, unless `ssl.allow.dn.changes` and `ssl.allow.san.changes` allow otherwise.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.base.config.tls_settings import TlsSettings
from ottla.base.errors import UserError
from ottla.core.security.principal import (
    MappingRules,
    NoMatchingRule,
    Principal,
    distinguished_name,
)
from ottla.net.tls import (
    Certificate,
    certificate_of,
    client_context,
    file_stamps,
    server_context,
)

logger = logging.getLogger(__name__)

EXPIRY_WARNING_S = 30 * 86_400
WARN_EVERY_S = 86_400


class _Loaded(NamedTuple):
    settings: TlsSettings
    stamps: tuple[object, ...]
    server: ssl.SSLContext
    client: ssl.SSLContext
    rules: MappingRules
    certificate: Certificate


Changes: TypeAlias = dict[str, tuple[_Loaded, UserError | None]]
"""Listeners with changed contexts. With an error, the contexts are the ones that are kept."""


class TlsContexts:
    """The contexts of all TLS listeners of a broker."""

    def __init__(
        self, settings: Mapping[str, TlsSettings], *, now: Callable[[], float] = time.time
    ) -> None:
        """Load the contexts.

        Args:
            settings: Settings of each TLS listener, by name.
            now: Source of the time in seconds since 1970.

        Raises:
            UserError: A setting or a file cannot be used.
        """
        self._now = now
        self._loaded = {name: _load(each) for name, each in settings.items()}
        self._warned_at: dict[str, float] = {}

    def report(self) -> None:
        """Log how long each certificate is valid."""
        for name, loaded in self._loaded.items():
            when = _utc(loaded.certificate.expires_at)
            logger.info("the TLS certificate of listener %s is valid until %s", name, when)

    def has(self, listener: str) -> bool:
        return listener in self._loaded

    def server(self, listener: str) -> ssl.SSLContext:
        """Return the context for the next connection to a listener."""
        return self._loaded[listener].server

    def certificate(self, listener: str) -> Certificate:
        """Return the certificate of a listener."""
        return self._loaded[listener].certificate

    def client(self, listener: str) -> ssl.SSLContext | None:
        """Return the context for connections to this listener of other brokers."""
        loaded = self._loaded.get(listener)
        return None if loaded is None else loaded.client

    def rules(self, listener: str) -> MappingRules:
        """Return the rules that map the names of client certificates to principals."""
        return self._loaded[listener].rules

    def own_principal(self, listener: str) -> Principal | None:
        """Return the principal that other brokers derive from this broker's certificate, or None if
        they would reject it."""
        loaded = self._loaded[listener]
        try:
            return loaded.rules.principal_of(distinguished_name(loaded.certificate.attributes))
        except NoMatchingRule:
            return None

    def changes(self, settings: Mapping[str, TlsSettings]) -> Changes:
        """Load what has changed since the contexts were loaded. May run in any thread.

        Args:
            settings: The current settings of each TLS listener, by name.

        Returns:
            The new contexts, or why they cannot be used, by listener.
        """
        found: Changes = {}
        for name, before in self._loaded.items():
            stamps = file_stamps(settings[name])
            if settings[name] == before.settings and stamps == before.stamps:
                continue
            try:
                loaded = _load(settings[name])
                _check_replacement(before, loaded)
            except UserError as error:
                found[name] = before._replace(settings=settings[name], stamps=stamps), error
            else:
                found[name] = loaded, None
        return found

    def apply(self, changes: Changes) -> None:
        """Use changed contexts, and warn of certificates that expire soon."""
        for name, (loaded, error) in changes.items():
            self._loaded[name] = loaded
            self._warned_at.pop(name, None)
            if error is not None:
                logger.error("listener %s keeps its TLS certificates: %s", name, error)
            else:
                when = _utc(loaded.certificate.expires_at)
                logger.info("listener %s uses changed TLS certificates, valid until %s", name, when)
        for name in self._loaded:
            self._warn_of_expiry(name)

    def _warn_of_expiry(self, name: str) -> None:
        certificate, now = self._loaded[name].certificate, self._now()
        left_s = certificate.expires_at - now
        if left_s > EXPIRY_WARNING_S or now < self._warned_at.get(name, 0.0) + WARN_EVERY_S:
            return
        self._warned_at[name] = now
        when = _utc(certificate.expires_at)
        tense = "expires" if left_s > 0 else "expired"
        logger.warning("the TLS certificate of listener %s %s at %s", name, tense, when)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _load(settings: TlsSettings) -> _Loaded:
    stamps = file_stamps(settings)
    rules = MappingRules.parse(
        settings.principal_mapping_rules, settings.name_of("principal.mapping.rules")
    )
    context = server_context(settings)
    return _Loaded(
        settings, stamps, context, client_context(settings), rules, certificate_of(settings)
    )


def _check_replacement(before: _Loaded, after: _Loaded) -> None:
    old, new, settings = before.certificate, after.certificate, after.settings
    if old.subject != new.subject and not settings.allow_dn_changes:
        raise UserError(
            f"The new certificate is for {new.subject} and the current one for {old.subject}. Set "
            f"{settings.name_of('allow.dn.changes')}=true to allow this."
        )
    missing = sorted(old.names - new.names)
    if missing and not settings.allow_san_changes:
        raise UserError(
            f"The new certificate lacks the subject alternative names {', '.join(missing)}. Set "
            f"{settings.name_of('allow.san.changes')}=true to allow this."
        )

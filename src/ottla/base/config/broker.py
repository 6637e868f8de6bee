"""The configuration of a broker: its layers and its effective values.

Values come in layers, and later layers win: Kafka's defaults, the file and command line with
which the broker started (static), changes at run time for all brokers (dynamic default), and for
this one (dynamic broker). A `BrokerConfig` is immutable. A change at run time creates a new one
with `with_dynamic`, always from the static layer, so that a removed change leaves no trace.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from ottla.base.config.broker_attributes import BrokerAttributes
from ottla.base.config.broker_consistency import check_together
from ottla.base.config.broker_table import BROKER, CHAINS, broker_key, listener_override
from ottla.base.config.definition import ConfigError, format_value
from ottla.base.config.listener import (
    Listener,
    SecurityProtocol,
    check_advertised,
    check_ports,
    client_listeners,
    parse_protocols,
)
from ottla.base.config.oauthbearer_settings import OAuthBearerSettings
from ottla.base.config.sasl_settings import SaslSettings, listener_sasl
from ottla.base.config.secrets import HIDDEN
from ottla.base.config.tls_settings import TlsSettings, listener_tls
from ottla.base.config.unused_properties import (
    no_effect,
    not_needed,
    not_released,
    refusal,
    shown_only,
    unused_items,
)
from ottla.base.config.validator import Value
from ottla.base.config.zookeeper_security import without_tls, zookeeper_security
from ottla.base.errors import ErrorCode, KafkaError, UserError

__all__ = ["BROKER", "BrokerConfig", "Listener", "Notice"]


class Notice(NamedTuple):
    """A message about the configuration for the user, with a level of `logging`."""

    level: int
    text: str


class BrokerConfig(BrokerAttributes):
    """The effective configuration of a broker. `BrokerConfig()` has Kafka's defaults."""

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> None:
        """Parse and check the layers. Use `from_properties` for properties from a user.

        Args:
            static: Properties from the configuration file and the command line.
            dynamic_default: Properties that were changed at run time for all brokers.
            dynamic_broker: Properties that were changed at run time for this broker.

        Raises:
            ConfigError: A value is invalid or contradicts another.
        """
        self.static = dict(static or {})
        self.dynamic_default = dict(dynamic_default or {})
        self.dynamic_broker = dict(dynamic_broker or {})
        texts = {**self.static, **self.dynamic_default, **self.dynamic_broker}
        parsed = BROKER.parse(texts)
        if parsed.errors:
            raise parsed.errors[0]
        self._values: dict[str, Value] = {key.name: key.default for key in BROKER}
        self._values.update(parsed.values)
        self._overrides = _listener_overrides(texts)
        self._resolve_node_id(parsed.values)
        self._set_attributes()
        check_together(self, texts)
        self._frozen = True

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Create a configuration from properties that a user provided.

        Raises:
            UserError: A property is invalid or not supported. The message is a sentence.
        """
        for name, text in properties.items():
            sentence = refusal(name, text)
            if sentence is not None:
                raise UserError(sentence)
        errors = BROKER.parse(properties).errors
        if errors:
            others = ", ".join(error.name for error in errors[1:])
            raise UserError(f"{errors[0]}{f' Also invalid: {others}.' if others else ''}")
        try:
            return cls(properties)
        except ConfigError as error:
            raise UserError(str(error)) from None

    @classmethod
    def problems(cls, properties: Mapping[str, str]) -> list[str]:
        """Return a sentence for everything that `from_properties` would reject."""
        found = [
            sentence
            for name, text in properties.items()
            if (sentence := refusal(name, text)) is not None
        ]
        found += map(str, BROKER.parse(properties).errors)
        if not found:
            try:
                cls(properties)
            except ConfigError as error:
                found.append(str(error))
        return found

    def with_dynamic(
        self, default_overrides: Mapping[str, str], broker_overrides: Mapping[str, str]
    ) -> BrokerConfig:
        """Return this configuration with exactly these changes at run time.

        Args:
            default_overrides: Properties for all brokers.
            broker_overrides: Properties for this broker.

        Raises:
            KafkaError: INVALID_REQUEST, as in Kafka, if a value is invalid.
        """
        if default_overrides == self.dynamic_default and broker_overrides == self.dynamic_broker:
            return self
        try:
            return BrokerConfig(self.static, default_overrides, broker_overrides)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def value(self, name: str) -> Value:
        """Return the parsed value of a property, or None if it is not set and has no default."""
        return self._values[name]

    def text(self, name: str) -> str | None:
        """Return the value of a property in Kafka's text form."""
        return format_value(self._values[name])

    def listener_limits(self, name: str) -> dict[str, int]:
        """Return the values of a numeric property that are set for one listener, by listener."""
        return {
            listener: value
            for listener, values in self._overrides.items()
            if isinstance(value := values.get(name), int)
        }

    @property
    def oauthbearer_settings(self) -> frozenset[OAuthBearerSettings]:
        """The settings of all listeners that accept OAUTHBEARER tokens."""
        return frozenset(
            mechanism.oauthbearer
            for sasl in self.sasl_settings.values()
            for mechanism in sasl.mechanisms
            if mechanism.oauthbearer is not None
        )

    def notices(self) -> list[Notice]:
        """Return messages about static properties that are unknown or have no effect."""
        found = []
        for name in self.static:
            if reason := shown_only(name):
                found.append(Notice(logging.INFO, f"{name} has no effect: {reason}."))
            elif reason := self._misplaced(name) or (
                not_released(name) if name in BROKER else None
            ):
                found.append(Notice(logging.WARNING, f"{name} has no effect: {reason}."))
            elif name in BROKER:
                found += self._unused_items(name)
            elif listener_override(name):
                continue
            elif reason := not_needed(name):
                found.append(Notice(logging.INFO, f"{name} is not needed: {reason}."))
            elif reason := no_effect(name):
                found.append(Notice(logging.WARNING, f"{name} has no effect: {reason}."))
            else:
                found.append(Notice(logging.WARNING, _unknown_property(name)))
        return found + self._zookeeper_notices()

    def _zookeeper_notices(self) -> list[Notice]:
        found = [
            Notice(
                logging.WARNING,
                f"{name} has no effect: zookeeper.ssl.client.enable is not true.",
            )
            for name in without_tls(self.static)
        ]
        if self.zookeeper_security.sends_password_in_plain_text:
            text = (
                "zookeeper.auth.scheme=digest sends the password in plain text: set "
                "zookeeper.ssl.client.enable=true, or zookeeper.auth.scheme=sasl."
            )
            found.append(Notice(logging.WARNING, text))
        return found

    def _misplaced(self, name: str) -> str | None:
        """Return why a property has no effect for all listeners or for all mechanisms, or None."""
        override = listener_override(name)
        if (name if override is None else override[1].name) == "sasl.jaas.config":
            return "brokers read listener.name.<listener>.<mechanism>.sasl.jaas.config"
        protocols = self.listener_protocols.values()
        if (
            name == "ssl.client.auth"
            and SecurityProtocol.SASL_SSL in protocols
            and SecurityProtocol.SSL not in protocols
        ):
            return "SASL_SSL listeners read listener.name.<listener>.ssl.client.auth"
        return None

    def _unused_items(self, name: str) -> list[Notice]:
        items = self._values[name]
        unused = unused_items(name, items) if isinstance(items, list) else {}
        return [
            Notice(logging.WARNING, f"{item} in {name} has no effect: {reason}.")
            for item, reason in unused.items()
        ]

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_frozen", False):
            _refuse_change(name)
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        texts = {**self.static, **self.dynamic_default, **self.dynamic_broker}
        shown = {name: text if _is_public(name) else HIDDEN for name, text in texts.items()}
        return f"BrokerConfig({shown!r})"

    def _resolve_node_id(self, explicit: Mapping[str, Value]) -> None:
        if "broker.id" in explicit and "node.id" not in explicit:
            broker_id = explicit["broker.id"]
            if isinstance(broker_id, int) and broker_id >= 0:
                self._values["node.id"] = broker_id
        elif "broker.id" in explicit and explicit["broker.id"] != explicit["node.id"]:
            raise ConfigError("broker.id", explicit["broker.id"], "must be the same as node.id")
        self._values["broker.id"] = self._values["node.id"]

    def _set_attributes(self) -> None:
        for key in BROKER:
            setattr(self, key.attribute, self._values[key.name])
        for head, chain in CHAINS.items():
            values = [synonym.convert(self._values[synonym.name]) for synonym in chain]
            in_force = next(value for value in values if value is not None)
            setattr(self, BROKER[head].attribute, in_force)
        # Absolute, as Kafka reports them, because tools may run in another directory.
        self.log_dirs = [os.path.abspath(each) for each in self.log_dirs or self.log_dir]
        self.listeners = self._client_listeners()
        self.listener_protocols = parse_protocols(
            self.listeners, self.listener_security_protocol_map
        )
        self.tls_settings = self._tls_settings()
        self.zookeeper_security = zookeeper_security(self._values)
        self.sasl_settings = self._sasl_settings()
        self.inter_broker_listener = self._inter_broker_listener()
        self.advertised_listeners = self._advertised_listeners()

    def _client_listeners(self) -> list[Listener]:
        listeners = self._for_clients("listeners")
        if not listeners:
            configured = self.text("listeners")
            raise ConfigError("listeners", configured, "must have a listener for clients")
        check_ports("listeners", listeners)
        return listeners

    def _tls_settings(self) -> dict[str, TlsSettings]:
        return {
            name: listener_tls(name, protocol, self._values, self._overrides.get(name, {}))
            for name, protocol in self.listener_protocols.items()
            if protocol.has_tls
        }

    def _sasl_settings(self) -> dict[str, SaslSettings]:
        return {
            name: listener_sasl(name, self._values, self._overrides.get(name, {}))
            for name, protocol in self.listener_protocols.items()
            if protocol.has_sasl
        }

    def _inter_broker_listener(self) -> str:
        """Return the name of the listener for other brokers: by default the one of the protocol in
        `security.inter.broker.protocol`, or the first if that is not set either."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        wanted = SecurityProtocol[self.security_inter_broker_protocol]
        names = [name for name, each in self.listener_protocols.items() if each is wanted]
        if wanted.name in names:
            return wanted.name
        return names[0] if names else self.listeners[0].name

    def _advertised_listeners(self) -> list[Listener]:
        advertised = self._for_clients("advertised.listeners") or self.listeners
        check_advertised(self.listeners, advertised)
        return [
            each if each.host else each._replace(host=_canonical_host_name()) for each in advertised
        ]

    def _for_clients(self, name: str) -> list[Listener]:
        items = self._values[name]
        if not isinstance(items, list):
            return []
        return client_listeners(name, items, self.static.get("controller.listener.names", ""))


def _listener_overrides(texts: Mapping[str, str]) -> dict[str, dict[str, Value]]:
    """Return the values of properties that are set for one listener, by listener and name."""
    found: dict[str, dict[str, Value]] = {}
    for name, text in texts.items():
        override = listener_override(name)
        key = broker_key(name)
        if override is not None and key is not None:
            listener, base = override
            found.setdefault(listener, {})[base.name] = key.parse(text)
    return found


def _is_public(name: str) -> bool:
    """Return whether the value of a property cannot be a secret."""
    key = broker_key(name)
    return key is not None and not key.sensitive


@functools.cache
def _canonical_host_name() -> str:
    """Return the fully qualified name of the machine, which Kafka advertises for an empty host.

    The result is cached because the lookup may query DNS, and every dynamic change of the
    configuration creates a new BrokerConfig.
    """
    name = socket.getfqdn()
    # A hosts file may name the machine next to localhost, which clients must not connect to.
    return socket.gethostname() if name.startswith("localhost") else name


def _unknown_property(name: str) -> str:
    nearest = BROKER.nearest(name)
    hint = f"; did you mean {nearest}?" if nearest else "."
    return f"{name} is not a known property and has no effect{hint}"


def _refuse_change(name: str) -> NoReturn:
    raise AttributeError(f"BrokerConfig is immutable; use with_dynamic to set {name}")

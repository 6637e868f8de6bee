"""How a client's properties are given, and what becomes of them.

The same names everywhere: Kafka's. Python keywords write them with underscores
(`linger_ms=5` is `linger.ms=5`), a mapping or a properties file with dots; values may be texts or
Python values. A keyword that no client knows is an error that names the nearest; in a mapping or a
file it is a warning, because profiles are shared between programs, and a property that another kind
of client has is not even that.

A class of properties is a frozen dataclass whose fields are made by `prop`: the field is the typed
value, its metadata the definition."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from typing import Any, Self

from ottla.base.config.definition import (
    INT_MAX,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    split_list,
)
from ottla.base.config.properties import load_properties
from ottla.base.config.validator import AtLeast, Between, NonEmpty, OneOf, Validator, Value
from ottla.client.errors import InvalidConfig

logger = logging.getLogger(__name__)

Profile = str | os.PathLike[str] | Mapping[str, Any]
"""A properties file, or its contents as a mapping."""

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def prop(type_: ConfigType, default: Value, doc: str, validator: Validator | None = None) -> Any:
    metadata = {"type": type_, "doc": doc, "validator": validator}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    # Secrets stay out of logs.
    shown = type_ is not ConfigType.PASSWORD
    return dataclasses.field(default=default, metadata=metadata, repr=shown)


def milliseconds(default: int, doc: str, minimum: int = 0) -> Any:
    return prop(ConfigType.INT, default, doc, Between(minimum, INT_MAX))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommonConfig:
    """What every client has."""

    bootstrap_servers: list[str] = prop(
        ConfigType.LIST, ["localhost:9092"], "Brokers to ask first, as host:port.", NonEmpty()
    )
    client_id: str = prop(ConfigType.STRING, "ottla", "A name for the broker's logs and quotas.")
    client_rack: str = prop(ConfigType.STRING, "", "Where this client is; brokers near are better.")
    request_timeout_ms: int = milliseconds(30_000, "How long to wait for an answer.", 1)
    retry_backoff_ms: int = milliseconds(100, "Pause before the first retry.")
    retry_backoff_max_ms: int = milliseconds(1_000, "The longest pause between retries.")
    reconnect_backoff_ms: int = milliseconds(50, "Pause before connecting again.")
    reconnect_backoff_max_ms: int = milliseconds(1_000, "The longest pause between connects.")
    socket_connection_setup_timeout_ms: int = milliseconds(
        10_000, "How long a connection may take to be ready.", 1
    )
    connections_max_idle_ms: int = milliseconds(
        540_000, "Connections unused for so long are closed."
    )
    metadata_max_age_ms: int = milliseconds(
        300_000, "How long what brokers said of topics is believed without asking again.", 1
    )
    default_api_timeout_ms: int = milliseconds(
        60_000, "How long a call that names no timeout may take, retries included.", 1
    )
    security_protocol: str = prop(
        ConfigType.STRING, "PLAINTEXT", "How to talk to brokers.", OneOf(SECURITY_PROTOCOLS)
    )
    sasl_mechanism: str = prop(
        ConfigType.STRING, "PLAIN", "How to prove who we are.", OneOf(SASL_MECHANISMS)
    )
    sasl_username: str = prop(ConfigType.STRING, "", "The user for SASL.")
    sasl_password: str = prop(ConfigType.PASSWORD, "", "The user's password for SASL.")
    sasl_jaas_config: str = prop(
        ConfigType.PASSWORD, "", "User and password as Java's clients are given them."
    )
    ssl_ca_location: str = prop(
        ConfigType.STRING, "", "PEM file of the authorities to trust, instead of the system's."
    )
    ssl_truststore_location: str = prop(
        ConfigType.STRING, "", "The same by Java's name; its ssl.truststore.type must be PEM."
    )
    ssl_truststore_type: str = prop(ConfigType.STRING, "PEM", "Only PEM is read.", OneOf(("PEM",)))
    ssl_certificate_location: str = prop(
        ConfigType.STRING, "", "PEM file with the client's own certificate."
    )
    ssl_key_location: str = prop(ConfigType.STRING, "", "PEM file with the client's own key.")
    ssl_key_password: str = prop(ConfigType.PASSWORD, "", "The password of that key.")
    ssl_endpoint_identification_algorithm: str = prop(
        ConfigType.STRING, "https", "Empty: do not check that a certificate names its host.",
        OneOf(("https", "")),
    )  # fmt: skip

    @classmethod
    def of(
        cls, bootstrap: str | list[str] | None, profile: Profile | None, keywords: Mapping[str, Any]
    ) -> Self:
        """The configuration of a client. Keywords win over the profile; `bootstrap` over both."""
        texts = _from_profile(cls, profile)
        texts.update(_from_keywords(cls, keywords))
        if bootstrap is not None:
            texts["bootstrap.servers"] = bootstrap
        table = table_of(cls)
        values: dict[str, Any] = {}
        for name, value in texts.items():
            key = table[name]
            try:
                values[key.attribute] = key.parse(_as_text(value))
            except ConfigError as error:
                raise InvalidConfig(str(error)) from None
        config = cls(**values)
        config.check()
        return config

    def check(self) -> None:
        """Raises InvalidConfig for values that exclude each other."""
        for server in self.bootstrap_servers:
            parse_server(server)


def parse_server(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port` or `LISTENER://host:port`."""
    _, _, address = text.rpartition("://")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidConfig(f"{text!r} in bootstrap.servers must look like host:port.")
    return host, int(port)


_tables: dict[str, ConfigTable] = {}


def table_of(cls: type[CommonConfig]) -> ConfigTable:
    """The definitions of a class's properties, made once."""
    kind = cls.__qualname__
    if kind not in _tables:
        _tables[kind] = _make_table(cls)
    return _tables[kind]


def _make_table(cls: type[CommonConfig]) -> ConfigTable:
    keys = [
        ConfigKey(
            name=field.name.replace("_", "."),
            default=None if field.default is dataclasses.MISSING else field.default,
            **field.metadata,
        )
        for field in dataclasses.fields(cls)
    ]
    return ConfigTable(cls.__name__.removesuffix("Config").lower(), keys)


def _from_keywords(cls: type[CommonConfig], keywords: Mapping[str, Any]) -> dict[str, Any]:
    table = table_of(cls)
    found: dict[str, Any] = {}
    for keyword, value in keywords.items():
        name = keyword.replace("_", ".")
        if name not in table:
            raise InvalidConfig(f"There is no property {name}{_instead(table, name)}")
        if value is not None:
            found[name] = value
    return found


def _from_profile(cls: type[CommonConfig], profile: Profile | None) -> dict[str, Any]:
    if profile is None:
        return {}
    if not isinstance(profile, Mapping):
        profile = load_properties(os.fspath(profile))
    table = table_of(cls)
    found: dict[str, Any] = {}
    for name, value in profile.items():
        if name in table:
            if value is not None:
                found[name] = value
        elif not any(name in table_of(other) for other in _all_kinds(CommonConfig)):
            logger.warning("There is no property %s%s", name, _instead(table, name))
    return found


def _all_kinds(cls: type[CommonConfig]) -> list[type[CommonConfig]]:
    return [cls, *(kind for sub in cls.__subclasses__() for kind in _all_kinds(sub))]


def _instead(table: ConfigTable, name: str) -> str:
    nearest = table.nearest(name)
    return "." if nearest is None else f"; did you mean {nearest}?"


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


__all__ = [
    "AtLeast",
    "Between",
    "CommonConfig",
    "ConfigType",
    "OneOf",
    "Profile",
    "milliseconds",
    "parse_server",
    "prop",
    "split_list",
    "table_of",
]

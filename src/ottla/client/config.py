"""Client properties: how they are given, validated and stored.

Properties have Kafka's names. Keyword arguments use underscores (`linger_ms=5`); properties files
and a dictionary as the first argument use dots (`linger.ms=5`). `ottla.client.properties` has the
types of the keyword arguments. Values may be strings or Python values. librdkafka's names for the
same properties are accepted, too (`ottla.client.librdkafka`).

An unknown keyword or dictionary key raises an error that suggests the closest known name. In a
profile, which several programs may share, an unknown property is only logged as a warning, and a
property of another kind of client is ignored.

A configuration class is a frozen dataclass whose fields are created by `prop`: the field holds the
typed value, its metadata the definition."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

from ottla.base.config.definition import (
    INT_MAX,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    split_list,
)
from ottla.base.config.validator import AtLeast, Between, NonEmpty, OneOf, Validator, Value
from ottla.client.errors import InvalidConfig
from ottla.client.librdkafka import ALIASES, remedy
from ottla.client.profile import default_profile, layered, load_profile
from ottla.client.properties import ConsumerProperties, ProducerProperties
from ottla.client.token_provider import TokenProvider

logger = logging.getLogger(__name__)

Profile = str | os.PathLike[str] | Mapping[str, Any]
"""A properties file, or its contents as a mapping."""

Bootstrap = str | list[str] | Mapping[str, Any]
"""The brokers to connect to first, or a dictionary of properties: `{"bootstrap.servers": "…"}`."""

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORE_TYPES = ("JKS", "PKCS12", "PEM")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
LOGIN_HANDLERS = ("", f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
                  f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler")  # fmt: skip
CALLBACK = "oauth_cb"
"""Name of the argument that is a function. It is a key of confluent-kafka's dictionaries, too."""


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
    """Properties that all clients have."""

    bootstrap_servers: list[str] = prop(
        ConfigType.LIST,
        ["localhost:9092"],
        "Brokers for the initial connection, as host:port.",
        NonEmpty(),
    )
    client_id: str = prop(
        ConfigType.STRING, "ottla", "Name of this client in broker logs and quotas."
    )
    client_rack: str = prop(
        ConfigType.STRING, "", "Rack ID; consumers prefer a replica in the same rack (KIP-392)."
    )
    request_timeout_ms: int = milliseconds(30_000, "Maximum time to wait for a response.", 1)
    retry_backoff_ms: int = milliseconds(100, "Backoff before the first retry.")
    retry_backoff_max_ms: int = milliseconds(1_000, "Maximum backoff between retries.")
    reconnect_backoff_ms: int = milliseconds(50, "Backoff before reconnecting to a broker.")
    reconnect_backoff_max_ms: int = milliseconds(
        1_000, "Maximum backoff between connection attempts."
    )
    socket_connection_setup_timeout_ms: int = milliseconds(
        10_000, "Maximum time to establish a connection.", 1
    )
    connections_max_idle_ms: int = milliseconds(
        540_000, "Idle time after which a connection is closed."
    )
    metadata_max_age_ms: int = milliseconds(
        300_000, "Maximum age of metadata before it is refreshed.", 1
    )
    default_api_timeout_ms: int = milliseconds(
        60_000, "Timeout of calls that specify none, retries included.", 1
    )
    security_protocol: str = prop(
        ConfigType.STRING, "PLAINTEXT", "Protocol for connections to brokers.",
        OneOf(SECURITY_PROTOCOLS, ignore_case=True),
    )  # fmt: skip
    sasl_mechanism: str = prop(
        ConfigType.STRING, "PLAIN", "SASL mechanism for authentication.", OneOf(SASL_MECHANISMS)
    )
    sasl_username: str = prop(ConfigType.STRING, "", "User name for SASL.")
    sasl_password: str = prop(ConfigType.PASSWORD, "", "Password for SASL.")
    sasl_jaas_config: str = prop(
        ConfigType.PASSWORD, "", "User name and password in the JAAS format of Java's clients."
    )
    sasl_oauthbearer_token_endpoint_url: str = prop(
        ConfigType.STRING,
        "",
        "URL of the OAuth 2 token endpoint, or file: URL of a file with a token.",
    )
    sasl_oauthbearer_client_credentials_client_id: str = prop(
        ConfigType.STRING, "", "Client ID for the token endpoint."
    )
    sasl_oauthbearer_client_credentials_client_secret: str = prop(
        ConfigType.PASSWORD, "", "Client secret for the token endpoint."
    )
    sasl_oauthbearer_scope: str = prop(
        ConfigType.STRING, "", "Scope to request from the token endpoint."
    )
    sasl_oauthbearer_extensions: list[str] = prop(
        ConfigType.LIST, [], "SASL extensions for the broker, as key=value pairs."
    )
    sasl_oauthbearer_header_urlencode: bool = prop(
        ConfigType.BOOLEAN,
        False,
        "Whether to URL-encode client ID and secret, as RFC 6749 requires and some servers do not.",
    )
    sasl_oauthbearer_method: str = prop(
        ConfigType.STRING,
        "default",
        "librdkafka's choice of the token's source: oidc for the token endpoint.",
        OneOf(("default", "oidc"), ignore_case=True),
    )
    sasl_oauthbearer_config: str = prop(
        ConfigType.STRING, "", "Text that is passed to the function oauth_cb."
    )
    sasl_login_callback_handler_class: str = prop(
        ConfigType.STRING,
        "",
        "Class of Java's clients that uses the token endpoint, which Ottla does without it.",
        OneOf(LOGIN_HANDLERS),
    )
    sasl_login_connect_timeout_ms: int = milliseconds(
        10_000, "Time for the connection to the token endpoint, as part of the whole request.", 1
    )
    sasl_login_read_timeout_ms: int = milliseconds(
        10_000, "Time for the response of the token endpoint, as part of the whole request.", 1
    )
    sasl_login_retry_backoff_ms: int = milliseconds(
        100, "Backoff before the first retry of a request for a token."
    )
    sasl_login_retry_backoff_max_ms: int = milliseconds(
        10_000, "Maximum backoff between requests for a token."
    )
    sasl_login_refresh_window_factor: float = prop(
        ConfigType.DOUBLE, 0.8, "Share of a token's lifetime after which it is replaced.",
        Between(0.5, 1.0),
    )  # fmt: skip
    sasl_login_refresh_window_jitter: float = prop(
        ConfigType.DOUBLE,
        0.05,
        "Maximum random addition to that share, so that clients do not refresh at once.",
        Between(0.0, 0.25),
    )
    sasl_login_refresh_min_period_seconds: int = prop(
        ConfigType.INT, 60, "Minimum time before a token is replaced, in seconds.", Between(0, 900)
    )
    sasl_login_refresh_buffer_seconds: int = prop(
        ConfigType.INT,
        300,
        "Time before its expiry at which a token is replaced at the latest, in seconds.",
        Between(0, 3600),
    )
    https_ca_location: str = prop(
        ConfigType.STRING,
        "",
        "PEM file with trusted CA certificates for the token endpoint, as in librdkafka.",
    )
    https_ca_pem: str = prop(
        ConfigType.STRING, "", "Trusted CA certificates for the token endpoint in PEM format."
    )
    ssl_protocol: str = prop(
        ConfigType.STRING, "TLSv1.3", "Newest version of TLS: TLSv1.2 or TLSv1.3.",
        OneOf(("TLSv1.3", "TLSv1.2", "TLS")),
    )  # fmt: skip
    ssl_enabled_protocols: list[str] = prop(
        ConfigType.LIST, ["TLSv1.2", "TLSv1.3"], "Versions of TLS that the client accepts."
    )
    ssl_cipher_suites: list[str] = prop(
        ConfigType.LIST,
        [],
        "Cipher suites of TLS 1.2, by their IANA names, instead of OpenSSL's defaults.",
    )
    ssl_keystore_type: str = prop(
        ConfigType.STRING,
        "JKS",
        "Format of the key store: PEM or PKCS12. With JKS, Kafka's default, the client recognizes "
        "the format by the content; stores in Java's JKS format must be converted.",
        OneOf(STORE_TYPES),
    )
    ssl_keystore_location: str = prop(
        ConfigType.STRING,
        "",
        "File with the client's private key and certificate chain. New connections use the file "
        "as it is when they are opened.",
    )
    ssl_keystore_password: str = prop(
        ConfigType.PASSWORD, "", "Password of a key store in PKCS12 format."
    )
    ssl_keystore_key: str = prop(
        ConfigType.PASSWORD, "", "Private key of the client in PEM format, instead of a file."
    )
    ssl_keystore_certificate_chain: str = prop(
        ConfigType.PASSWORD,
        "",
        "Certificate chain of the client in PEM format, together with ssl.keystore.key.",
    )
    ssl_key_password: str = prop(ConfigType.PASSWORD, "", "Password of the private key.")
    ssl_truststore_type: str = prop(
        ConfigType.STRING,
        "JKS",
        "Format of the trust store, as for ssl.keystore.type.",
        OneOf(STORE_TYPES),
    )
    ssl_truststore_location: str = prop(
        ConfigType.STRING,
        "",
        "File with trusted CA certificates, instead of the system's.",
    )
    ssl_truststore_password: str = prop(
        ConfigType.PASSWORD, "", "Password of a trust store in PKCS12 format."
    )
    ssl_truststore_certificates: str = prop(
        ConfigType.PASSWORD, "", "Trusted CA certificates in PEM format, instead of a file."
    )
    ssl_ca_location: str = prop(
        ConfigType.STRING, "", "PEM file with trusted CA certificates, as in librdkafka."
    )
    ssl_certificate_location: str = prop(
        ConfigType.STRING, "", "PEM file with the client's certificate chain, as in librdkafka."
    )
    ssl_key_location: str = prop(
        ConfigType.STRING,
        "",
        "PEM file with the client's private key, as in librdkafka, if it is not in the file of "
        "ssl.certificate.location.",
    )
    ssl_endpoint_identification_algorithm: str = prop(
        ConfigType.STRING, "https",
        "Host name verification of certificates: https, or empty or none to disable it.",
        OneOf(("https", "none", ""), ignore_case=True),
    )  # fmt: skip

    oauth_cb: TokenProvider | None = dataclasses.field(
        default=None,
        metadata={"doc": "Function that returns a token for OAUTHBEARER; see TokenProvider."},
        repr=False,
    )

    arguments: ClassVar[tuple[str, ...]] = ("bootstrap", "profile")
    """Arguments of the client that are not properties. Errors suggest these names, too."""

    @classmethod
    def of(
        cls, bootstrap: Bootstrap | None, profile: Profile | None, keywords: Mapping[str, Any]
    ) -> Self:
        """Return the configuration of a client.

        Args:
            bootstrap: The client's first argument: brokers, which take precedence over all else,
                or a dictionary of properties.
            profile: Properties that are used unless `bootstrap` or `keywords` set them. None
                reads the default profile, if there is one (`ottla.client.profile`).
            keywords: Properties as keyword arguments; they take precedence over dictionaries.

        Raises:
            InvalidConfig: A property does not exist or does not take its value.
        """
        given = _known(cls, bootstrap) if isinstance(bootstrap, Mapping) else {}
        given.update(_known(cls, keywords))
        if profile is None:
            is_named = "bootstrap.servers" in given
            is_named = is_named or (bootstrap is not None and not isinstance(bootstrap, Mapping))
            profile = default_profile(names_brokers=is_named)
        properties = layered(_from_profile(cls, profile), given)
        callback = _callback(keywords, bootstrap, profile)
        if bootstrap is not None and not isinstance(bootstrap, Mapping):
            properties["bootstrap.servers"] = bootstrap
        table = table_of(cls)
        values: dict[str, Any] = {}
        for name, value in properties.items():
            key = table[name]
            try:
                values[key.attribute] = key.parse(_as_text(value))
            except ConfigError as error:
                raise InvalidConfig(str(error)) from None
        config = cls(**values, oauth_cb=callback)
        config.check()
        return config

    def check(self) -> None:
        """Raise InvalidConfig if properties contradict each other."""
        for server in self.bootstrap_servers:
            parse_server(server)


def parse_server(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`, `[v6]:port` or `LISTENER://host:port`."""
    _, _, address = text.rpartition("://")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidConfig(f"{text!r} in bootstrap.servers is invalid. Use the form host:port.")
    return host, int(port)


_KEYWORDS = {
    "producer": ProducerProperties.__optional_keys__,
    "consumer": ConsumerProperties.__optional_keys__,
}
"""Names of the properties of each kind of client, as keyword arguments."""

_tables: dict[str, ConfigTable] = {}


def table_of(cls: type[CommonConfig]) -> ConfigTable:
    """Return the property definitions of a configuration class, which are built only once."""
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
        if field.name != CALLBACK
    ]
    return ConfigTable(cls.__name__.removesuffix("Config").lower(), keys)


def _known(cls: type[CommonConfig], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that are not None, by their Kafka names."""
    found: dict[str, Any] = {}
    for written, value in properties.items():
        if written == CALLBACK:
            continue
        name = _kafka_name(cls, written)
        if name not in table_of(cls):
            raise InvalidConfig(_unknown(cls, written, name))
        if value is not None:
            found[name] = value
    return found


def _from_profile(cls: type[CommonConfig], profile: Profile) -> dict[str, Any]:
    if not isinstance(profile, Mapping):
        profile = load_profile(profile)
    found: dict[str, Any] = {}
    for written, value in profile.items():
        if written == CALLBACK and callable(value):
            continue
        name = _kafka_name(cls, written)
        if name in table_of(cls):
            if value is not None:
                found[name] = value
        elif not _others_with(cls, name):
            logger.warning("%s", _unknown(cls, written, name))
    return found


def _callback(*sources: object) -> TokenProvider | None:
    """Return the function among a client's arguments, dictionaries included."""
    for source in sources:
        found = source.get(CALLBACK) if isinstance(source, Mapping) else None
        if found is None:
            continue
        if not callable(found):
            raise InvalidConfig(f"{CALLBACK} must be a function that returns a token.")
        return cast("TokenProvider", found)
    return None


def _kafka_name(cls: type[CommonConfig], written: object) -> str:
    name = str(written).strip().replace("_", ".")
    return name if name in table_of(cls) else ALIASES.get(name, name)


def _others_with(cls: type[CommonConfig], name: str) -> list[str]:
    """Return the other kinds of clients that have a property."""
    own, keyword = table_of(cls).kind, name.replace(".", "_")
    return [kind for kind, keywords in _KEYWORDS.items() if kind != own and keyword in keywords]


def _unknown(cls: type[CommonConfig], written: object, name: str) -> str:
    """Return the error message for a property that this kind of client does not have."""
    argument = name.replace(".", "_")
    if argument in cls.arguments:
        return f"{written} is an argument of the client, not a property. Write {argument}=…"
    instead = remedy(name, str(written))
    if instead is not None:
        return instead
    table = table_of(cls)
    others = _others_with(cls, name)
    if others:
        return f"{name} is a property of the {others[0]}, not of the {table.kind}."
    candidates = {key.attribute: key.name for key in table}
    candidates |= {each: each for each in cls.arguments}
    nearest = difflib.get_close_matches(argument.lower(), candidates, n=1)
    hint = f"; did you mean {candidates[nearest[0]]}?" if nearest else "."
    return f"Property {name} does not exist{hint}"


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # so that a timeout may be written as 30e3
    return str(value)


__all__ = [
    "AtLeast",
    "Between",
    "Bootstrap",
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

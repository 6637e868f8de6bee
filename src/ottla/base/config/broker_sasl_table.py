"""Broker properties for SASL.

Most of them can be overridden for one listener, as `listener.name.<name>.<property>` with the name
of the listener in lower case, and some for one mechanism of a listener, as
`listener.name.<name>.<mechanism>.<property>` with the mechanism in lower case, too.
"""

from __future__ import annotations

from ottla.base.config.aliases import (
    CLASS,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    STRING,
)
from ottla.base.config.definition import ConfigKey
from ottla.base.config.validator import AtLeast, KnownClass

GSSAPI = "GSSAPI"
"""Kerberos, Kafka's default mechanism, which Ottla does not have."""
PLAIN = "PLAIN"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
LOGIN_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
"""The mechanisms with which brokers log in to each other."""
SASL_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
"""The mechanisms that listeners support."""

_DEFAULT_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_TOKEN_VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)

SASL_KEYS = [
    ConfigKey(
        "sasl.enabled.mechanisms",
        LIST,
        [GSSAPI],
        f"SASL mechanisms of a listener: {', '.join(SASL_MECHANISMS)}. GSSAPI, the default of "
        "Kafka, is not supported, so a SASL listener needs another value.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        GSSAPI,
        "SASL mechanism of connections to other brokers, if the listener for them uses SASL.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.jaas.config",
        PASSWORD,
        None,
        "Credentials in Java's notation. Brokers read only "
        "listener.name.<listener>.<mechanism>.sasl.jaas.config.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.server.callback.handler.class",
        CLASS,
        None,
        "Java class that checks credentials. Only Kafka's own class for OAUTHBEARER is accepted.",
        KnownClass(_TOKEN_VALIDATORS, "callback handlers are Java code"),
        MEDIUM,
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        INT,
        524_288,
        "Largest request that a client may send before it is authenticated, in bytes.",
        AtLeast(1),
        MEDIUM,
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        LONG,
        0,
        "Time after which a client must authenticate again, in milliseconds. The broker closes the "
        "connections of clients that do not. If 0, only credentials that expire limit it.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "Time by which the broker delays the response to a failed authentication, in milliseconds.",
        AtLeast(0),
        LOW,
    ),
    ConfigKey(
        "principal.builder.class",
        CLASS,
        _DEFAULT_PRINCIPALS,
        "Java class that names the principals of clients. Only Kafka's default is accepted.",
        KnownClass((_DEFAULT_PRINCIPALS,), "principal builders are Java code"),
        MEDIUM,
        PER_BROKER,
    ),
]

SASL_PER_LISTENER = frozenset(
    {
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.server.callback.handler.class",
        "sasl.server.max.receive.size",
        "connections.max.reauth.ms",
        "principal.builder.class",
    }
)
"""Properties that can be overridden for one listener."""

SASL_PER_MECHANISM = frozenset(
    {"sasl.jaas.config", "sasl.server.callback.handler.class", "connections.max.reauth.ms"}
)
"""Properties that can be overridden for one mechanism of a listener."""

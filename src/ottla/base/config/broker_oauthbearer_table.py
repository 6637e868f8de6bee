"""Broker properties for SASL/OAUTHBEARER.

Each of them can be overridden for one listener and mechanism, as
`listener.name.<name>.oauthbearer.<property>`.
"""

from __future__ import annotations

from ottla.base.config.aliases import BOOLEAN, CLASS, HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING
from ottla.base.config.definition import HOUR_MS, ConfigKey
from ottla.base.config.validator import AtLeast, KnownClass

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
VALIDATOR_CLASSES = (f"{_PACKAGE}DefaultJwtValidator", f"{_PACKAGE}BrokerJwtValidator")

OAUTHBEARER_KEYS = [
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        None,
        "URL of the JSON Web Key Set that verifies tokens: https, http or file. The broker fetches "
        "it again at intervals, and when a token names an unknown key. It reads a file again when "
        "it changes.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        HOUR_MS,
        "Interval between fetches of the JSON Web Key Set, in milliseconds.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        100,
        "Time to wait before a failed fetch of the JSON Web Key Set is repeated, in milliseconds. "
        "It doubles with every failure.",
        AtLeast(0),
        LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        10_000,
        "Longest time to wait before a failed fetch of the JSON Web Key Set is repeated, and "
        "shortest time between fetches that tokens with unknown keys cause, in milliseconds.",
        AtLeast(0),
        LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        30,
        "Allowed difference between the clocks of the broker and of the issuer of tokens, in "
        "seconds.",
        AtLeast(0),
        LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        LIST,
        [],
        "Audiences of which a token must have at least one in its claim aud, as a comma-separated "
        "list. Required for OAUTHBEARER unless sasl.oauthbearer.allow.unverified.audience is set.",
        None,
        HIGH,
    ),
    ConfigKey(
        "sasl.oauthbearer.allow.unverified.audience",
        BOOLEAN,
        False,
        "Whether tokens for every audience are accepted if sasl.oauthbearer.expected.audience is "
        "not set. This is insecure.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        None,
        "Issuer that a token must have in its claim iss. Required for OAUTHBEARER unless "
        "sasl.oauthbearer.allow.unverified.issuer is set.",
        None,
        HIGH,
    ),
    ConfigKey(
        "sasl.oauthbearer.allow.unverified.issuer",
        BOOLEAN,
        False,
        "Whether tokens of every issuer are accepted if sasl.oauthbearer.expected.issuer is not "
        "set. This is insecure.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        "scope",
        "Name of the claim with the scopes of a token. If a token has the claim, it must be a "
        "string or a list of strings.",
        None,
        LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        "sub",
        "Name of the claim with the name of the principal.",
        None,
        LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        VALIDATOR_CLASSES[0],
        "Class that validates tokens: DefaultJwtValidator or BrokerJwtValidator of Kafka, which "
        "stand for the validation that is built in.",
        KnownClass(VALIDATOR_CLASSES, "validators are Java code"),
        MEDIUM,
    ),
]

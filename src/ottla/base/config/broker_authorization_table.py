"""Broker properties that decide what clients may do."""

from __future__ import annotations

from ottla.base.config.aliases import BOOLEAN, LOW, STRING
from ottla.base.config.definition import ConfigKey
from ottla.base.config.validator import KnownClass, Principals, one_of

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "ottla",
)
"""Values of `authorizer.class.name`, which all mean the same authorizer."""
JSON = "json"

AUTHORIZATION_KEYS = [
    ConfigKey(
        "authorizer.class.name",
        STRING,
        "",
        "Authorizer that applies ACLs to every request: "
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer, "
        "kafka.security.authorizer.AclAuthorizer or ottla, which are the same. Empty: clients may "
        "do everything.",
        KnownClass(AUTHORIZERS, "authorizers are Java code", may_be_empty=True),
        LOW,
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        "Whether every client may use resources that no ACL matches.",
        None,
        LOW,
    ),
    ConfigKey(
        "authorizer.audit.log.format",
        STRING,
        "text",
        "Format of the lines of the logger kafka.authorizer.logger: text for Kafka's, json for a "
        "JSON object per line.",
        one_of("text", JSON),
        LOW,
    ),
    ConfigKey(
        "super.users",
        STRING,
        "",
        "Principals without restrictions, as a list such as User:admin;User:CN=broker. Brokers "
        "accept them as members of the cluster on the listener for brokers.",
        Principals(),
        LOW,
    ),
]

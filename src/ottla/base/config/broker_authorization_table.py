"""Broker properties that decide what clients may do."""

from __future__ import annotations

from ottla.base.config.aliases import LOW, STRING
from ottla.base.config.definition import ConfigKey
from ottla.base.config.validator import Principals

AUTHORIZATION_KEYS = [
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

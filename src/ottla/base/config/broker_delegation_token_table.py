"""Broker properties for delegation tokens."""

from __future__ import annotations

from ottla.base.config.aliases import LONG, LOW, MEDIUM, PASSWORD
from ottla.base.config.definition import DAY_MS, HOUR_MS, ConfigKey
from ottla.base.config.validator import AtLeast

DELEGATION_TOKEN_KEYS = [
    ConfigKey(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "Secret from which the passwords of delegation tokens are computed. It must be the same "
        "on all brokers. If it is not set or empty, delegation tokens are disabled.",
        None,
        MEDIUM,
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        LONG,
        7 * DAY_MS,
        "Time after which a delegation token can no longer be renewed, in milliseconds.",
        AtLeast(1),
        MEDIUM,
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        LONG,
        DAY_MS,
        "Time after which a delegation token expires if it is not renewed, in milliseconds.",
        AtLeast(1),
        MEDIUM,
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        HOUR_MS,
        "Interval at which the controller removes expired delegation tokens, in milliseconds.",
        AtLeast(1),
        LOW,
    ),
]

"""All broker properties that Ottla supports, and the synonyms among them."""

from __future__ import annotations

import re
from dataclasses import replace

from ottla.base.config.broker_authorization_table import AUTHORIZATION_KEYS
from ottla.base.config.broker_cleaner_table import CLEANER_KEYS, FLUSH_KEYS
from ottla.base.config.broker_delegation_token_table import DELEGATION_TOKEN_KEYS
from ottla.base.config.broker_group_table import GROUP_KEYS
from ottla.base.config.broker_log_table import LOG_KEYS
from ottla.base.config.broker_oauthbearer_table import OAUTHBEARER_KEYS
from ottla.base.config.broker_replication_table import REPLICATION_KEYS
from ottla.base.config.broker_sasl_table import (
    OAUTHBEARER,
    SASL_KEYS,
    SASL_MECHANISMS,
    SASL_PER_LISTENER,
    SASL_PER_MECHANISM,
)
from ottla.base.config.broker_security_table import SSL_KEYS
from ottla.base.config.broker_server_table import SERVER_KEYS
from ottla.base.config.broker_share_table import SHARE_KEYS
from ottla.base.config.broker_transaction_table import TRANSACTION_KEYS
from ottla.base.config.broker_zookeeper_table import ZOOKEEPER_SECURITY_KEYS
from ottla.base.config.definition import ConfigKey, ConfigTable, Synonym
from ottla.base.config.topic_table import TOPIC

BROKER = ConfigTable(
    "broker",
    [
        *SERVER_KEYS,
        *SSL_KEYS,
        *AUTHORIZATION_KEYS,
        *SASL_KEYS,
        *OAUTHBEARER_KEYS,
        *DELEGATION_TOKEN_KEYS,
        *LOG_KEYS,
        *CLEANER_KEYS,
        *FLUSH_KEYS,
        *REPLICATION_KEYS,
        *GROUP_KEYS,
        *TRANSACTION_KEYS,
        *SHARE_KEYS,
        *ZOOKEEPER_SECURITY_KEYS,
    ],
)

_FOR_OAUTHBEARER = frozenset(key.name for key in OAUTHBEARER_KEYS)
_LIMITS = ("max.connections", "max.connection.creation.rate")
PER_LISTENER = SASL_PER_LISTENER.union(_FOR_OAUTHBEARER, (key.name for key in SSL_KEYS), _LIMITS)
"""Properties that can be overridden for one listener, as `listener.name.<name>.<property>`."""

_OF_LISTENER = re.compile(r"listener\.name\.([^.]+)\.(.+)")

CHAINS: dict[str, tuple[Synonym, ...]] = {
    key.synonyms[0].name: key.synonyms for key in TOPIC if len(key.synonyms) > 1
}
"""Properties in milliseconds, each with itself and the coarser ones used if it is not set."""


def listener_override(name: str) -> tuple[str, ConfigKey] | None:
    """Return the listener and the property that a property overrides, or None if it does not.

    The name of the listener is in upper case, as everywhere else. The name of the property begins
    with the mechanism, in lower case, if the property applies to one mechanism only:
    `plain.sasl.jaas.config`.
    """
    match = _OF_LISTENER.fullmatch(name)
    if match is None:
        return None
    if match[2] in PER_LISTENER:
        return match[1].upper(), BROKER[match[2]]
    mechanism, _, rest = match[2].partition(".")
    names = SASL_PER_MECHANISM
    if mechanism.upper() == OAUTHBEARER:
        names |= _FOR_OAUTHBEARER
    if rest not in names or mechanism.upper() not in SASL_MECHANISMS:
        return None
    return match[1].upper(), replace(BROKER[rest], name=match[2])


def broker_key(name: str) -> ConfigKey | None:
    """Return the definition of a broker property or of its override for a listener."""
    override = listener_override(name)
    return BROKER.get(name) if override is None else replace(override[1], name=name)


def broker_synonyms(name: str) -> list[str]:
    """Return all names under which a broker property can be set, by descending priority."""
    for head, chain in CHAINS.items():
        names = [synonym.name for synonym in chain]
        # The scheduler interval is only a default for the flush interval, not a synonym of it.
        if name == head or (name in names and head != "log.flush.interval.ms"):
            return names
    return [name]

"""Findings of `ottla secure check`: what is wrong with the security of a cluster.

The functions decide on values that were read before. A finding is of high severity if somebody
without a password can use or disturb the cluster, or will soon be unable to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from ottla.base.acl import (
    EVERY_USER,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
)
from ottla.base.config.definition import ConfigError, split_list
from ottla.base.config.listener import (
    Listener,
    SecurityProtocol,
    client_listeners,
    parse_protocols,
)
from ottla.base.principal import USER
from ottla.cli.acl_texts import entry_text, resource_text
from ottla.cli.listening import is_loopback
from ottla.cli.secure.policy import ALLOW_EVERYONE, AUTHORIZER, Policy

EXPIRES_SOON = timedelta(days=30)
EXPIRES_NOW = timedelta(days=7)
_CLIENT_AUTH = "ssl.client.auth"
_DEFAULT_LISTENERS = "PLAINTEXT://:9092"
_DEFAULT_PROTOCOLS = ",".join(f"{each.name}:{each.name}" for each in SecurityProtocol)
_HARMLESS = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
_SECRET_NAMES = ("password", "jaas.config", "keystore.key", "secret.key", "client.secret")
"""Ends of the names of secret properties."""


class Severity(Enum):
    """How urgent a finding is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Finding(NamedTuple):
    """Something that is wrong, and what to do about it."""

    severity: Severity
    subject: str
    """The broker, file, user or ACL that it is about."""
    text: str


def of_properties(
    subject: str, properties: Mapping[str, str], *, has_authorizer: bool, is_complete: bool
) -> Iterator[Finding]:
    """Yield findings about the properties of a broker.

    Args:
        subject: Name of the broker or of its configuration.
        properties: The properties.
        has_authorizer: Whether the broker applies ACLs.
        is_complete: Whether a property that is missing has its default. Brokers do not describe
            those of single listeners, and some not those of their authorizer.
    """
    if not has_authorizer:
        yield Finding(
            Severity.HIGH,
            subject,
            f"There is no authorizer, so every client may do everything. Set {AUTHORIZER}.",
        )
    policy = Policy.of_properties(properties, is_complete=is_complete)
    if has_authorizer and policy.allows_without_acls:
        yield Finding(
            Severity.HIGH,
            subject,
            f"{ALLOW_EVERYONE} is set, so every client may use resources without ACLs.",
        )
    if has_authorizer and policy.super_users is not None and not policy.super_users:
        yield Finding(
            Severity.MEDIUM,
            subject,
            "super.users is empty, so no client can repair the ACLs if they lock everybody out.",
        )
    try:
        yield from _of_listeners(subject, properties, is_complete=is_complete)
    except ConfigError as error:
        yield Finding(Severity.MEDIUM, subject, str(error))


def _of_listeners(
    subject: str, properties: Mapping[str, str], *, is_complete: bool
) -> Iterator[Finding]:
    listeners = client_listeners(
        "listeners",
        split_list(properties.get("listeners") or _DEFAULT_LISTENERS),
        properties.get("controller.listener.names", ""),
    )
    protocols = parse_protocols(
        listeners, properties.get("listener.security.protocol.map") or _DEFAULT_PROTOCOLS
    )
    for each in listeners:
        if not is_loopback(each.host):
            protocol = protocols[each.name]
            if protocol is SecurityProtocol.SSL:
                yield from _of_client_auth(subject, each, properties, is_complete=is_complete)
            else:
                yield from _of_protocol(subject, each, protocol)


def _of_protocol(subject: str, listener: Listener, protocol: SecurityProtocol) -> Iterator[Finding]:
    where = f"Other machines can connect to {listener}"
    if protocol is SecurityProtocol.PLAINTEXT:
        text = f"{where} without a password and without encryption. Use SASL_SSL for it."
        yield Finding(Severity.HIGH, subject, text)
    elif not protocol.has_tls:
        text = f"{where}, which is not encrypted. Use SASL_SSL for it."
        yield Finding(Severity.MEDIUM, subject, text)


def _of_client_auth(
    subject: str, listener: Listener, properties: Mapping[str, str], *, is_complete: bool
) -> Iterator[Finding]:
    own = f"listener.name.{listener.name.lower()}.{_CLIENT_AUTH}"
    value = properties.get(own, properties.get(_CLIENT_AUTH, "none"))
    if value == "required":
        return
    if is_complete or own in properties:
        text = (
            f"Other machines can connect to {listener} without a certificate. Set {own}=required."
        )
        yield Finding(Severity.HIGH, subject, text)
    else:
        yield Finding(
            Severity.LOW,
            subject,
            f"Other machines may be able to connect to {listener} without a certificate. The "
            f"broker does not describe {own}, so check its configuration with --config.",
        )


def of_acls(acls: Iterable[AclBinding]) -> Iterator[Finding]:
    """Yield findings about ACLs that allow much."""
    for each in acls:
        subject = f"ACL {entry_text(each)} of {resource_text(each)}"
        if each.permission is not AclPermission.ALLOW:
            continue
        if each.principal == EVERY_USER:
            severity = Severity.MEDIUM if each.operation in _HARMLESS else Severity.HIGH
            yield Finding(severity, subject, "It applies to all users.")
        elif each.operation is AclOperation.ALL and _is_for_all(each):
            text = f"{each.principal} may do everything on all resources of this type."
            yield Finding(Severity.MEDIUM, subject, text)


def _is_for_all(acl: AclBinding) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.name == WILDCARD


def of_users(
    users: Collection[str], acls: Collection[AclBinding], super_users: Collection[str]
) -> Iterator[Finding]:
    """Yield findings about users without ACLs, and ACLs without users.

    Args:
        users: Users with SCRAM credentials.
        acls: All ACLs.
        super_users: Principals without restrictions.
    """
    principals = {f"{USER}:{each}" for each in users}
    with_acls = {each.principal for each in acls}
    for each in sorted(principals - with_acls - {*super_users}):
        text = "The user has no ACLs, and may do nothing. Give it permissions, or remove it."
        yield Finding(Severity.LOW, each, text)
    for each in sorted(with_acls - principals - {EVERY_USER}):
        yield Finding(
            Severity.MEDIUM,
            each,
            "There are ACLs, but no user with a SCRAM password. A new user with this name "
            "gets them. Remove them, unless another mechanism authenticates the user.",
        )


def of_certificate(subject: str, expires_at: datetime, now: datetime) -> Iterator[Finding]:
    """Yield a finding about a certificate that expires soon."""
    left = expires_at - now
    if left > EXPIRES_SOON:
        return
    severity = Severity.MEDIUM if left > EXPIRES_NOW else Severity.HIGH
    verb = "expired" if left < timedelta(0) else "expires"
    text = (
        f"The certificate {verb} on {expires_at:%Y-%m-%d}. Renew it, as `ottla secure renew` does."
    )
    yield Finding(severity, subject, text)


def has_secrets(properties: Mapping[str, str]) -> bool:
    """Return whether properties contain passwords or keys."""
    return any(name.endswith(_SECRET_NAMES) for name in properties)


def of_mode(subject: str, mode: int) -> Iterator[Finding]:
    """Yield a finding about a secret file that others than its owner can read or write."""
    if mode & 0o077:
        text = f"Other users of this machine can use the file (mode {mode:o}). Run: chmod 600"
        yield Finding(Severity.HIGH, subject, f"{text} {subject}")

"""The authorizer of a broker: what clients may do, according to the ACLs of the cluster.

    request ──► handler ──► context.may(WRITE_TOPIC, "orders") ──► Access ──► Authorizer ──► ACLs
                                                                     │
                                                                     └──► audit log

An `Access` answers the questions of one client, that is, of one principal at one address. It
remembers its answers until any ACL changes. All connections of a client share one. A broker without
an authorizer has no `Authorization`, and its connections have no `Access`.

Everything that outlives a request must ask again when ACLs have changed:

| what | how it is asked again |
|---|---|
| remembered answers | `Authorizer.generation` |
| remembered produce requests, partitions of fetch sessions | `Broker.partitions_version` |
| delayed fetches | `DelayedFetch.access_changed` |
| topics that match the patterns of a consumer group | `GroupCoordinator.permissions_changed` |

A request that was forwarded to the controller is decided there, for the principal and the address
of the client in its Envelope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias
from weakref import WeakValueDictionary

from ottla.base.acl import CLUSTER_NAME, AclOperation, AclResourceType
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.broker_authorization_table import JSON
from ottla.broker.audit_log import AuditLog, Question
from ottla.core.security.authorizer import CLUSTER, Authorizer, Resource, canonical_host
from ottla.core.security.peers import parse_principals
from ottla.core.security.permissions import ACT_AS_BROKER, ASKED_BY, WRITE_TOPIC, Permission
from ottla.core.security.principal import ANONYMOUS, Principal
from ottla.metadata.image import AccessDelta
from ottla.wire import schema

CallLater: TypeAlias = Callable[[float, Callable[[], None]], object]

MAX_REMEMBERED = 4096
"""Maximum number of answers that are remembered for one client."""


class Access:
    """The answers to one client."""

    __slots__ = (
        "__weakref__",
        "_answers",
        "_audit",
        "_authorizer",
        "_generation",
        "_writes_some_topic",
        "host",
        "principal",
    )

    def __init__(
        self, authorizer: Authorizer, audit: AuditLog, principal: Principal, host: str
    ) -> None:
        self.principal = str(principal)
        self.host = host
        self._authorizer = authorizer
        self._audit = audit
        self._generation = authorizer.generation
        self._answers: dict[tuple[int, Permission, str], bool] = {}
        self._writes_some_topic: bool | None = None

    def may(self, api: int, permission: Permission, name: str, *, is_audited: bool = True) -> bool:
        """Return whether the client has a permission.

        Args:
            api: The API of the request. `core.security.permissions` must list the permission for
                it.
            permission: The permission.
            name: Name of the resource.
            is_audited: Whether the answer grants or refuses something. False if it only filters a
                listing, or is one of several that would suffice.
        """
        key = (api, permission, name)
        if self._generation != self._authorizer.generation:
            self._forget()
        allowed = self._answers.get(key)
        if allowed is None:
            allowed = self._decide(key)
        if not allowed or self._audit.logs_allowed:
            self._record(key, allowed, is_audited)
        return allowed

    def filter(self, api: int, permission: Permission, names: Iterable[str]) -> list[str]:
        """Return those of many resources that a listing may show to the client.

        The answers are not remembered, so that a listing does not displace others.
        """
        _check_is_listed(api, permission)
        allowed, type = self._authorizer.is_allowed, permission.type
        principal, host, operation = self.principal, self.host, permission.operation
        return [each for each in names if allowed(principal, host, operation, Resource(type, each))]

    def may_write_some_topic(self, api: int) -> bool:
        """Return whether the client may write to at least one topic, which may not exist yet.

        The answer is remembered, because finding it takes longer the more ACLs exist. It leaves no
        trace in the audit log.
        """
        _check_is_listed(api, WRITE_TOPIC)
        if self._generation != self._authorizer.generation:
            self._forget()
        if self._writes_some_topic is None:
            self._writes_some_topic = self._authorizer.is_allowed_on_any(
                self.principal, self.host, AclOperation.WRITE, AclResourceType.TOPIC
            )
        return self._writes_some_topic

    def acts_as_broker(self) -> bool:
        """Return whether the client has the permission that brokers need."""
        return self._authorizer.is_allowed(
            self.principal, self.host, ACT_AS_BROKER.operation, CLUSTER
        )

    def operations(self, type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may do on a resource, as bits."""
        return self._authorizer.allowed_operations(self.principal, self.host, Resource(type, name))

    def _decide(self, key: tuple[int, Permission, str]) -> bool:
        api, permission, name = key
        _check_is_listed(api, permission)
        allowed = self._authorizer.is_allowed(
            self.principal, self.host, permission.operation, Resource(permission.type, name)
        )
        if len(self._answers) >= MAX_REMEMBERED:
            self._answers.clear()
        self._answers[key] = allowed
        return allowed

    def _forget(self) -> None:
        self._answers.clear()
        self._writes_some_topic = None
        self._generation = self._authorizer.generation

    def _record(self, key: tuple[int, Permission, str], allowed: bool, is_audited: bool) -> None:
        api, permission, name = key
        question = Question(self.principal, self.host, api, permission, name, allowed, is_audited)
        self._audit.record(
            question,
            lambda: self._authorizer.explain(
                self.principal, self.host, permission.operation, Resource(permission.type, name)
            ),
        )


class Authorization:
    """The authorizer of a broker, with what it has answered to each client."""

    def __init__(
        self, config: BrokerConfig, time_ms: Callable[[], int], call_later: CallLater | None = None
    ) -> None:
        """Create an authorizer without ACLs.

        Args:
            config: The configuration.
            time_ms: Returns the time in milliseconds since 1970.
            call_later: Calls a function after a number of seconds; by default the event loop.
        """
        self.authorizer = Authorizer(allow_if_no_binding=config.allow_everyone_if_no_acl_found)
        self.audit = AuditLog(
            as_json=config.authorizer_audit_log_format == JSON,
            time_ms=time_ms,
            call_later=call_later or _call_later,
        )
        self._accesses: WeakValueDictionary[tuple[Principal, str], Access] = WeakValueDictionary()

    def access_of(self, principal: Principal, host: str) -> Access:
        """Return the access of a client.

        Args:
            principal: Principal of the client.
            host: Address of the client.
        """
        key = principal, canonical_host(host)
        access = self._accesses.get(key)
        if access is None:
            access = self._accesses[key] = Access(self.authorizer, self.audit, *key)
        return access

    def set_super_users(self, super_users: Iterable[Principal]) -> bool:
        """Replace the principals that may do everything, and return whether they have changed."""
        before = self.authorizer.generation
        self.authorizer.set_super_users(map(str, super_users))
        return self.authorizer.generation != before

    def apply(self, delta: AccessDelta) -> bool:
        """Apply changes of ACLs, and return whether there are any."""
        for binding in delta.acls_removed:
            self.authorizer.remove(binding)
        for binding in delta.acls_added:
            self.authorizer.add(binding)
        return bool(delta.acls_added or delta.acls_removed)


def warnings(config: BrokerConfig) -> Iterator[str]:
    """Yield what is probably wrong with a configuration that has an authorizer."""
    if not config.authorizer_class_name:
        return
    super_users = parse_principals(config.super_users)
    if not super_users:
        yield "super.users is empty, so no client can create the first ACL"
    listener = config.inter_broker_listener
    is_anonymous = config.zookeeper_connect and not _authenticates(config, listener)
    if is_anonymous and ANONYMOUS not in super_users:
        yield (
            f"brokers connect to the listener {listener} without authentication, and are therefore "
            f"{ANONYMOUS}, who needs the permission CLUSTER_ACTION. Use another listener for "
            "brokers, or they cannot replicate"
        )


def _authenticates(config: BrokerConfig, listener: str) -> bool:
    protocol = config.listener_protocols[listener]
    if protocol.has_sasl:
        return True
    return protocol.has_tls and config.tls_settings[listener].client_auth != "none"


def _call_later(delay_s: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(delay_s, call)


def _check_is_listed(api: int, permission: Permission) -> None:
    if permission not in ASKED_BY.get(api, ()):
        raise AssertionError(f"{schema.api_name(api)} asks for {permission}, which is not listed")

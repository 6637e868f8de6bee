"""A check of an API as a request: what is sent, about what, and where the response has an error.

The cases can be run against any broker. They therefore change nothing that other cases use: they
validate only, or fail after the check for another reason, or use up something that is made for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tests.raw_client import Api, RawClient

from ottla.base.acl import CLUSTER_NAME, AclResourceType
from ottla.base.errors import ErrorCode as E
from ottla.core.security.permissions import RULES, Permission, Rule
from ottla.wire import schema

if TYPE_CHECKING:
    from tests.integration.security.authorization.scene import Scene

LEFT_OUT = -100
"""Code for a response that leaves something out, instead of an error."""
DENIALS = {
    E.TOPIC_AUTHORIZATION_FAILED,
    E.GROUP_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
ANYTHING = frozenset(each.value for each in E if each not in DENIALS)
"""Codes of a request that is allowed, and then fails for reasons that are not the point here."""
TOKEN_OWNER = "bob"


class Listener(StrEnum):
    """Listener that a case needs. A broker may have one for several of them."""

    CLIENT = "CLIENT"
    BROKER = "BROKER"
    CONTROLLER = "CONTROLLER"


class Subject(NamedTuple):
    """The resources that a request is about."""

    topic: str
    topic_id: bytes
    group: str
    transactional_id: str
    producer_id: int
    token_id: str
    exists: bool = True
    """False if the resource that the case is about is missing."""
    control: str = ""
    """Topic that the client may see in any case; empty if there is none."""
    control_id: bytes = b""

    def name_of(self, type: AclResourceType) -> str:
        """Return the name of the resource of a type."""
        return {
            AclResourceType.TOPIC: self.topic,
            AclResourceType.GROUP: self.group,
            AclResourceType.CLUSTER: CLUSTER_NAME,
            AclResourceType.TRANSACTIONAL_ID: self.transactional_id,
            AclResourceType.DELEGATION_TOKEN: self.token_id,
            AclResourceType.USER: f"User:{TOKEN_OWNER}",
        }[type]


Body: TypeAlias = Mapping[str, Any]
Ask: TypeAlias = Callable[[RawClient, Subject, int], Iterable[int]]
"""Function that sends a request in a version, and returns the codes at the place of the error."""
Prepare: TypeAlias = "Callable[[Scene, Subject], Subject]"
Codes: TypeAlias = frozenset[int]


@dataclass(frozen=True)
class Case:
    """A request for one rule of an API."""

    api: Api
    rule: Rule
    label: str
    versions: tuple[int, ...]
    ask: Ask
    allowed: Codes | None
    """Codes for a client with permission; None if there is no request about what exists."""
    missing: Codes | None
    """The same, about something missing; None if there is no such request."""
    missing_denied: int
    """Code for a client without permission that asks about something missing."""
    before: tuple[Permission, ...]
    """Permissions that the API asks for before that of the rule, or has to see the error at all."""
    after: tuple[Permission, ...]
    """Permissions that the API asks for after that of the rule."""
    of_any_name: Permission | None
    """Permission that suffices for any resource of its type."""
    subject: AclResourceType
    """Type of the resource that is missing when something is missing."""
    prepare: Prepare | None
    """Makes resources that one request uses up."""
    listener: Listener

    @property
    def needs(self) -> tuple[Permission, ...]:
        return self.rule.needs

    @property
    def denied(self) -> int:
        """Code for a client without permission."""
        return LEFT_OUT if self.rule.error is None else int(self.rule.error)

    def __str__(self) -> str:
        return f"{schema.api_name(self.api)}, {self.label}".replace("_", "-")


def case(
    api: Api,
    when: str,
    *,
    ask: Ask | None = None,
    body: Callable[[Subject, int], Body] | None = None,
    codes: Callable[[Any, Subject, int], Iterable[int]] | None = None,
    label: str = "",
    versions: Iterable[int] | None = None,
    allowed: Iterable[int] | None = (0,),
    missing: Iterable[int] | None = None,
    missing_denied: int | None = None,
    before: tuple[Permission, ...] = (),
    after: tuple[Permission, ...] = (),
    of_any_name: Permission | None = None,
    subject: AclResourceType | None = None,
    prepare: Prepare | None = None,
    listener: Listener = Listener.CLIENT,
) -> Case:
    """Return a case.

    Args:
        api: The API.
        when: The rule in `RULES` that the case is for.
        ask: Sends the request and returns the codes, unless `body` and `codes` do.
        body: Returns the body of the request about a subject, in a version.
        codes: Returns the codes at the place of the error in a response.
        label: Name of the case; by default that of the rule.
        versions: Versions of the request; by default all.
        allowed: Codes if the client has permission.
        missing: Codes if it has permission, and the subject is missing.
        missing_denied: Code if it has none, and the subject is missing; by default the rule's.
        before: Permissions that the API asks for earlier.
        after: Permissions that the API asks for later.
        of_any_name: Permission that suffices for any resource of its type.
        subject: Type of the resource that may be missing; by default that of the permission.
        prepare: Makes resources for each single request.
        listener: Listener that the request is sent to.
    """
    found = [each for each in RULES[api] if each.when == when]
    assert len(found) == 1, f"RULES has {len(found)} rules for {api.name}: {when!r}"
    (rule,) = found
    if ask is None:
        assert body is not None
        assert codes is not None
        ask = _asking(api, body, codes)
    return Case(
        api,
        rule,
        label or when,
        tuple(schema.versions(api) if versions is None else versions),
        ask,
        None if allowed is None else frozenset(map(int, allowed)),
        None if missing is None else frozenset(map(int, missing)),
        (LEFT_OUT if rule.error is None else int(rule.error))
        if missing_denied is None
        else int(missing_denied),
        before,
        after,
        of_any_name,
        rule.needs[-1].type if subject is None else subject,
        prepare,
        listener,
    )


def _asking(
    api: Api,
    body: Callable[[Subject, int], Body],
    codes: Callable[[Any, Subject, int], Iterable[int]],
) -> Ask:
    def ask(client: RawClient, subject: Subject, version: int) -> Iterable[int]:
        return codes(client.call(api, version, **body(subject, version)), subject, version)

    return ask


def since(api: Api, first: int) -> range:
    """Return the versions of an API from one on."""
    return range(max(first, schema.versions(api)[0]), schema.versions(api).stop)


def until(api: Api, stop: int) -> range:
    """Return the versions of an API before one."""
    return range(schema.versions(api)[0], stop)


def shown(is_shown: bool) -> list[int]:
    """Return the codes of a response that may leave something out."""
    return [0 if is_shown else LEFT_OUT]


def without_details(code: int, *details: object) -> list[int]:
    """Return the code of a part of a response, and 0 after a denial that has details.

    Args:
        code: The code.
        details: Fields that a denial leaves empty.
    """
    return [code, 0] if code in DENIALS and any(details) else [code]


def partition_codes(topics: Iterable[Any], partitions: str = "partitions") -> list[int]:
    """Return the codes of all partitions in a response."""
    return [part.error_code for topic in topics for part in getattr(topic, partitions)]

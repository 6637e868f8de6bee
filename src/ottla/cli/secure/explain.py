"""`ottla secure explain`: which rule decides whether a principal may do something.

The decision is that of the brokers' authorizer, over the ACLs that the cluster describes.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass

from ottla.base.acl import (
    CLUSTER_NAME,
    EVERY_USER,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.errors import UserError
from ottla.cli.acl_texts import (
    entry_text,
    operation_name,
    parse_operation,
    parse_resource_type,
    resource_text,
)
from ottla.cli.secure.policy import Policy
from ottla.core.security.authorizer import (
    CLUSTER,
    OPERATIONS,
    Authorizer,
    Reason,
    Resource,
    canonical_host,
)

_OPTIONS = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
    AclResourceType.DELEGATION_TOKEN: "--delegation-token",
    AclResourceType.USER: "--user-principal",
}
_NO_HOST = ""
"""Host that no ACL names, so that only ACLs for all hosts apply."""


@dataclass(frozen=True)
class Question:
    """Whether a principal may do an operation on a resource."""

    principal: str
    operation: AclOperation
    resource: Resource
    host: str | None
    """Address of the client; None considers only ACLs for all hosts."""

    @property
    def alternatives(self) -> tuple[Resource, ...]:
        """The resources on which the operation would suffice, first the one in question."""
        if (self.resource.type, self.operation) == (AclResourceType.TOPIC, AclOperation.CREATE):
            return self.resource, CLUSTER
        return (self.resource,)

    @property
    def action(self) -> str:
        """The operation and the resource, for a sentence."""
        return f"{self.operation.name} on {resource_name(self.resource)}"


@dataclass(frozen=True)
class Explanation:
    """A decision with its reason."""

    allowed: bool
    reason: str
    """One or two sentences."""
    acl: AclBinding | None = None
    """The ACL that decides, or None if none does."""


def parse_question(
    principal: str, operation: str, type: str, name: str | None, host: str | None
) -> Question:
    """Return the question of a command line.

    Raises:
        UserError: A part of it does not exist.
    """
    kind, _, user = principal.partition(":")
    if not kind or not user or user == WILDCARD:
        raise UserError(f"'{principal}' is not a principal. Name one, such as User:alice.")
    found = parse_resource_type(type)
    if found not in OPERATIONS:
        names = ", ".join(each.name.lower().replace("_", "-") for each in OPERATIONS)
        raise UserError(f"'{type}' is not a type of resources. There are: {names}.")
    if found is AclResourceType.CLUSTER:
        if name not in (None, CLUSTER_NAME):
            raise UserError("The cluster has no name. Leave it out.")
        name = CLUSTER_NAME
    if not name:
        raise UserError(f"The name of the {_words(found)} is missing.")
    action = parse_operation(operation)
    if action not in OPERATIONS[found]:
        names = ", ".join(each.name for each in OPERATIONS[found])
        raise UserError(f"A {_words(found)} has no operation '{operation}'. It has: {names}.")
    address = None if host is None else canonical_host(host)
    return Question(principal, action, Resource(found, name), address)


def explain(question: Question, acls: Collection[AclBinding] | None, policy: Policy) -> Explanation:
    """Return the decision on a question.

    Args:
        question: The question.
        acls: All ACLs that match the resources in question; None without an authorizer.
        policy: Properties that decide besides ACLs.
    """
    if acls is None:
        return Explanation(
            True, "The cluster has no authorizer, so every client may do everything."
        )
    authorizer = Authorizer(
        super_users=policy.super_users or (),
        allow_if_no_binding=policy.allows_without_acls,
        bindings=acls,
    )
    host = _NO_HOST if question.host is None else question.host
    first: Explanation | None = None
    for resource in question.alternatives:
        decision = authorizer.explain(question.principal, host, question.operation, resource)
        cause = decision.cause
        if isinstance(cause, Reason):
            text = _without_acl(cause, question, resource, acls)
            found = Explanation(decision.is_allowed, text)
        else:
            found = Explanation(decision.is_allowed, _by_acl(cause, question), cause)
        if found.allowed:
            return found
        first = first or found
    assert first is not None, "there is at least one resource"
    return Explanation(False, first.reason + _doubts(question, acls, policy), first.acl)


def resource_name(resource: Resource) -> str:
    """Return a resource for a sentence, such as `topic 'orders'`."""
    if resource.type is AclResourceType.CLUSTER:
        return "the cluster"
    return f"{_words(resource.type)} '{resource.name}'"


def _words(type: AclResourceType) -> str:
    words = type.name.lower().replace("_", " ")
    return "transactional ID" if type is AclResourceType.TRANSACTIONAL_ID else words


def _by_acl(acl: AclBinding, question: Question) -> str:
    verb = "allows" if acl.permission is AclPermission.ALLOW else "denies"
    text = f"The ACL {entry_text(acl)} of {resource_text(acl)} {verb} {question.action}"
    if acl.operation not in (question.operation, AclOperation.ALL):
        text += f", because {acl.operation.name} implies {question.operation.name}"
    return f"{text}."


def _without_acl(
    reason: Reason, question: Question, resource: Resource, acls: Collection[AclBinding]
) -> str:
    what = resource_name(resource)
    what = what[0].upper() + what[1:]
    match reason:
        case Reason.SUPER_USER:
            return f"{question.principal} is a super user, who may do everything."
        case Reason.NO_BINDINGS_ALLOW:
            return f"{what} has no ACLs, and allow.everyone.if.no.acl.found is set."
        case Reason.NO_BINDINGS_DENY:
            return f"{what} has no ACLs. {_advice(question)}"
        case Reason.NO_BINDING_APPLIES:
            count = len([each for each in acls if each.applies_to(*resource)])
            some = "the only ACL does not apply" if count == 1 else f"none of {count} ACLs applies"
            return (
                f"{what} has ACLs, but {some} to {question.operation.name} by "
                f"{question.principal}. {_advice(question)}"
            )


def _advice(question: Question) -> str:
    option = _OPTIONS.get(question.resource.type)
    resource = ["--cluster"] if option is None else [option, question.resource.name]
    words = [
        *("kafka-acls", "--add", "--allow-principal", question.principal),
        *("--operation", operation_name(question.operation), *resource),
    ]
    return f"Allow it with: {shlex.join(words)}"


def _doubts(question: Question, acls: Collection[AclBinding], policy: Policy) -> str:
    """Return sentences about what could lead to another decision, or ''."""
    doubts = ""
    if policy.super_users is None:
        doubts += "\nThe super users are unknown; name the configuration of a broker with --config."
    others = [each for each in acls if each.host != WILDCARD]
    if question.host is None and any(_is_for(each, question.principal) for each in others):
        doubts += "\nSome ACLs apply to certain hosts only; name the client's address with --host."
    return doubts


def _is_for(acl: AclBinding, principal: str) -> bool:
    return acl.principal in (principal, EVERY_USER)


def filters_of(question: Question) -> list[AclFilter]:
    """Return filters that find all ACLs that can decide."""
    return [AclFilter(each.type, PatternType.MATCH, each.name) for each in question.alternatives]

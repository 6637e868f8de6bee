"""The verdict on a broker: for each case, the ACLs that must not and that must suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tests.integration.security.acl_broker import acl
from tests.integration.security.authorization.case import Case, Subject
from tests.integration.security.authorization.scene import HOST, Scene
from tests.raw_client import eventually

from ottla.base.acl import (
    CLUSTER_NAME,
    EVERY_USER,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclResourceType,
    PatternType,
)
from ottla.base.errors import ErrorCode as E
from ottla.core.security.authorizer import OPERATIONS
from ottla.core.security.permissions import DESCRIBE_TOPIC, Permission

ANOTHER_HOST = "192.0.2.1"
TRANSIENT = {
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.CONCURRENT_TRANSACTIONS,
}
"""Codes of a broker that must be asked again."""
_IMPLYING = {
    AclOperation.DESCRIBE: {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}

Bindings = Callable[[Subject], list[AclBinding]]


class Step(NamedTuple):
    """One question to a broker: some ACLs, and whether the request of the case is allowed."""

    name: str
    exists: bool
    is_allowed: bool
    bindings: Bindings
    is_super_user: bool = False

    def __str__(self) -> str:
        return f"{self.name}, {'existing' if self.exists else 'missing'}"


def steps(case: Case, client: str) -> Iterator[Step]:
    """Yield the steps of a case.

    Args:
        case: The case.
        client: Principal of the client.
    """
    everywhere = [
        exists for exists, codes in ((True, case.allowed), (False, case.missing)) if codes
    ]
    before = granting(client, *case.before)

    def enough(permission: Permission, **changed: Any) -> Bindings:
        """Return the ACLs that suffice, with the last one changed."""
        return granting(client, *case.before, *case.after, permission, **changed)

    def all_others(subject: Subject) -> list[AclBinding]:
        return [*everything_but(case.needs, client), *before(subject)]

    for exists in everywhere:
        yield Step("no ACL", exists, False, before)
        if is_weaker(DESCRIBE_TOPIC, case.needs):
            weaker = granting(client, *case.before, DESCRIBE_TOPIC)
            yield Step("only TOPIC:DESCRIBE", exists, False, weaker)
        yield Step("all others", exists, False, all_others)
        for each in case.needs:
            yield Step(str(each), exists, True, enough(each))
    exists = everywhere[0]
    for each in case.needs:
        all_operations = enough(each, operation=AclOperation.ALL)
        yield Step(f"{each.type.name}:ALL", exists, True, all_operations)
        yield Step(f"{each} for its host", exists, True, enough(each, host=HOST))
        yield Step(f"{each} for another host", exists, False, enough(each, host=ANOTHER_HOST))
        yield Step(f"{each} for every user", exists, True, enough(each, principal=EVERY_USER))
        stranger = enough(each, principal=f"{client}-too")
        yield Step(f"{each} for another user", exists, False, stranger)
        yield Step(f"{each} and its denial", exists, False, denied(enough(each), each, client))
        if each.type is not AclResourceType.CLUSTER:
            every_name = enough(each, name=lambda _: WILDCARD)
            yield Step(f"{each} of every name", exists, True, every_name)
            prefix = enough(each, name=lambda name: name[:-1], pattern=PatternType.PREFIXED)
            yield Step(f"{each} of a prefix", exists, True, prefix)
            shorter = enough(each, name=lambda name: name[:-1])
            is_enough = each is case.of_any_name
            yield Step(f"{each} of a shorter name", exists, is_enough, shorter)
    yield Step("super user", exists, True, denied_everything, is_super_user=True)


def granting(
    client: str,
    *permissions: Permission,
    name: Callable[[str], str] = str,
    **changed: Any,
) -> Bindings:
    """Return the ACLs that grant permissions on a subject, the last of them with changes.

    Args:
        client: Principal of the client.
        permissions: The permissions.
        name: Returns the name in the last ACL, for that of the resource.
        changed: Arguments of `acl` for the last ACL.
    """

    def bindings(subject: Subject) -> list[AclBinding]:
        names = [subject.name_of(each.type) for each in permissions]
        found = [
            acl(each, its_name, principal=client)
            for each, its_name in zip(permissions, names, strict=True)
        ]
        if permissions:
            found[-1] = acl(permissions[-1], name(names[-1]), **{"principal": client, **changed})
        return found

    return bindings


def denied(bindings: Bindings, permission: Permission, client: str) -> Bindings:
    """Return ACLs with a further one that denies a permission."""
    return lambda subject: [
        *bindings(subject),
        acl(permission, subject.name_of(permission.type), principal=client, is_denied=True),
    ]


def denied_everything(subject: Subject) -> list[AclBinding]:
    """Return ACLs that deny everything to everybody except super users."""
    return [
        acl(
            Permission(AclOperation.ALL, type),
            CLUSTER_NAME if type is AclResourceType.CLUSTER else WILDCARD,
            principal=EVERY_USER,
            is_denied=True,
        )
        for type in OPERATIONS
    ]


def is_weaker(permission: Permission, needs: Iterable[Permission]) -> bool:
    """Return whether a permission suffices for none of those that are needed."""
    return all(
        (permission.type, permission.operation) not in sufficient(each) for each in needs
    ) and any(each.type == permission.type for each in needs)


def sufficient(permission: Permission) -> set[tuple[AclResourceType, AclOperation]]:
    operations = {permission.operation, *_IMPLYING.get(permission.operation, ())}
    return {(permission.type, each) for each in operations}


def everything_but(needs: Iterable[Permission], client: str) -> list[AclBinding]:
    """Return ACLs for all operations on everything, except for those that suffice."""
    excluded = {pair for each in needs for pair in sufficient(each)}
    return [
        acl(
            Permission(operation, type),
            CLUSTER_NAME if type is AclResourceType.CLUSTER else WILDCARD,
            principal=client,
        )
        for type, operations in OPERATIONS.items()
        for operation in operations
        if (type, operation) not in excluded
    ]


def differences(scene: Scene, case: Case, step: Step) -> list[str]:
    """Return how a broker's responses differ from those that the case expects.

    Args:
        scene: The broker.
        case: The case.
        step: One of the case's steps.
    """
    target = scene.target
    login = target.admin if step.is_super_user else target.client
    client = scene.connection(login, case.listener)
    subject = scene.subject(case, step.exists)
    expected = expected_codes(case, step)
    found = []
    for version in scene.versions(case):
        about = subject if case.prepare is None else case.prepare(scene, subject)
        control = [acl(DESCRIBE_TOPIC, about.control, principal=target.client.principal)]
        scene.set_acls([*step.bindings(about), *(control if about.control else [])])
        codes = eventually(
            lambda about=about, version=version: [*case.ask(client, about, version)],
            lambda codes: not TRANSIENT.intersection(codes),
        )
        if not codes or not expected.issuperset(codes):
            found.append(
                f"{case} v{version}, {step}: {named(codes)} instead of "
                + ("an allowed one" if len(expected) > 5 else f"{named(sorted(expected))}")
            )
    return found


def expected_codes(case: Case, step: Step) -> frozenset[int]:
    if step.is_allowed:
        codes = case.allowed if step.exists else case.missing
        assert codes is not None
        return codes
    return frozenset({case.denied if step.exists else case.missing_denied})


def named(codes: Iterable[int]) -> str:
    names = {each.value: each.name for each in E}
    return "[" + ", ".join(names.get(each, "left out") for each in codes) + "]"

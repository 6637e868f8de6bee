"""The verdict on a broker: for each case, the ACLs that must not and that must suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

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

Bindings = Callable[[Subject], Iterable[AclBinding]]


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
    who = {"principal": client}

    def allowed(permissions: Iterable[Permission], subject: Subject) -> list[AclBinding]:
        return [acl(each, subject.name_of(each.type), **who) for each in permissions]

    def granted(*permissions: Permission, **more: object) -> Bindings:
        """Return the ACLs for some permissions; with `more`, the last one is different."""
        *others, last = permissions
        return lambda subject: [
            *(acl(each, subject.name_of(each.type), **who) for each in others),
            acl(last, subject.name_of(last.type), **{**who, **more}),
        ]

    variants = [exists for exists, codes in ((True, case.allowed), (False, case.missing)) if codes]
    rest = case.before + case.after
    for exists in variants:
        yield Step("no ACL", exists, False, granted(*case.before) if case.before else no_acls)
        weaker = DESCRIBE_TOPIC
        if is_weaker(weaker, case.needs):
            yield Step("only TOPIC:DESCRIBE", exists, False, granted(*case.before, weaker))
        yield Step(
            "all other permissions",
            exists,
            False,
            lambda subject: [*everything_but(case.needs, client), *allowed(case.before, subject)],
        )
        for each in case.needs:
            yield Step(str(each), exists, True, granted(*rest, each))
    exists = variants[0]
    for each in case.needs:
        enough = granted(*rest, each)
        yield Step(
            f"{each.type.name}:ALL",
            exists,
            True,
            granted(*rest, each, operation=AclOperation.ALL),
        )
        yield Step(f"{each} for its host", exists, True, granted(*rest, each, host=HOST))
        yield Step(
            f"{each} for another host", exists, False, granted(*rest, each, host=ANOTHER_HOST)
        )
        yield Step(
            f"{each} for every user", exists, True, granted(*rest, each, principal=EVERY_USER)
        )
        yield Step(
            f"{each} for another user",
            exists,
            False,
            granted(*rest, each, principal=f"{client}-too"),
        )
        yield Step(
            f"{each} and its DENY",
            exists,
            False,
            lambda subject, each=each, enough=enough: [
                *enough(subject),
                acl(each, subject.name_of(each.type), is_denied=True, **who),
            ],
        )
        if each.type is not AclResourceType.CLUSTER:
            yield Step(
                f"{each} of every name",
                exists,
                True,
                lambda subject, each=each: [*allowed(rest, subject), acl(each, WILDCARD, **who)],
            )
            yield Step(
                f"{each} of a prefix",
                exists,
                True,
                lambda subject, each=each: [
                    *allowed(rest, subject),
                    acl(
                        each,
                        subject.name_of(each.type)[:-1],
                        pattern=PatternType.PREFIXED,
                        **who,
                    ),
                ],
            )
    yield Step("super user", exists, True, denied_everything, is_super_user=True)


def no_acls(subject: Subject) -> list[AclBinding]:
    return []


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

"""Tests of a broker's authorizer: the table of permissions, remembered answers, the audit log."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable

import pytest

from ottla.base.acl import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.base.config.broker import BrokerConfig
from ottla.broker import audit_log
from ottla.broker.audit_log import MAX_OF_CLIENT, MAX_QUESTIONS
from ottla.broker.authorization import MAX_REMEMBERED, Access, Authorization
from ottla.broker.router import HANDLERS
from ottla.core.security import permissions
from ottla.core.security.authorizer import Authorizer
from ottla.core.security.permissions import (
    ALTER_CLUSTER,
    ASKED_BY,
    CREATE_TOPIC,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    RULES,
    WRITE_TOPIC,
    Permission,
)
from ottla.core.security.principal import ANONYMOUS, Principal
from ottla.metadata.image import AccessDelta
from ottla.wire.api import Api

ALICE = Principal("User", "alice")
HERE = "10.0.0.1"
LOGGER = "kafka.authorizer.logger"


def acl(name: str = "orders", *, is_denied: bool = False) -> AclBinding:
    return AclBinding(
        AclResourceType.TOPIC,
        PatternType.LITERAL,
        name,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermission.DENY if is_denied else AclPermission.ALLOW,
    )


class Timer:
    """Calls nothing until a test does it."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        assert delay_s == audit_log.INTERVAL_S
        self.calls.append(call)

    def fire(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def given(timer: Timer) -> Authorization:
    return new(timer)


def new(timer: Timer, **properties: str) -> Authorization:
    config = BrokerConfig.from_properties(
        {name.replace("__", "."): value for name, value in properties.items()}
    )
    return Authorization(config, lambda: 1_700_000_000_000, timer.call_later)


def reads(access: Access, topic: str = "orders") -> bool:
    return access.may(Api.FETCH, READ_TOPIC, topic)


# -------------------------------------------------------------------------------------- the table


def test_every_api_has_its_permissions_in_the_table() -> None:
    assert set(RULES) >= {*HANDLERS, Api.API_VERSIONS, Api.ENVELOPE}


def names_of(permission: Permission) -> list[str]:
    return [name for name, value in vars(permissions).items() if value is permission]


IN_ANOTHER_MODULE = {
    Api.METADATA: {permissions.DESCRIBE_CLUSTER, permissions.CREATE_IN_CLUSTER},
    Api.CREATE_TOPICS: {permissions.CREATE_IN_CLUSTER},
    Api.FETCH: {permissions.ACT_AS_BROKER},
    Api.DESCRIBE_CLUSTER: {permissions.DESCRIBE_CLUSTER},
    Api.ADD_PARTITIONS_TO_TXN: {permissions.ACT_AS_BROKER},
    Api.INIT_PRODUCER_ID: {permissions.WRITE_TOPIC, permissions.TWO_PHASE_COMMIT},
    Api.INCREMENTAL_ALTER_CONFIGS: ASKED_BY[Api.ALTER_CONFIGS],
}
"""Permissions that a handler asks for through a function of another module, and TWO_PHASE_COMMIT,
which only requests of a version that is not served need."""


@pytest.mark.parametrize("api", HANDLERS, ids=lambda api: api.name)
def test_a_handler_asks_for_the_permissions_in_the_table(api: Api) -> None:
    module = inspect.getmodule(HANDLERS[api])
    assert module is not None
    missing = {
        each
        for each in ASKED_BY[api] - IN_ANOTHER_MODULE.get(api, frozenset())
        if not any(name in vars(module) for name in names_of(each))
    }
    assert not missing, [str(each) for each in missing]


def test_a_permission_that_is_not_in_the_table_cannot_be_asked_for(given: Authorization) -> None:
    access = given.access_of(ALICE, HERE)
    with pytest.raises(AssertionError, match="fetch asks for TOPIC:WRITE"):
        access.may(Api.FETCH, WRITE_TOPIC, "orders")
    with pytest.raises(AssertionError):
        access.filter(Api.FETCH, CREATE_TOPIC, ["orders"])


@pytest.mark.parametrize(
    ("permission", "code"),
    [(READ_TOPIC, 29), (permissions.READ_GROUP, 30), (ALTER_CLUSTER, 31),
     (permissions.WRITE_TRANSACTIONAL_ID, 53), (permissions.CREATE_TOKENS, 65)],
)  # fmt: skip
def test_each_type_of_resource_has_its_error(permission: Permission, code: int) -> None:
    assert permission.error == code


# ------------------------------------------------------------------------------ remembered answers


def test_a_change_takes_effect_on_what_was_answered_before(given: Authorization) -> None:
    access = given.access_of(ALICE, HERE)
    assert not reads(access)
    assert given.apply(AccessDelta(acls_added=[acl()]))
    assert reads(access)
    assert given.apply(AccessDelta(acls_removed=[acl()]))
    assert not reads(access)
    assert given.set_super_users([ALICE])
    assert reads(access)
    assert not given.set_super_users([ALICE])
    assert not given.apply(AccessDelta(users={"alice"}))


def test_an_answer_is_decided_once(given: Authorization, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    decide = Authorizer.is_allowed
    monkeypatch.setattr(Authorizer, "is_allowed", lambda *args: asked.append(args) or decide(*args))
    access = given.access_of(ALICE, HERE)
    for _ in range(3):
        reads(access)
    assert len(asked) == 1


def test_remembered_answers_are_bounded(given: Authorization) -> None:
    access = given.access_of(ALICE, HERE)
    for index in range(MAX_REMEMBERED + 10):
        reads(access, f"topic-{index}")
    assert len(access._answers) == 10


def test_whether_a_client_writes_to_some_topic_is_decided_once_until_acls_change(
    given: Authorization, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    decide = Authorizer.is_allowed_on_any
    monkeypatch.setattr(
        Authorizer, "is_allowed_on_any", lambda *args: asked.append(args) or decide(*args)
    )
    access = given.access_of(ALICE, HERE)
    for _ in range(3):
        assert not access.may_write_some_topic(Api.INIT_PRODUCER_ID)
    assert len(asked) == 1
    written = acl()._replace(operation=AclOperation.WRITE)
    given.apply(AccessDelta(acls_added=[written]))
    assert access.may_write_some_topic(Api.INIT_PRODUCER_ID)
    given.apply(AccessDelta(acls_removed=[written]))
    assert not access.may_write_some_topic(Api.INIT_PRODUCER_ID)
    with pytest.raises(AssertionError):
        access.may_write_some_topic(Api.FETCH)


def test_connections_of_a_client_share_their_answers(given: Authorization) -> None:
    access = given.access_of(ALICE, HERE)
    assert given.access_of(Principal("User", "alice"), HERE) is access
    assert given.access_of(ALICE, f"::ffff:{HERE}") is access
    assert given.access_of(ALICE, "10.0.0.2") is not access
    assert given.access_of(ANONYMOUS, HERE) is not access


def test_clients_that_are_gone_are_forgotten(given: Authorization) -> None:
    for index in range(100):
        given.access_of(Principal("User", str(index)), HERE)
    assert len(given._accesses) == 0


def test_a_listing_does_not_displace_remembered_answers(given: Authorization) -> None:
    given.apply(AccessDelta(acls_added=[acl()]))
    access = given.access_of(ALICE, HERE)
    names = [f"topic-{index}" for index in range(10)]
    assert access.filter(Api.METADATA, DESCRIBE_TOPIC, [*names, "orders"]) == ["orders"]
    assert not access._answers


# -------------------------------------------------------------------------------------- audit log


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


def test_a_denial_has_kafkas_line(given: Authorization, log: pytest.LogCaptureFixture) -> None:
    given.apply(AccessDelta(acls_added=[acl(is_denied=True)]))
    reads(given.access_of(ALICE, HERE))
    reads(given.access_of(ANONYMOUS, HERE))
    assert [(each.levelno, each.getMessage()) for each in log.records] == [
        (
            logging.INFO,
            "Principal = User:alice is Denied operation = READ from host = 10.0.0.1 on resource = "
            "Topic:LITERAL:orders for request = Fetch with resourceRefCount = 1 based on rule "
            "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=orders, "
            "patternType=LITERAL, principal=User:alice, host=*, operation=READ, "
            "permissionType=DENY])",
        ),
        (
            logging.INFO,
            "Principal = User:ANONYMOUS is Denied operation = READ from host = 10.0.0.1 on "
            "resource = Topic:LITERAL:orders for request = Fetch with resourceRefCount = 1 based "
            "on rule DefaultDeny",
        ),
    ]


def test_what_is_allowed_is_logged_at_level_debug(
    given: Authorization, caplog: pytest.LogCaptureFixture
) -> None:
    given.set_super_users([ALICE])
    caplog.set_level(logging.INFO, LOGGER)
    reads(given.access_of(ALICE, HERE))
    assert not caplog.records
    caplog.set_level(logging.DEBUG, LOGGER)
    reads(given.access_of(ALICE, HERE))
    (line,) = caplog.records
    assert line.levelno == logging.DEBUG
    assert "is Allowed operation = READ" in line.getMessage()
    assert line.getMessage().endswith("based on rule SuperUser")


def test_one_of_several_permissions_is_not_logged(
    given: Authorization, log: pytest.LogCaptureFixture
) -> None:
    access = given.access_of(ALICE, HERE)
    access.may(Api.METADATA, permissions.CREATE_IN_CLUSTER, "kafka-cluster", is_audited=False)
    assert not log.records


def test_no_denial_is_lost(
    given: Authorization, timer: Timer, log: pytest.LogCaptureFixture
) -> None:
    access = given.access_of(ALICE, HERE)
    for index in range(MAX_OF_CLIENT + 50):
        for _ in range(3):
            reads(access, f"topic-{index}")
    assert len(log.records) == MAX_OF_CLIENT
    timer.fire()
    texts = [each.getMessage() for each in log.records]
    assert sum("resourceRefCount = 2" in each for each in texts) == MAX_OF_CLIENT
    assert texts[-1] == (
        "Principal = User:alice is Denied 150 further operations from host = 10.0.0.1 within 10 "
        "seconds"
    )
    reads(access, "topic-0")
    assert len(timer.calls) == 1
    assert log.records[-1].getMessage().count("resourceRefCount = 1 ") == 1


def test_the_audit_log_is_bounded_for_any_number_of_clients(
    given: Authorization, timer: Timer, log: pytest.LogCaptureFixture
) -> None:
    clients = 2 * MAX_QUESTIONS
    for index in range(clients):
        reads(given.access_of(Principal("User", f"user-{index}"), HERE))
    assert len(log.records) == MAX_QUESTIONS
    timer.fire()
    further = [each.getMessage() for each in log.records[MAX_QUESTIONS:]]
    assert len(further) == audit_log.MAX_CLIENTS + 1
    assert sum(int(each.split("Denied ")[1].split()[0]) for each in further) == MAX_QUESTIONS


def test_lines_of_json_have_the_same_facts(timer: Timer, log: pytest.LogCaptureFixture) -> None:
    given = new(timer, authorizer__audit__log__format="json")
    reads(given.access_of(ALICE, HERE), "a\n\u2028b")
    text = log.records[0].getMessage()
    assert text.isascii()
    assert "\n" not in text
    assert log.records[0].__dict__["is_whole_line"] is True
    assert json.loads(text) == {
        "time": "2023-11-14T22:13:20.000+00:00",
        "level": "INFO",
        "logger": LOGGER,
        "principal": "User:alice",
        "result": "Denied",
        "operation": "READ",
        "host": HERE,
        "resource_type": "Topic",
        "pattern_type": "LITERAL",
        "resource_name": "a\n\u2028b",
        "request": "Fetch",
        "resource_ref_count": 1,
        "rule": "DefaultDeny",
    }

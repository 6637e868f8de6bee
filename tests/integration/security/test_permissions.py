"""Permissions that each API asks for, on a running broker.

`authorization.tsv` has the facts about Kafka, `RULES` what Ottla's handlers ask for, and the folder
`authorization` a request for each rule. `compat/run` sends the same requests to Apache Kafka."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.security.acl_broker import PASSWORDS, acl_properties
from tests.integration.security.authorization.case import Case, Listener
from tests.integration.security.authorization.cases import CASES
from tests.integration.security.authorization.cluster import BROKER_LOGGER
from tests.integration.security.authorization.judge import Step, differences, steps
from tests.integration.security.authorization.scene import Login, Scene, Target

from ottla.base.errors import ErrorCode
from ottla.broker.router import HANDLERS
from ottla.core.security.permissions import RULES, Rule
from ottla.testing.broker_thread import BrokerThread
from ottla.wire import schema
from ottla.wire.api import Api

ADMIN, ALICE = (Login(name, PASSWORDS[name]) for name in ("admin", "alice"))
LISTENERS = {
    Listener.CLIENT: "CLIENT",
    Listener.BROKER: "BROKER",
    Listener.CONTROLLER: "BROKER",
}
"""The listener of brokers also takes the requests that they forward to the controller."""


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    properties = {
        **acl_properties("CLIENT"),
        **acl_properties("BROKER"),
        "listeners": "CLIENT://127.0.0.1:0,BROKER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,BROKER:SASL_PLAINTEXT",
        "delegation.token.secret.key": "secret of the cluster",
    }
    with BrokerThread(overrides=properties) as broker:
        ports = {each: broker.broker.ports[name] for each, name in LISTENERS.items()}
        with Scene(Target(ports, ADMIN, ALICE)) as scene:
            yield scene


# ---------------------------------------------------------------------------------------- the table


class Fact(NamedTuple):
    """A row of the table of facts."""

    key: int
    api: str
    is_served: bool
    rule: tuple[str, ...]


def facts() -> list[Fact]:
    text = Path(__file__).with_name("authorization.tsv").read_text(encoding="utf-8")
    return [
        Fact(
            int(row["key"]),
            row["api"],
            {"yes": True, "no": False}[row["served"]],
            (row["when"], row["needs"], row["denied_at"], row["error"]),
        )
        for row in csv.DictReader(text.splitlines(), delimiter="\t")
    ]


FACTS = facts()
NO_RULE = ("always", "-", "-", "-")


def as_fact(rule: Rule) -> tuple[str, ...]:
    error = "-" if rule.error is None else rule.error.name
    return rule.when, " or ".join(map(str, rule.needs)), rule.denied_at, error


def is_served(case: Case) -> bool:
    """Return whether Ottla serves the request of a case in any version."""
    served = schema.versions(case.api) if case.api in {*HANDLERS, Api.ENVELOPE} else ()
    return bool({*served}.intersection(case.versions))


def test_the_rules_are_the_facts() -> None:
    keys = {each.key for each in FACTS}
    for api, rules in RULES.items():
        expected = [each.rule for each in FACTS if each.key == api]
        assert [*map(as_fact, rules)] == [each for each in expected if each != NO_RULE], api.name
    assert {*RULES} <= keys


def test_a_fact_without_rule_is_about_an_api_that_is_not_served(scene: Scene) -> None:
    without_rule = {each.key: each for each in FACTS if each.key not in RULES}
    assert len(without_rule) > 30
    for fact in without_rule.values():
        assert not fact.is_served, f"{fact.api} is served, but it has no rules"
    found = {*scene.served}.intersection(without_rule)
    assert not found, f"add rules and cases for {[without_rule[each].api for each in found]}"


def test_the_facts_say_what_the_broker_serves(scene: Scene) -> None:
    for fact in FACTS:
        cases = [each for each in CASES if (each.api, as_fact(each.rule)) == (fact.key, fact.rule)]
        served = any(map(is_served, cases)) if cases else fact.key in scene.served
        assert fact.is_served == served, f"authorization.tsv: {fact.api}, {fact.rule[0]}"


def test_every_served_api_has_rules(scene: Scene) -> None:
    assert {*scene.served} <= {*RULES}


def test_every_rule_has_a_case() -> None:
    rules = {(api, rule) for api, rules in RULES.items() for rule in rules}
    assert {(case.api, case.rule) for case in CASES} == rules


def test_the_cases_of_a_rule_cover_all_served_versions() -> None:
    """Each served version of an API is in a case of each of its rules, as far as it can be."""
    for case in CASES:
        versions = {
            version
            for each in CASES
            if (each.api, each.rule) == (case.api, case.rule)
            for version in each.versions
        }
        left_out = {*schema.versions(case.api)} - versions
        assert left_out == VERSIONS_WITHOUT.get((case.api, case.rule.when), set()), str(case)


VERSIONS_WITHOUT: dict[tuple[Api, str], set[int]] = {
    (Api.METADATA, "authorized operations"): {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13},
    (Api.OFFSET_FETCH, "all topics"): {1},
    (Api.FIND_COORDINATOR, "key type 1"): {0},
    (Api.FIND_COORDINATOR, "key type 2"): {0, 1, 2, 3, 4, 5},
    (Api.CREATE_TOPICS, "configs in the response"): {2, 3, 4},
    (Api.INIT_PRODUCER_ID, "transactional ID, enable_2pc"): {0, 1, 2, 3, 4, 5},
    (Api.ADD_PARTITIONS_TO_TXN, "v0-3: transactional ID"): {4, 5},
    (Api.ADD_PARTITIONS_TO_TXN, "v0-3: each topic"): {4, 5},
    (Api.ADD_PARTITIONS_TO_TXN, "v4+: brokers only"): {0, 1, 2, 3},
    (Api.CREATE_DELEGATION_TOKEN, "owner is not the requester"): {1, 2},
    (Api.CONSUMER_GROUP_HEARTBEAT, "subscribed_topic_regex"): {0},
}
"""API and rule -> versions whose requests the rule cannot apply to."""


# --------------------------------------------------------------------------------------- the broker

QUESTIONS = [
    (case, step) for case in CASES if is_served(case) for step in steps(case, ALICE.principal)
]


@pytest.mark.parametrize(
    ("case", "step"), QUESTIONS, ids=[f"{case}: {step}" for case, step in QUESTIONS]
)
def test_the_broker_asks_for_permissions(scene: Scene, case: Case, step: Step) -> None:
    assert not differences(scene, case, step)


def test_the_old_api_does_not_alter_loggers_whoever_asks(scene: Scene) -> None:
    scene.set_acls([])
    resource = {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": []}
    for login in (ALICE, ADMIN):
        client = scene.connection(login, Listener.CLIENT)
        (answer,) = client.call(Api.ALTER_CONFIGS, resources=[resource]).responses
        assert answer.error_code == ErrorCode.INVALID_REQUEST

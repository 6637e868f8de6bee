"""Permissions that each API asks for, on a running broker; `compat` judges Apache Kafka alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.security.acl_broker import PASSWORDS, acl_properties
from tests.integration.security.authorization.case import Case, Listener
from tests.integration.security.authorization.cases import CASES
from tests.integration.security.authorization.judge import Step, differences, steps
from tests.integration.security.authorization.scene import Login, Scene, Target

from ottla.testing.broker_thread import BrokerThread

ADMIN, ALICE = (Login(name, PASSWORDS[name]) for name in ("admin", "alice"))
BROKERS = "BROKER"
"""Listener of brokers, which also take forwarded requests there."""


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    properties = acl_properties("CLIENT", delegation__token__secret__key="secret")
    properties = {
        **properties,
        **acl_properties(BROKERS),
        "delegation.token.secret.key": "secret of the cluster",
        "listeners": f"CLIENT://127.0.0.1:0,{BROKERS}://127.0.0.1:0",
        "listener.security.protocol.map": f"CLIENT:SASL_PLAINTEXT,{BROKERS}:SASL_PLAINTEXT",
    }
    with BrokerThread(overrides=properties) as broker:
        ports = broker.broker.ports
        by_listener = {
            Listener.CLIENT: ports["CLIENT"],
            Listener.BROKER: ports[BROKERS],
            Listener.CONTROLLER: ports[BROKERS],
        }
        with Scene(Target(by_listener, ADMIN, ALICE)) as scene:
            yield scene


QUESTIONS = [(case, step) for case in CASES for step in steps(case, ALICE.principal)]


@pytest.mark.parametrize(
    ("case", "step"), QUESTIONS, ids=[f"{case}: {step}" for case, step in QUESTIONS]
)
def test_permissions(scene: Scene, case: Case, step: Step) -> None:
    assert not differences(scene, case, step)

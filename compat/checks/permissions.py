"""Checks of Apache Kafka's authorizer by the same table as that of Ottla's broker.

The table is `tests/integration/security/authorization`. Where Apache Kafka differs from it, the
table is wrong, and so is Ottla.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.security.authorization.case import Listener
from tests.integration.security.authorization.cases import CASES
from tests.integration.security.authorization.judge import differences, steps
from tests.integration.security.authorization.scene import Login, Scene, Target

from compat.apache_kafka import ApacheKafka
from compat.java import Java

ADMIN, ALICE = Login("admin", "admin-secret"), Login("alice", "alice-secret")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = (
    f'{PLAIN_MODULE} required username="{ADMIN.name}" password="{ADMIN.password}" '
    + " ".join(f'user_{each.name}="{each.password}"' for each in (ADMIN, ALICE))
    + ";"
)
OVERRIDES = {
    # The listener keeps its name, although its clients authenticate.
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "listener.name.controller.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ADMIN.principal,
    "delegation.token.secret.key": "secret of the cluster",
    # The timestamps of records are old.
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # InitProducerId 6, which has two-phase commits.
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}


def asks_for_the_same_permissions(kafka: ApacheKafka) -> None:
    """Apache Kafka's broker asks for the permissions of our table."""
    ports = {
        Listener.CLIENT: kafka.port,
        Listener.BROKER: kafka.port,
        Listener.CONTROLLER: kafka.controller_port,
    }
    found = []
    with Scene(Target(ports, ADMIN, ALICE)) as scene:
        for case in CASES:
            if not scene.versions(case):
                found.append(f"{case}: not served")
            for step in steps(case, ALICE.principal):
                try:
                    found += differences(scene, case, step)
                except Exception as error:
                    found.append(f"{case}, {step}: {error!r}")
                    scene.reconnect()
    assert not found, "\n".join(found)


def kafka_with_authorizer(java: Java, home: Path) -> ApacheKafka:
    """Return a broker of Apache Kafka with an authorizer, which is not started yet."""
    return ApacheKafka(java, home, overrides=OVERRIDES)


CHECKS = [asks_for_the_same_permissions]

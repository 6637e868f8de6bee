"""Migration of a data directory of Apache Kafka that is protected by ACLs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from compat.apache_kafka import ApacheKafka
from compat.checks.kafka_directory import NODE_ID, KafkaServerStart
from compat.java import Java
from ottla.testing.broker import HOST, BrokerFailed, BrokerProcess

TIMEOUT_S = 20.0
USERS = {name: f"{name}-secret" for name in ("alice", "bob", "carol")}
TOPICS = ("orders", "orders-eu", "payments", "audit", "free")
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The listener without authentication is that of the administrator, and of the controller.
    "super.users": "User:ANONYMOUS",
}
MANY = 150
"""Number of ACLs that fill snapshots; the others are in the log after them."""
EVERY_ACL = AclBindingFilter(
    *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),
    *(AclOperation.ANY, AclPermissionType.ANY),
)
_LITERAL, _PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
_ALLOW, _DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
_TOPIC = ResourceType.TOPIC

ACLS = [
    AclBinding(_TOPIC, "orders", _PREFIXED, "User:alice", "*", AclOperation.ALL, _ALLOW),
    AclBinding(_TOPIC, "orders-eu", _LITERAL, "User:alice", "*", AclOperation.DELETE, _DENY),
    AclBinding(_TOPIC, "payments", _LITERAL, "User:alice", HOST, AclOperation.WRITE, _ALLOW),
    AclBinding(_TOPIC, "audit", _LITERAL, "User:alice", "10.9.9.9", AclOperation.READ, _ALLOW),
    AclBinding(_TOPIC, "*", _LITERAL, "User:bob", "*", AclOperation.DESCRIBE, _ALLOW),
    AclBinding(_TOPIC, "orders", _LITERAL, "User:bob", "*", AclOperation.READ, _ALLOW),
    AclBinding(_TOPIC, "pay", _PREFIXED, "User:*", HOST, AclOperation.DESCRIBE, _DENY),
    AclBinding(_TOPIC, "free", _LITERAL, "User:*", "*", AclOperation.ALTER_CONFIGS, _ALLOW),
    AclBinding(ResourceType.GROUP, "g/ü", _LITERAL, "User:bob", "*", AclOperation.READ, _ALLOW),
    AclBinding(
        ResourceType.TRANSACTIONAL_ID, "t", _PREFIXED, "User:bob", "*", AclOperation.WRITE, _ALLOW
    ),
    AclBinding(
        *(ResourceType.BROKER, "kafka-cluster", _LITERAL, "User:carol", "*"),
        *(AclOperation.CREATE, _ALLOW),
    ),
]
FORMER = AclBinding(_TOPIC, "audit", _LITERAL, "User:bob", "*", AclOperation.ALL, _ALLOW)
"""An ACL that is deleted again."""

_ALICE = ("--entity-type", "users", "--entity-name", "alice")
QUOTAS = (
    (_ALICE, "producer_byte_rate=1048576,request_percentage=12.5"),
    ((*_ALICE, "--entity-type", "clients", "--entity-default"), "consumer_byte_rate=2000"),
    (("--entity-type", "clients", "--entity-name", "an id/ü"), "consumer_byte_rate=3000"),
    (("--entity-type", "ips", "--entity-name", "10.0.0.1"), "connection_creation_rate=5"),
)
"""Options of kafka-configs that name an entity, and its quotas."""

Operations = dict[str, list[str] | str]
"""Operations that each user may do with each topic, or the error."""


@dataclass
class SecuredDirectory:
    """Data directories of Kafka, and what Kafka's users could do."""

    java: Java
    scratch: Path
    protected: Path
    """Directory with ACLs."""
    limited: Path
    """Directory with ACLs and client quotas."""
    quotas: list[str]
    """Output of Kafka's tool about the quotas."""
    acls: set[AclBinding]
    operations: Operations


def write_directories(java: Java, scratch: Path) -> SecuredDirectory:
    kafka = ApacheKafka(java, scratch / "secured", node_id=NODE_ID, overrides=SECURED, users=USERS)
    kafka.start()
    try:
        admin = _admin(kafka)
        _fill(admin)
        acls, operations = acls_of(admin), operations_of(kafka.sasl_port)
        kafka.kill()
        shutil.copytree(kafka.data_dir, scratch / "protected")
        kafka.start()
        for entity, values in QUOTAS:
            java.succeed(
                "kafka-configs",
                *("--bootstrap-server", kafka.bootstrap, "--alter", *entity),
                *("--add-config", values),
            )
        quotas = quotas_of(java, kafka)
        kafka.stop()
    except BaseException:
        kafka.end()
        raise
    shutil.copytree(kafka.data_dir, scratch / "limited")
    return SecuredDirectory(
        java, scratch, scratch / "protected", scratch / "limited", quotas, acls, operations
    )


def quotas_of(java: Java, kafka: ApacheKafka) -> list[str]:
    """Return what Kafka's tool prints about quotas."""
    described = [
        java.succeed(
            "kafka-configs",
            *("--bootstrap-server", kafka.bootstrap, "--describe"),
            *(word for kind in kinds for word in ("--entity-type", kind)),
        ).lines
        for kinds in (("users",), ("users", "clients"), ("clients",), ("ips",))
    ]
    return sorted(_ordered(line) for lines in described for line in lines)


def _ordered(line: str) -> str:
    """Return a line of kafka-configs with its quotas in order. Kafka returns them in any order."""
    entity, _, quotas = line.rpartition(" are ")
    return f"{entity} are {', '.join(sorted(quotas.split(', ')))}"


def _fill(admin: AdminClient) -> None:
    topics = [NewTopic(name, 1, 1) for name in TOPICS]
    _wait(admin.create_topics(topics))
    many = [
        AclBinding(
            *(_TOPIC, f"topic-{number}", _LITERAL, f"User:app-{number}", "*"),
            *(AclOperation.READ, _ALLOW),
        )
        for number in range(MANY)
    ]
    _wait(admin.create_acls([*many, FORMER]))
    _wait(admin.create_acls(ACLS))
    of_former = AclBindingFilter(
        *(FORMER.restype, FORMER.name, FORMER.resource_pattern_type, FORMER.principal),
        *(FORMER.host, FORMER.operation, FORMER.permission_type),
    )
    _wait(admin.delete_acls([of_former]))


def _wait(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def _admin(kafka: ApacheKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


def acls_of(admin: AdminClient) -> set[AclBinding]:
    return set(admin.describe_acls(EVERY_ACL).result(TIMEOUT_S))


def operations_of(port: int) -> Operations:
    """Return which operations each user may do, as the broker answers them."""
    found: Operations = {}
    for user in USERS:
        admin = AdminClient(login(port, user))
        described = admin.describe_topics(
            TopicCollection(list(TOPICS)), include_authorized_operations=True
        )
        for topic, future in described.items():
            found[f"{user} {topic}"] = _outcome(future)
        cluster = admin.describe_cluster(include_authorized_operations=True)
        found[f"{user} cluster"] = _outcome(cluster)
    return found


def _outcome(future: Any) -> list[str] | str:
    """Return the names of the authorized operations, or that of the error."""
    try:
        return sorted(each.name for each in future.result(TIMEOUT_S).authorized_operations or ())
    except KafkaException as error:
        return str(error.args[0].name())


def login(port: int, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"{HOST}:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
        "log_level": "0",
    }


# --------------------------------------------------------------------------------------- checks


def is_refused_without_an_authorizer(taken: SecuredDirectory) -> None:
    """Our broker does not open a protected directory to everybody."""
    reason = _refusal(BrokerProcess(_copied(taken.protected, "unprotected")))
    assert f"contain {len(taken.acls)} ACLs of Apache Kafka" in reason, reason
    assert "authorizer.class.name is not set" in reason, reason


def quotas_are_kept(taken: SecuredDirectory) -> None:
    """Our broker has the client quotas that Kafka's tool describes."""
    kafka = _properties_of(taken, "with-quotas", taken.limited)
    with KafkaServerStart(kafka.write_properties()):
        found = quotas_of(taken.java, kafka)
    assert taken.quotas, "Kafka described its quotas"
    assert found == taken.quotas, f"{found} instead of {taken.quotas}"


def acls_are_kept(taken: SecuredDirectory) -> None:
    """Our broker, with Kafka's properties, has Kafka's ACLs and decides as Kafka did."""
    kafka = _properties_of(taken, "own", taken.protected)
    properties = kafka.write_properties()
    admin = _admin(kafka)
    with KafkaServerStart(properties):
        assert acls_of(admin) == taken.acls
        found = operations_of(kafka.sasl_port)
        assert found == taken.operations, _different(taken.operations, found)
        assert _written(kafka.sasl_port, "alice", "orders") is None
        assert _written(kafka.sasl_port, "bob", "orders") == "TOPIC_AUTHORIZATION_FAILED"
        _wait(admin.delete_acls([EVERY_ACL]))
        assert _written(kafka.sasl_port, "alice", "orders") == "TOPIC_AUTHORIZATION_FAILED"
    with KafkaServerStart(properties):  # Kafka's metadata log is still there
        assert acls_of(admin) == set()


def _properties_of(taken: SecuredDirectory, name: str, data: Path) -> ApacheKafka:
    """Return Kafka's configuration for a copy of one of its directories."""
    kafka = ApacheKafka(
        taken.java, taken.scratch / name, node_id=NODE_ID, overrides=SECURED, users=USERS
    )
    shutil.copytree(data, kafka.data_dir)
    return kafka


def _copied(data: Path, name: str) -> Path:
    target = data.parent / name
    shutil.copytree(data, target)
    return target


def _refusal(broker: BrokerProcess) -> str:
    """Return the log of a broker that must not start."""
    try:
        broker.start()
    except BrokerFailed:
        return broker.log()
    finally:
        if broker.is_running:
            broker.stop()
    raise AssertionError("the broker has started")


def _written(port: int, user: str, topic: str) -> str | None:
    """Write a record, and return the error or None."""
    errors: list[str | None] = []
    producer = Producer({**login(port, user), "enable.idempotence": "false"})
    producer.produce(
        topic, b"x", on_delivery=lambda error, _: errors.append(error and error.name())
    )
    producer.flush(TIMEOUT_S)
    (error,) = errors
    return error


def _different(expected: Operations, found: Operations) -> str:
    return "\n".join(
        f"{key}: {expected.get(key)}, here {found.get(key)}"
        for key in sorted({*expected, *found})
        if expected.get(key) != found.get(key)
    )


CHECKS = [is_refused_without_an_authorizer, acls_are_kept, quotas_are_kept]

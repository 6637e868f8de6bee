"""Costs of the authorizer: single decisions, the start with many ACLs, and throughput.

The ACLs are those of a shared cluster: a hundred teams with prefixes, applications with their own
topics and groups, some hosts and ranges, and one denial in fifty.

Throughput is work per CPU second of the broker, which one core bounds. A broker with an authorizer
and 10,000 ACLs and one without an authorizer take turns, so that both have the same share of a busy
machine. The requests are as small as they get, because the authorizer works per request.
"""

from __future__ import annotations

import random
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import process_time

from confluent_kafka import Consumer, TopicPartition
from tests.integration.security.acl_broker import acl_properties, create_acls, log_in

from bench import load
from bench.measure import Figure, cpu_seconds
from ottla.base.acl import (
    EVERY_USER,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.base.config.broker import BrokerConfig
from ottla.base.metadata import Create, Node
from ottla.broker.authorization import Access, Authorization
from ottla.core.security.authorizer import Authorizer, Resource
from ottla.core.security.permissions import READ_TOPIC
from ottla.core.security.principal import Principal
from ottla.metadata.acl_tree import AclTree
from ottla.metadata.image import ClusterImage
from ottla.testing.broker import BrokerProcess
from ottla.wire.api import Api

COUNTS = (10, 10_000, 100_000)
OF_BROKER = 10_000
ALICE = Principal("User", "app-7")
HERE = "10.0.7.7"
TEAMS, APPLICATIONS = 100, 500
REPEATS = 7
ASKED = 500
REMEMBERED_CALLS = 50_000
ROUNDS = 5
PARTITIONS = 4
SINGLE_RECORDS = 8_000
"""Number of records of each of four connections in a round."""
FETCHED_BYTES = 12_000
BATCHES = 2_500
PER_BATCH = 10
IN_REQUEST = 2_000
"""Number of ACLs that one request creates."""
SECURED, OPEN = "SECURED", "PLAINTEXT"

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE = AclOperation.READ, AclOperation.WRITE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def run() -> Iterator[Figure]:
    for count in COUNTS:
        yield from _decisions(count)
    yield _remembered()
    yield _load()
    yield from _throughput()


def bindings(count: int) -> Iterator[AclBinding]:
    """Yield different ACLs of a shared cluster."""
    for number in range(count):
        team, application = number % TEAMS, number % APPLICATIONS
        host = WILDCARD
        if number % 7 == 0:
            host = f"10.0.{application % 250}.0/24" if number % 2 else f"10.0.{number % 250}.7"
        yield AclBinding(
            GROUP if number % 5 == 0 else TOPIC,
            PREFIXED if number % 10 == 3 else LITERAL,
            f"team-{team}.{'x' * (team % 5)}topic-{number // 4}",
            f"User:app-{application}",
            host,
            READ if number % 2 else WRITE,
            ALLOW if number % 50 else DENY,
        )


# ------------------------------------------------------------------------------------- decisions


def _decisions(count: int) -> Iterator[Figure]:
    known = list(bindings(count))
    authorizer = Authorizer(bindings=known)
    asked = [
        (each.principal, Resource(each.resource_type, each.name))
        for each in random.Random(1).choices(known, k=ASKED)
    ]

    def decide() -> None:
        for principal, resource in asked:
            authorizer.is_allowed(principal, HERE, READ, resource)

    taken = _shortest(decide, len(asked))
    name = f"authorizer: decision, {count:,} ACLs"
    yield Figure(name, taken, "CPU us", 2.0 if count == OF_BROKER else None)

    def decide_on_any() -> None:
        for principal, _resource in asked:
            authorizer.is_allowed_on_any(principal, HERE, WRITE, TOPIC)

    taken = _shortest(decide_on_any, len(asked))
    yield Figure(f"authorizer: decision on any topic, {count:,} ACLs", taken, "CPU us")


def _remembered() -> Figure:
    authorization = _authorization()
    for each in bindings(OF_BROKER):
        authorization.authorizer.add(each)
    access: Access = authorization.access_of(ALICE, HERE)
    allowed = next(
        each.name
        for each in bindings(OF_BROKER)
        if each.resource_type is TOPIC and access.may(Api.FETCH, READ_TOPIC, each.name)
    )
    api, may = int(Api.FETCH), access.may

    def ask() -> None:
        for _ in range(REMEMBERED_CALLS):
            may(api, READ_TOPIC, allowed)

    return Figure(
        "authorizer: remembered decision", _shortest(ask, REMEMBERED_CALLS), "CPU us", 0.2
    )


def _shortest(work: Callable[[], None], calls: int) -> float:
    """Return the CPU time of each call in the fastest of several runs, in microseconds."""
    return min(timeit.repeat(work, timer=process_time, number=1, repeat=REPEATS)) / calls * 1e6


# -------------------------------------------------------------------------------------- the start


def _load() -> Figure:
    """Load ACLs as a broker does when it starts: from the nodes of the tree into the authorizer."""
    ops, _checks = AclTree().ops_to_add(bindings(COUNTS[-1]))
    nodes = [(each.path, Node(each.value, 0)) for each in ops if isinstance(each, Create)]
    authorization, image = _authorization(), ClusterImage()
    start = process_time()
    authorization.apply(image.apply_access(nodes))
    taken = process_time() - start
    assert len(list(authorization.authorizer.bindings)) == COUNTS[-1]
    return Figure(f"authorizer: loading {COUNTS[-1]:,} ACLs", taken, "CPU s", 3.0)


def _authorization() -> Authorization:
    return Authorization(BrokerConfig.from_properties({}), lambda: 0, lambda _delay, _call: None)


# ------------------------------------------------------------------------------------- throughput


def _throughput() -> Iterator[Figure]:
    with _broker(acl_count=0) as open_broker, _broker(acl_count=OF_BROKER) as secured:
        spent: dict[tuple[str, bool], float] = {}
        for _ in range(ROUNDS):
            for broker in (open_broker, secured):
                for name, work in (("produce", _produce), ("fetch", _fetch)):
                    before = cpu_seconds(broker.pid)
                    load.in_processes(1, partial(work, _bootstrap(broker)))
                    key = name, broker is secured
                    spent[key] = spent.get(key, 0.0) + cpu_seconds(broker.pid) - before
    for name in ("produce", "fetch"):
        yield Figure(
            f"authorizer: {name}, {OF_BROKER:,} ACLs, share of that without",
            100 * spent[name, False] / spent[name, True],
            "%",
            97.0,
            at_least=True,
        )


@contextmanager
def _broker(acl_count: int) -> Iterator[BrokerProcess]:
    """Provide a broker with the topics of the load, and an authorizer if it has ACLs."""
    overrides = acl_properties(SECURED) | {
        "listeners": f"{SECURED}://127.0.0.1:0,{OPEN}://127.0.0.1:0",
        "listener.security.protocol.map": f"{SECURED}:SASL_PLAINTEXT,{OPEN}:PLAINTEXT",
    }
    if not acl_count:
        del overrides["authorizer.class.name"]
    with BrokerProcess(overrides=overrides) as broker:
        if acl_count:
            _create_acls(broker, acl_count)
        load.create_topic(_bootstrap(broker), "single", PARTITIONS)
        load.create_topic(_bootstrap(broker), "fetched", 1)
        value = b"x" * (FETCHED_BYTES // PER_BATCH - 100)
        batch_bytes = (len(value) + 20) * PER_BATCH
        load.produce_batches(
            _bootstrap(broker), "fetched", 1, BATCHES * PER_BATCH, batch_bytes, value
        )
        yield broker


def _create_acls(broker: BrokerProcess, count: int) -> None:
    """Create ACLs, of which a few let clients without a user do what the load does."""
    needed = [
        AclBinding(kind, pattern, name, EVERY_USER, WILDCARD, AclOperation.ALL, ALLOW)
        for kind, pattern, name in (
            *((TOPIC, LITERAL, "single"), (TOPIC, PREFIXED, "fetch")),
            *((GROUP, LITERAL, "bench"), (AclResourceType.CLUSTER, LITERAL, "kafka-cluster")),
        )
    ]
    wanted = [*needed, *bindings(count - len(needed))]
    with log_in(broker.ports[SECURED], "admin") as admin:
        for first in range(0, count, IN_REQUEST):
            create_acls(admin, *wanted[first : first + IN_REQUEST])


def _bootstrap(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{broker.ports[OPEN]}"


def _produce(bootstrap: str, number: int) -> None:
    load.produce_singly(bootstrap, "single", 0, SINGLE_RECORDS)


def _fetch(bootstrap: str, number: int) -> None:
    """Read a topic with a request for each batch."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": FETCHED_BYTES,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition("fetched", 0, 0)])
    seen = 0
    while seen < BATCHES * PER_BATCH:
        seen += len(consumer.consume(1_000, 1.0))
    consumer.close()

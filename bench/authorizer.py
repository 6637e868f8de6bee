"""Costs of the authorizer: single decisions, the start with many ACLs, and throughput.

The ACLs are those of a shared cluster: a hundred teams with prefixes, applications with their own
topics and groups, some hosts and ranges, and one denial in fifty.

Throughput is requests per CPU second of the broker, which one core bounds, in the best of several
rounds. A broker with an authorizer and 10,000 ACLs and one without an authorizer take turns, so
that both have the same share of a busy machine. The requests are as small as they get, because the
authorizer works per request: one record to write, and one kilobyte to read without a session.
"""

from __future__ import annotations

import random
import socket
import struct
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import product
from time import process_time
from typing import Any

from tests.integration.security.acl_broker import (
    acl_properties,
    create_acls,
    fetch_request,
    log_in,
)
from tests.raw_client import RawClient, produce_body

from bench import load
from bench.measure import Figure, exact_cpu_seconds
from ottla.base.acl import (
    CLUSTER_NAME,
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
from ottla.wire import codec
from ottla.wire.api import Api
from ottla.wire.records.builder import build_batch

COUNTS = (10, 10_000, 100_000)
OF_BROKER = 10_000
ALICE = Principal("User", "app-7")
HERE = "10.0.7.7"
TEAMS, APPLICATIONS = 100, 500
REPEATS = 7
ASKED = 500
REMEMBERED_CALLS = 50_000
ROUNDS = 12
REQUESTS = 10_000
"""Number of requests of each kind in a round."""
IN_FLIGHT = 5
PRODUCE_VERSION, FETCH_VERSION = 12, 12
"""The newest versions with names of topics, which do not depend on a broker."""
TOPIC_NAME = "orders"
RECORD_BYTES = 100
FETCHED_BYTES = 1_000
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
        frames = _frames()
        spent: dict[tuple[str, bool], list[float]] = {}
        for number in range(ROUNDS):
            pair = (open_broker, secured) if number % 2 else (secured, open_broker)
            for broker, (name, frame) in product(pair, frames.items()):
                before = exact_cpu_seconds(broker.pid)
                load.in_processes(1, partial(_send, broker.ports[OPEN], frame))
                taken = exact_cpu_seconds(broker.pid) - before
                spent.setdefault((name, broker is secured), []).append(taken)
    for name in frames:
        yield Figure(
            f"authorizer: {name}, {OF_BROKER:,} ACLs, share of that without",
            100 * min(spent[name, False]) / min(spent[name, True]),
            "%",
            97.0,
            at_least=True,
        )


def _frames() -> dict[str, bytes]:
    """Return a request that writes a record, and one that reads the records without a session."""
    batch = build_batch([(None, b"x" * RECORD_BYTES, (), 1_000)])
    fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": FETCHED_BYTES}
    fetch = dict(fetch_request(max_wait_ms=0), max_bytes=FETCHED_BYTES)
    fetch["topics"] = [{"topic": TOPIC_NAME, "partitions": [fetched]}]
    requests: list[tuple[str, int, int, Mapping[str, Any]]] = [
        ("produce", Api.PRODUCE, PRODUCE_VERSION, produce_body({TOPIC_NAME: {0: batch}}, acks=1)),
        ("fetch", Api.FETCH, FETCH_VERSION, fetch),
    ]
    return {
        name: b"".join(codec.encode_request(api, version, 1, "bench", body))
        for name, api, version, body in requests
    }


def _send(port: int, frame: bytes, number: int) -> None:
    """Send the same request many times, with a few in flight, and drop the responses."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        responses = connection.makefile("rb")
        for _ in range(REQUESTS // IN_FLIGHT):
            connection.sendall(frame * IN_FLIGHT)
            for _ in range(IN_FLIGHT):
                (size,) = struct.unpack(">i", responses.read(4))
                assert len(responses.read(size)) == size


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
        load.create_topic(f"127.0.0.1:{broker.ports[OPEN]}", TOPIC_NAME, 1)
        with RawClient(broker.ports[OPEN]) as client:
            _check(client)
        yield broker


def _check(client: RawClient) -> None:
    """Write enough to read, and check that the requests of the load are permitted."""
    records = [(None, b"x" * RECORD_BYTES, (), 1_000)] * (FETCHED_BYTES // RECORD_BYTES)
    assert client.produce(TOPIC_NAME, records, version=PRODUCE_VERSION).error_code == 0
    assert client.fetch(TOPIC_NAME, version=FETCH_VERSION).error_code == 0


def _create_acls(broker: BrokerProcess, count: int) -> None:
    """Create ACLs, of which a few let clients without a user do what the load does."""
    needed = [
        AclBinding(TOPIC, LITERAL, TOPIC_NAME, EVERY_USER, WILDCARD, AclOperation.ALL, ALLOW),
        AclBinding(
            *(AclResourceType.CLUSTER, LITERAL, CLUSTER_NAME, EVERY_USER, WILDCARD),
            *(AclOperation.CREATE, ALLOW),
        ),
    ]
    wanted = [*needed, *bindings(count - len(needed))]
    with log_in(broker.ports[SECURED], "admin") as admin:
        for first in range(0, count, IN_REQUEST):
            create_acls(admin, *wanted[first : first + IN_REQUEST])

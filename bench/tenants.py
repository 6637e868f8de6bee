"""How much one tenant of a broker notices when another one attacks it.

Two users have a broker with ACLs and quotas to themselves. The tenant `alice` sends a record every
five milliseconds, first alone and then while `bob` attacks. `ATTACKS` lists the attacks, each with
the limit that stops it. Those that quotas of users stop are then repeated without these quotas,
which shows that the attack would have worked.

The attackers run with the lowest priority of the operating system, because they stand for clients
on other machines: what is measured is what they cost inside the broker.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from tests.integration.security.acl_broker import (
    PASSWORDS,
    acl,
    acl_properties,
    create_acls,
    log_in,
)
from tests.raw_client import Api, ConnectionClosed, produce_body

from bench.measure import Figure
from ottla.base.acl import AclBinding, PatternType
from ottla.base.errors import ErrorCode
from ottla.client.admin import Admin, QuotaEntity
from ottla.core.security.permissions import CREATE_TOPIC, READ_TOPIC, WRITE_TOPIC
from ottla.testing.broker import BrokerProcess
from ottla.wire.records.builder import build_batch

LISTENER = "SASL_PLAINTEXT"
STEADY, ATTACKER = "alice", "bob"
STEADY_TOPIC, ATTACKED_TOPIC = "alice-orders", "bob-junk"
ADDRESS = "127.0.0.2"
"""Address of the connections that `bob` opens by the thousand. All of it is loopback."""

ALONE_S = 10.0
ATTACK_S = 15.0
SETTLING_S = 2.0
"""Time that belongs to neither: clients connect, and quotas begin to limit."""
INTERVAL_S = 0.005
VALUE = bytes(1_000)
HUGE_BYTES = 64_000_000
CONNECTIONS = 5_000
BUDGET = 2.0
"""How many times as long the slowest of a hundred records may take during an attack."""

PROPERTIES = {
    "max.connections.per.ip.overrides": f"{ADDRESS}:200",
    "quota.window.num": "3",
    "controller.quota.window.num": "3",
}
USER_QUOTAS = {
    "producer_byte_rate": 1_000_000.0,
    "consumer_byte_rate": 1_000_000.0,
    "request_percentage": 5.0,
    "controller_mutation_rate": 1.0,
}
ADDRESS_QUOTAS = {"connection_creation_rate": 20.0}

_fork = multiprocessing.get_context("fork")


class Attack(NamedTuple):
    """An attack of one tenant on the broker."""

    name: str
    work: Callable[[int, float], None]
    """Function that attacks a port until a time."""
    stopped_by: str
    """Property, quota or feature that protects other tenants."""
    processes: int = 1

    @property
    def is_stopped_by_user_quota(self) -> bool:
        return self.stopped_by in USER_QUOTAS


def run() -> Iterator[Figure]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with BrokerProcess(overrides={**acl_properties(), **PROPERTIES}) as broker:
        port = broker.ports[LISTENER]
        _set_up(port)
        for attack in ATTACKS:
            yield from _figures(attack.name, *_latencies(port, attack), budget=BUDGET)
        with Admin(_settings(port, "admin")) as admin:
            admin.alter_client_quotas(QuotaEntity.of(user=ATTACKER), dict.fromkeys(USER_QUOTAS))
        for attack in ATTACKS:
            if attack.is_stopped_by_user_quota:
                yield from _figures(f"{attack.name}, no quotas", *_latencies(port, attack))


def _figures(
    name: str, alone_ms: float, attacked_ms: float, budget: float | None = None
) -> Iterator[Figure]:
    yield Figure(f"{name}: p99 before the attack", alone_ms, "ms")
    yield Figure(f"{name}: p99 during the attack", attacked_ms, "ms")
    yield Figure(f"{name}: ratio", attacked_ms / alone_ms, "", budget)


def _set_up(port: int) -> None:
    def prefixed(user: str) -> list[AclBinding]:
        granted = (READ_TOPIC, WRITE_TOPIC, CREATE_TOPIC)
        return [
            acl(each, f"{user}-", principal=f"User:{user}", pattern=PatternType.PREFIXED)
            for each in granted
        ]

    with log_in(port, "admin") as admin:
        create_acls(admin, *prefixed(STEADY), *prefixed(ATTACKER))
        for topic in (STEADY_TOPIC, ATTACKED_TOPIC):
            admin.create_topic(topic, 4, retention_bytes="100000000")
    with Admin(_settings(port, "admin")) as client:
        client.alter_client_quotas(QuotaEntity.of(user=ATTACKER), USER_QUOTAS)
        client.alter_client_quotas(QuotaEntity.of(ip=ADDRESS), ADDRESS_QUOTAS)


def _settings(port: int, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


# ----------------------------------------------------------------------------- the steady tenant


def _latencies(port: int, attack: Attack) -> tuple[float, float]:
    """Return the 99th percentile alone and during an attack, in milliseconds."""
    begin = time.monotonic() + SETTLING_S
    end = begin + ALONE_S + SETTLING_S + ATTACK_S
    attackers = [
        _fork.Process(target=_attack, args=(attack, port, begin + ALONE_S, end), daemon=True)
        for _ in range(attack.processes)
    ]
    for each in attackers:
        each.start()
    try:
        taken = _steady(port, end)
    finally:
        for each in attackers:
            each.kill()
            each.join()
    alone = [ms for at, ms in taken if begin <= at < begin + ALONE_S]
    attacked = [ms for at, ms in taken if at >= begin + ALONE_S + SETTLING_S]
    return _p99(alone), _p99(attacked)


def _steady(port: int, end: float) -> list[tuple[float, float]]:
    """Send records at a fixed rate; return when each was due, and how long it took."""
    taken: list[tuple[float, float]] = []
    failed: list[KafkaError] = []

    def done(due: float, error: KafkaError | None) -> None:
        if error is None:
            taken.append((due, (time.monotonic() - due) * 1000))
        else:
            failed.append(error)

    settings = _settings(port, STEADY)
    producer = Producer({**settings, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True})
    due = time.monotonic()
    while due < end:
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)

        def report(error: KafkaError | None, _: Message, due: float = due) -> None:
            done(due, error)

        producer.produce(STEADY_TOPIC, VALUE, on_delivery=report)
        due += INTERVAL_S
    producer.flush(60)
    if failed or len(producer):
        raise RuntimeError(f"{len(failed)} records of {STEADY} failed, {len(producer)} are left")
    return taken


def _p99(latencies_ms: list[float]) -> float:
    return sorted(latencies_ms)[len(latencies_ms) * 99 // 100]


# ---------------------------------------------------------------------------------- the attacks


def _attack(attack: Attack, port: int, begin: float, end: float) -> None:
    os.nice(19)
    time.sleep(max(0.0, begin - time.monotonic()))
    attack.work(port, end)


def _flood(port: int, end: float) -> None:
    producer = Producer({**_settings(port, ATTACKER), "acks": 1, "log_level": 2})
    while time.monotonic() < end:
        try:
            producer.produce(ATTACKED_TOPIC, VALUE)
        except BufferError:
            producer.poll(0.01)


def _requests(port: int, end: float) -> None:
    def ask() -> None:
        with log_in(port, ATTACKER) as client:
            while time.monotonic() < end:
                client.call(Api.METADATA, topics=None)

    _together(8, ask)


def _connections(port: int, end: float) -> None:
    opened = []
    for _ in range(CONNECTIONS):
        try:
            connection = socket.create_connection(
                ("127.0.0.1", port), timeout=1.0, source_address=(ADDRESS, 0)
            )
        except OSError:
            continue
        opened.append(connection)
    time.sleep(max(0.0, end - time.monotonic()))
    for connection in opened:
        connection.close()


def _huge_requests(port: int, end: float) -> None:
    batch = bytes(build_batch([(b"", bytes(HUGE_BYTES), (), 1_000)]))

    def send() -> None:
        while time.monotonic() < end:
            try:
                with log_in(port, ATTACKER) as client:
                    body = produce_body({ATTACKED_TOPIC: {0: batch}}, 1)
                    while time.monotonic() < end:
                        client.call(Api.PRODUCE, 12, **body)
            except (ConnectionClosed, OSError):
                time.sleep(0.1)

    _together(4, send)


def _topics(port: int, end: float) -> None:
    with log_in(port, ATTACKER) as client:
        number = 0
        while time.monotonic() < end:
            number += 1
            topic = {"name": f"bob-{number}", "num_partitions": 10, "replication_factor": 1}
            client.call(Api.CREATE_TOPICS, topics=[topic], timeout_ms=5_000)


def _topics_of_others(port: int, end: float) -> None:
    batch = bytes(build_batch([(b"", VALUE, (), 1_000)]))
    body = produce_body({STEADY_TOPIC: {0: batch}}, 1)

    def trespass() -> None:
        with log_in(port, ATTACKER) as client:
            while time.monotonic() < end:
                answer = client.call(Api.PRODUCE, 12, **body)
                code = answer.responses[0].partition_responses[0].error_code
                assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, answer

    _together(4, trespass)


def _together(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


ATTACKS = (
    Attack("sends as fast as it can", _flood, "producer_byte_rate", processes=2),
    Attack("small requests on 8 connections", _requests, "request_percentage"),
    Attack("5,000 connections", _connections, "connection_creation_rate"),
    Attack("requests of 64 MB on 4 connections", _huge_requests, "producer_byte_rate"),
    Attack("creates topics in a loop", _topics, "controller_mutation_rate"),
    Attack("writes to the other's topic", _topics_of_others, "ACLs"),
)

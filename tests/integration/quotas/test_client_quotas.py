"""Quotas for bytes and time, with clients that use as much as they can."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer
from tests.integration.quotas.greedy import (
    WINDOWS,
    Greedy,
    batch,
    fetch,
    fetching,
    producing,
    set_quotas,
)
from tests.raw_client import Api, RawClient, eventually, produce_body

from ottla.client.admin import QuotaEntity
from ottla.testing.broker_thread import BrokerThread

LIMIT = 200_000
SPAN_S = 1.0
BUSY_MACHINE_S = 10.0
"""Much more than an answer takes that does not wait for a quota."""
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(overrides=WINDOWS) as broker:
        yield broker


@pytest.fixture
def name() -> str:
    """Return a client ID and topic that no other test uses."""
    return f"client-{next(_numbers)}"


@pytest.fixture
def topic(broker: BrokerThread, name: str) -> str:
    broker.create_topic(name)
    return name


def limit(broker: BrokerThread, name: str, **quotas: float | None) -> None:
    set_quotas(broker, QuotaEntity.of(client_id=name), **quotas)


def assert_mean(
    clients: list[Greedy], begin: float, seconds: float, *, at_least: float = 0.6
) -> None:
    """Assert that clients with one quota used it, and no more, from their first request on.

    With windows this short, a client loses what it does not use within milliseconds."""
    used = sum(each.used(begin, begin + seconds) for each in clients)
    largest = max(size for each in clients for _, size in each.uses)
    assert used <= LIMIT * seconds * 1.05 + largest
    assert used >= LIMIT * seconds * at_least - largest


@pytest.mark.parametrize("size", [2_000, 30_000, 150_000])
def test_a_producer_gets_its_byte_rate(
    broker: BrokerThread, topic: str, name: str, size: int
) -> None:
    limit(broker, name, producer_byte_rate=LIMIT)
    begin = time.monotonic()
    client = Greedy(producing(broker.port, topic, size, name), begin + 4)
    client.join()
    assert_mean([client], begin, 4.0)


def test_a_producer_without_acknowledgements_is_throttled(
    broker: BrokerThread, topic: str, name: str
) -> None:
    limit(broker, name, producer_byte_rate=LIMIT)
    with RawClient(broker.port, client_id=name) as client:
        begin = time.monotonic()
        for _ in range(6):
            client.send(Api.PRODUCE, 12, **produce_body({topic: {0: batch(LIMIT // 2)}}, 0))
        client.produce(topic, batch(1_000), acks=1)
        assert time.monotonic() - begin >= 2.8  # three times the limit, less the credit


def test_a_consumer_gets_its_byte_rate(broker: BrokerThread, topic: str, name: str) -> None:
    fill(broker, topic, 20, 10_000)
    limit(broker, name, consumer_byte_rate=LIMIT)
    begin = time.monotonic()
    client = Greedy(fetching(broker.port, topic, name), begin + 4)
    client.join()
    assert_mean([client], begin, 4.0)


def fill(broker: BrokerThread, topic: str, batches: int, size: int) -> None:
    with RawClient(broker.port, client_id="unlimited") as client:
        for _ in range(batches):
            assert client.produce(topic, batch(size)).error_code == 0


@pytest.mark.parametrize("api", ["produce", "fetch"])
def test_connections_with_one_quota_get_equal_shares(
    broker: BrokerThread, topic: str, name: str, api: str
) -> None:
    fill(broker, topic, 20, 10_000)
    key = "producer_byte_rate" if api == "produce" else "consumer_byte_rate"
    limit(broker, name, **{key: LIMIT})
    steps = [
        producing(broker.port, topic, 10_000, name)
        if api == "produce"
        else fetching(broker.port, topic, name)
        for _ in range(4)
    ]
    begin = time.monotonic()
    clients = [Greedy(step, begin + 5) for step in steps]
    for client in clients:
        client.join()
    assert_mean(clients, begin, 5.0)
    # The first second's quota is for those who come first.
    shares = [each.used(begin + 1.5, begin + 5) for each in clients]
    assert min(shares) >= 0.7 * max(shares), shares


def test_a_client_over_its_quota_is_answered_at_once_and_not_read_meanwhile(
    broker: BrokerThread, topic: str, name: str
) -> None:
    limit(broker, name, producer_byte_rate=LIMIT)
    with RawClient(broker.port, client_id=name) as client:
        begin = time.monotonic()
        body = produce_body({topic: {0: batch(LIMIT * 3)}}, 1)
        answer = client.call(Api.PRODUCE, 12, **body)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert 2_800 <= answer.throttle_time_ms <= 3_100
        assert time.monotonic() - begin < 2.5
        assert broker.call(lambda: broker.broker.server.connections_throttled) == 1
        client.assert_is_silent()
        assert time.monotonic() - begin >= answer.throttle_time_ms / 1000 - 0.05
        answer = client.call(Api.PRODUCE, 12, **produce_body({topic: {0: batch(100)}}, 1))
        assert answer.throttle_time_ms <= 10


def test_a_fetch_over_the_quota_is_empty_and_not_counted(
    broker: BrokerThread, topic: str, name: str
) -> None:
    fill(broker, topic, 1, LIMIT * 5)
    limit(broker, name, consumer_byte_rate=LIMIT)
    with (
        RawClient(broker.port, client_id=name) as first,
        RawClient(broker.port, client_id=name) as second,
    ):
        answer = fetch(first, topic)
        assert len(answer.responses[0].partitions[0].records) > LIMIT * 4
        assert answer.throttle_time_ms > 4_500
        refused = fetch(second, topic)
        assert list(refused.responses) == []
        assert refused.error_code == 0
        assert 4_000 < refused.throttle_time_ms <= answer.throttle_time_ms
        limit(broker, name, consumer_byte_rate=None)
        assert fetch(second, topic).throttle_time_ms == 0


def test_a_fetch_is_cut_to_the_quota_of_the_windows(
    broker: BrokerThread, topic: str, name: str
) -> None:
    fill(broker, topic, 60, 10_000)
    limit(broker, name, consumer_byte_rate=LIMIT)
    with RawClient(broker.port, client_id=name) as client:
        answer = fetch(client, topic)
        records = answer.responses[0].partitions[0].records
        assert LIMIT * SPAN_S * 0.9 <= len(records) <= LIMIT * SPAN_S
        assert answer.throttle_time_ms == 0


def test_a_changed_quota_applies_to_throttled_connections_at_once(
    broker: BrokerThread, topic: str, name: str
) -> None:
    limit(broker, name, producer_byte_rate=1_000)
    with RawClient(broker.port, client_id=name) as client:
        begin = time.monotonic()
        answer = client.call(Api.PRODUCE, 12, **produce_body({topic: {0: batch(100_000)}}, 1))
        assert answer.throttle_time_ms > 90_000
        limit(broker, name, producer_byte_rate=100_000)
        client.assert_is_silent()
        answer = client.call(Api.PRODUCE, 12, **produce_body({topic: {0: batch(50_000)}}, 1))
        assert answer.throttle_time_ms == 0
        limit(broker, name, producer_byte_rate=None)
        client.assert_is_silent()
        assert time.monotonic() - begin < BUSY_MACHINE_S * 3


def test_a_reconnecting_client_keeps_its_debt(broker: BrokerThread, topic: str, name: str) -> None:
    limit(broker, name, producer_byte_rate=LIMIT)
    with RawClient(broker.port, client_id=name) as client:
        first = client.call(Api.PRODUCE, 12, **produce_body({topic: {0: batch(LIMIT * 5)}}, 1))
    with RawClient(broker.port, client_id=name) as client:
        second = client.call(Api.PRODUCE, 12, **produce_body({topic: {0: batch(LIMIT)}}, 1))
    assert first.throttle_time_ms > 4_000
    assert second.throttle_time_ms > 4_000


def test_throttled_connections_that_are_closed_leave_nothing(
    broker: BrokerThread, topic: str, name: str
) -> None:
    server = broker.broker.server
    limit(broker, name, producer_byte_rate=1_000)
    for _ in range(20):
        with RawClient(broker.port, client_id=name) as client:
            client.call(Api.PRODUCE, 12, **produce_body({topic: {0: batch(20_000)}}, 1))
    assert broker.call(lambda: server.connections_throttled) == 20
    limit(broker, name, producer_byte_rate=None)
    eventually(lambda: broker.call(lambda: server.connections_throttled), lambda found: not found)
    eventually(lambda: broker.call(lambda: server.connections_open), lambda found: found <= 1)


def test_the_most_specific_quota_counts(broker: BrokerThread, topic: str, name: str) -> None:
    user = QuotaEntity.of(user="ANONYMOUS")
    both = QuotaEntity.of(user="ANONYMOUS", client_id=name)
    body = produce_body({topic: {0: batch(100_000)}}, 1)
    limit(broker, name, producer_byte_rate=1_000)
    set_quotas(broker, user, producer_byte_rate=10_000)
    set_quotas(broker, both, producer_byte_rate=20_000)
    with RawClient(broker.port, client_id=name) as client:
        expected = {both: 5_000, user: 10_000, QuotaEntity.of(client_id=name): 100_000}
        for entity, throttle_ms in expected.items():
            answer = client.call(Api.PRODUCE, 12, **body)
            assert 0.9 * throttle_ms <= answer.throttle_time_ms <= 1.05 * throttle_ms
            set_quotas(broker, entity, producer_byte_rate=None)
        assert client.call(Api.PRODUCE, 12, **body).throttle_time_ms == 0


def test_request_time_is_limited(broker: BrokerThread, topic: str, name: str) -> None:
    limit(broker, name, request_percentage=0.1)
    with RawClient(broker.port, client_id=name) as client:

        def step() -> int:
            return client.call(Api.METADATA, topics=None).throttle_time_ms

        throttle_ms = eventually(step, lambda found: found > 0)
        assert throttle_ms <= 1_000
        limit(broker, name, request_percentage=None)
        assert step() == 0


def test_librdkafka_reports_throttle_times(broker: BrokerThread, topic: str, name: str) -> None:
    limit(broker, name, producer_byte_rate=LIMIT)
    throttled: list[float] = []
    arrived = threading.Event()

    def on_throttle(event: object) -> None:
        throttled.append(event.throttle_time)  # type: ignore[attr-defined]
        arrived.set()

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": name, "throttle_cb": on_throttle}
    )
    for _ in range(5):
        producer.produce(topic, bytes(LIMIT // 2))
    assert producer.flush(60) == 0
    deadline = time.monotonic() + BUSY_MACHINE_S
    while not arrived.is_set() and time.monotonic() < deadline:
        producer.poll(0.1)
    assert throttled
    assert max(throttled) > 0.2


def test_a_connection_below_its_quota_keeps_the_fast_path(
    broker: BrokerThread, topic: str, name: str
) -> None:
    limit(broker, name, producer_byte_rate=LIMIT)
    with RawClient(broker.port, client_id=name) as client:
        body = produce_body({topic: {0: batch(1_000)}}, 1)
        answers = [client.call(Api.PRODUCE, 12, **body) for _ in range(20)]
        offsets = [each.responses[0].partition_responses[0].base_offset for each in answers]
        assert offsets == list(range(20))
        assert {each.throttle_time_ms for each in answers} == {0}
        answer = client.call(Api.PRODUCE, 12, **produce_body({topic: {0: batch(LIMIT * 2)}}, 1))
        assert answer.throttle_time_ms > 0


@pytest.mark.chaos
@pytest.mark.parametrize("api", ["produce", "fetch"])
@pytest.mark.parametrize("size", [8_000, 16_000, 80_000])
def test_a_client_stays_within_five_percent_over_ten_seconds(
    topic_of_its_own: tuple[BrokerThread, str], api: str, size: int
) -> None:
    broker, name = topic_of_its_own
    fill(broker, name, 4_000_000 // size, size)
    key = "producer_byte_rate" if api == "produce" else "consumer_byte_rate"
    limit(broker, name, **{key: LIMIT})
    begin = time.monotonic()
    step = producing(broker.port, name, size, name) if api == "produce" else None
    client = Greedy(step or fetching(broker.port, name, name), begin + 31)
    client.join()
    for start in (0.0, 10.5, 15.5, 20.5):  # the burst of ten seconds is followed by a pause
        used = client.used(begin + start, begin + start + 10) / 10
        assert 0.95 * LIMIT <= used <= 1.05 * LIMIT + size / 10, start


@pytest.fixture
def topic_of_its_own(name: str) -> Iterator[tuple[BrokerThread, str]]:
    with BrokerThread() as broker:
        broker.create_topic(name)
        yield broker, name


@pytest.mark.chaos
def test_requests_larger_than_all_windows_keep_the_mean(
    topic_of_its_own: tuple[BrokerThread, str],
) -> None:
    broker, name = topic_of_its_own
    limit(broker, name, producer_byte_rate=60_000)
    begin = time.monotonic()
    client = Greedy(producing(broker.port, name, 900_000, name), begin + 62)
    client.join()
    last = client.uses[-1][0]
    assert client.used(begin, last) == pytest.approx(60_000 * (last - begin), rel=0.05)

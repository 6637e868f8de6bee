"""Records of one client read by every other, byte for byte, with headers and timestamps."""

from __future__ import annotations

import time

import pytest
from tests.compat.clients.kcat import Kcat
from tests.compat.clients.record import CODECS, Client, ManagingClient, Received, Sent
from tests.compat.conftest import CLIENTS, LIBRARIES, make_client
from tests.raw_client import RawClient

from ottla.testing.broker import BrokerProcess
from ottla.wire.records.batch import iter_headers
from ottla.wire.records.compression import codec_id

FIRST_TIMESTAMP = 1_700_000_000_000

RECORDS = [
    Sent(b"key", b"value"),
    Sent(None, b"no key"),
    Sent(b"tombstone", None),
    Sent(None, None),
    Sent(b"", b"an empty key is not null"),
    Sent(b"binary", bytes(range(256)) * 40),
    Sent("ключ".encode(), "значение".encode()),
    Sent(b"h", b"headers", (("a", b"1"), ("a", b"a second a"), ("ü", "ö".encode()), ("e", b""))),
    *[Sent(b"k%d" % (number % 3), b"compressible " * 100) for number in range(12)],
]


def stamped(records: list[Sent]) -> list[Sent]:
    """Return the records with explicit timestamps, not all of them in order."""
    return [
        record._replace(timestamp=FIRST_TIMESTAMP + (number * 1000 if number % 5 else 0))
        for number, record in enumerate(records)
    ]


def for_client(client: Client) -> list[Sent]:
    records = stamped(RECORDS) if client.sets_timestamps else RECORDS
    return [record for record in records if client.can_send(record)]


def assert_same(received: list[Received], sent: list[Sent], since_ms: int) -> None:
    assert [each.offset for each in received] == list(range(len(sent)))
    for got, gave in zip(received, sent, strict=True):
        assert (got.key, got.value, got.headers) == (gave.key, gave.value, gave.headers)
        if gave.timestamp is not None:
            assert got.timestamp == gave.timestamp
        else:
            assert since_ms <= got.timestamp <= time.time() * 1000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_what_one_client_writes_all_clients_read(
    broker: BrokerProcess, raw: RawClient, client: Client, codec: str, topic: str
) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name} has no {codec} here")
    since_ms = int(time.time() * 1000)
    sent = for_client(client)
    client.create_topic(topic)
    client.produce(topic, sent, compression=codec)

    stored = bytes(raw.fetch(topic).records)
    assert codec_id(codec) in {header.compression for header in iter_headers(stored)}
    for name in CLIENTS:
        reader = make_client(name, broker.bootstrap)
        if codec in reader.codecs:
            assert_same(reader.consume(topic, len(sent)), sent, since_ms)


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
@pytest.mark.parametrize(
    ("acks", "idempotent"), [("0", False), ("1", False), ("all", False), ("all", True)]
)
def test_records_arrive_with_every_kind_of_acknowledgement(
    client: Client, topic: str, acks: str, idempotent: bool
) -> None:
    since_ms = int(time.time() * 1000)
    client.create_topic(topic)
    sent = for_client(client)
    client.produce(topic, sent, acks=acks, idempotent=idempotent)
    assert_same(client.consume(topic, len(sent)), sent, since_ms)


@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_idempotent_batches_carry_a_producer_and_a_sequence(
    raw: RawClient, client: Client, topic: str
) -> None:
    client.create_topic(topic)
    sent = for_client(client)
    client.produce(topic, sent, idempotent=True)
    client.produce(topic, sent, idempotent=False)
    headers = list(iter_headers(bytes(raw.fetch(topic).records)))
    with_producer = [header for header in headers if header.last_offset < len(sent)]
    assert {header.producer_id >= 0 for header in with_producer} == {True}
    assert with_producer[0].base_sequence == 0
    assert headers[-1].producer_id == -1


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_consumer_seeks_by_time(raw: RawClient, client: Client, topic: str) -> None:
    raw.create_topic(topic)
    for number in range(10):
        raw.produce(topic, [(b"k", b"%d" % number, (), FIRST_TIMESTAMP + number * 1000)])
    at_fourth = client.offset_at(topic, FIRST_TIMESTAMP + 3000)
    between = client.offset_at(topic, FIRST_TIMESTAMP + 3001)
    assert (at_fourth, between) == (3, 4)
    assert client.offset_at(topic, 0) == 0
    found = client.consume(topic, 7, offset=at_fourth or 0)
    assert [record.value for record in found] == [b"%d" % number for number in range(3, 10)]


@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_no_record_is_found_after_the_last(raw: RawClient, client: Client, topic: str) -> None:
    raw.create_topic(topic)
    raw.produce(topic, [(b"k", b"v", (), FIRST_TIMESTAMP)])
    assert client.offset_at(topic, FIRST_TIMESTAMP + 1) is None


@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_a_client_deletes_what_it_created(
    raw: RawClient, client: ManagingClient, topic: str
) -> None:
    client.create_topic(topic)
    assert topic in client.topics()
    client.produce(topic, [Sent(b"k", b"v")])
    client.delete_topic(topic)
    assert topic not in client.topics()
    client.create_topic(topic)
    assert raw.offsets(topic) == (0, 0)


def test_kcat_creates_a_topic_by_producing_to_it(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    kcat = make_client("kcat", broker.bootstrap)
    kcat.produce(topic, [Sent(b"k", b"v")])
    assert topic in kcat.topics()
    assert raw.offsets(topic) == (0, 1)


def test_kcat_reads_from_a_time_on(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    kcat = make_client("kcat", broker.bootstrap)
    assert isinstance(kcat, Kcat)
    raw.create_topic(topic)
    for number in range(6):
        raw.produce(topic, [(None, b"%d" % number, (), FIRST_TIMESTAMP + number * 1000)])
    found = kcat.consume(topic, 2, offset=f"s@{FIRST_TIMESTAMP + 3500}")
    assert [record.value for record in found] == [b"4", b"5"]

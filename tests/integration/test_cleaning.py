"""Retention and compaction as clients see them; offsets never change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from tests.raw_client import Api, RawClient, eventually, values

from ottla.testing.broker import BrokerProcess
from ottla.wire.records.record import BatchRecord

OVERRIDES = {
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "0",
}
HOUR_MS = 3_600_000
SEGMENT: dict[str, Any] = {"segment_bytes": "1048576"}
FILLER = bytes(1_000_000)
"""A value so large that one more of them fills a segment."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True, overrides=OVERRIDES) as process:
        yield process
        log = process.log()
    assert "Traceback" not in log, log


def now_ms() -> int:
    return int(time.time() * 1000)


def produce(client: RawClient, topic: str, age_ms: int = 0, key: bytes | None = b"k") -> int:
    """Produce a record that almost fills a segment, and return its offset."""
    answer = client.produce(topic, [(key, FILLER, (), now_ms() - age_ms)])
    assert answer.error_code == 0
    offset: int = answer.base_offset
    return offset


def logs(broker: BrokerProcess, topic: str) -> list[str]:
    return sorted(each.name for each in (broker.data_dir / f"{topic}-0").glob("*.log*"))


# ------------------------------------------------------------------------------------ retention


def test_old_segments_go_by_time(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    client.create_topic(topic, **SEGMENT, retention_ms=str(HOUR_MS), file_delete_delay_ms="0")
    for age_ms in (3 * HOUR_MS, 2 * HOUR_MS, 1000, 0):
        produce(client, topic, age_ms)
    eventually(lambda: client.offsets(topic), lambda found: found == (2, 4))
    assert [record.offset for record in client.records(topic, 2)] == [2, 3]
    assert client.fetch(topic, 1).error_code == 1
    names = [f"{offset:020d}.log" for offset in (2, 3)]
    eventually(lambda: logs(broker, topic), lambda found: found == names)


def test_the_active_segment_goes_by_time_too(client: RawClient, topic: str) -> None:
    client.create_topic(topic, **SEGMENT, retention_ms="1000")
    produce(client, topic, HOUR_MS)
    eventually(lambda: client.offsets(topic), lambda found: found == (1, 1))
    assert produce(client, topic) == 1


def test_old_segments_go_by_size(client: RawClient, topic: str) -> None:
    client.create_topic(topic, **SEGMENT, retention_bytes="2500000")
    for _ in range(6):
        produce(client, topic)
    eventually(lambda: client.offsets(topic), lambda found: found == (3, 6))


def test_a_segment_with_one_young_record_stays(client: RawClient, topic: str) -> None:
    client.create_topic(topic, **SEGMENT, retention_ms=str(HOUR_MS))
    client.produce(topic, [(None, b"old", (), now_ms() - 2 * HOUR_MS)])
    client.produce(topic, [(None, b"young", (), now_ms())])
    client.produce(topic, [(None, b"old", (), now_ms() - 2 * HOUR_MS)])
    marker = f"{topic}-marker"
    client.create_topic(marker, **SEGMENT, retention_ms="1000")
    produce(client, marker, HOUR_MS)
    eventually(lambda: client.offsets(marker), lambda found: found == (1, 1))
    assert client.offsets(topic) == (0, 3)


def test_a_compacted_topic_is_not_subject_to_retention(client: RawClient, topic: str) -> None:
    client.create_topic(topic, **SEGMENT, cleanup_policy="compact", retention_ms="1000")
    produce(client, topic, 2 * HOUR_MS, b"a")
    produce(client, topic, 2 * HOUR_MS, b"b")
    marker = f"{topic}-marker"
    client.create_topic(marker, **SEGMENT, retention_ms="1000")
    produce(client, marker, HOUR_MS)
    eventually(lambda: client.offsets(marker), lambda found: found == (1, 1))
    assert client.offsets(topic) == (0, 2)


# ----------------------------------------------------------------------------------- compaction


def write_versions(client: RawClient, topic: str, keys: int, versions: int, **batch: Any) -> int:
    """Write every key in every version, fill the segment, and return the record count."""
    count = 0
    for version in range(versions):
        for key in range(keys):
            records = [(b"key %d" % key, b"version %d" % version, (), now_ms())]
            client.produce(topic, records, **batch)
            count += 1
    for number in range(2):
        client.produce(topic, [(b"filler %d" % number, FILLER, (), now_ms())])
    return count


def small(records: list[BatchRecord]) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return offset -> (key, value) of the records that are not fillers."""
    return {
        record.offset: (record.key, record.value)
        for record in records
        if record.key is None or not record.key.startswith(b"filler")
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_only_the_last_version_of_each_key_stays(client: RawClient, topic: str, codec: str) -> None:
    client.create_topic(
        topic, **SEGMENT, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0001"
    )
    count = write_versions(client, topic, keys=5, versions=10, compression=codec)
    expected = {count - 5 + key: (b"key %d" % key, b"version 9") for key in range(5)}
    eventually(lambda: small(client.records(topic)), lambda found: found == expected)
    assert client.offsets(topic)[1] == count + 2
    # A fetch at a removed offset continues with the next one that is there.
    assert client.records(topic, 3)[0].offset == count - 5
    assert client.fetch(topic, 3).error_code == 0
    assert client.produce(topic, [(b"key 0", b"next", (), now_ms())]).base_offset == count + 2


def test_tombstones_remove_their_keys_and_then_go(client: RawClient, topic: str) -> None:
    client.create_topic(
        topic,
        **SEGMENT,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.0001",
        delete_retention_ms="500",
    )
    client.produce(topic, [(b"gone", b"v", (), now_ms())])
    client.produce(topic, [(b"kept", b"v", (), now_ms())])
    client.produce(topic, [(b"gone", None, (), now_ms())])
    for number in range(2):
        client.produce(topic, [(b"filler %d" % number, FILLER, (), now_ms())])
    eventually(
        lambda: small(client.records(topic)),
        lambda found: found == {1: (b"kept", b"v"), 2: (b"gone", None)},
    )

    def without_tombstone() -> bool:
        # Only new records make a log dirty enough to be cleaned again.
        client.produce(topic, [(b"filler", FILLER, (), now_ms())])
        return small(client.records(topic)) == {1: (b"kept", b"v")}

    eventually(without_tombstone)


def test_young_records_are_not_compacted(client: RawClient, topic: str) -> None:
    client.create_topic(
        topic,
        **SEGMENT,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.0001",
        min_compaction_lag_ms=str(HOUR_MS),
    )
    compacted = f"{topic}-compacted"
    client.create_topic(
        compacted, **SEGMENT, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0001"
    )
    for each in (topic, compacted):
        write_versions(client, each, keys=1, versions=3)
    eventually(lambda: len(small(client.records(compacted))), lambda count: count == 1)
    assert len(small(client.records(topic))) == 3


def test_compaction_and_retention_go_together(client: RawClient, topic: str) -> None:
    client.create_topic(
        topic,
        **SEGMENT,
        cleanup_policy="compact,delete",
        min_cleanable_dirty_ratio="0.0001",
        retention_ms=str(HOUR_MS),
    )
    produce(client, topic, 2 * HOUR_MS, b"old")
    for _ in range(3):
        produce(client, topic, 0, b"young")
    produce(client, topic, 0, b"last")
    eventually(lambda: client.offsets(topic)[0], lambda start: start >= 1)
    eventually(
        lambda: [record.key for record in client.records(topic, client.offsets(topic)[0])],
        lambda keys: keys == [b"young", b"last"],
    )


def test_a_retry_is_known_after_its_batch_was_compacted(client: RawClient, topic: str) -> None:
    client.create_topic(
        topic, **SEGMENT, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0001"
    )
    identity = {"producer_id": client.new_producer(), "producer_epoch": 0}
    first = [(b"key", b"version 0", (), now_ms())]
    client.produce(topic, first, **identity, base_sequence=0)
    client.produce(topic, [(b"key", b"version 1", (), now_ms())])
    for number in range(2):
        client.produce(topic, [(b"filler %d" % number, FILLER, (), now_ms())])
    eventually(lambda: sorted(small(client.records(topic))), lambda found: found == [1])
    again = client.produce(topic, first, **identity, base_sequence=0)
    assert (again.error_code, again.base_offset) == (0, 0)


def test_compacted_records_survive_kill(topic: str) -> None:
    with BrokerProcess(overrides=OVERRIDES) as own:
        with RawClient(own.port) as client:
            client.create_topic(
                topic, **SEGMENT, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0001"
            )
            count = write_versions(client, topic, keys=3, versions=5)
            expected = {count - 3 + key: (b"key %d" % key, b"version 4") for key in range(3)}
            eventually(lambda: small(client.records(topic)), lambda found: found == expected)
        own.restart(kill=True)
        with RawClient(own.port) as client:
            assert small(client.records(topic)) == expected
            assert client.offsets(topic)[1] == count + 2


def test_requests_are_served_while_a_log_is_compacted(client: RawClient, topic: str) -> None:
    client.create_topic(
        topic, **SEGMENT, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0001"
    )
    records = [(b"%d" % (each % 500), bytes(100), (), now_ms()) for each in range(5000)]
    delays = []

    def ask() -> None:
        started = time.monotonic()
        client.call(Api.METADATA, 4, topics=[], allow_auto_topic_creation=False)
        delays.append(time.monotonic() - started)

    for _ in range(20):  # compaction may be finished by the last of them
        assert client.produce(topic, records).error_code == 0
        ask()
    deadline = time.monotonic() + 20
    while len(values(client.records(topic))) > 30_000 and time.monotonic() < deadline:
        ask()
    assert len(values(client.records(topic))) <= 30_000
    assert median(delays) < 0.25

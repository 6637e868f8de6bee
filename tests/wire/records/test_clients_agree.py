"""Batches of other clients are readable here, and ours by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import given, settings
from kafka.codec import has_snappy
from kafka.record import default_records as kafka_python_records
from tests.wire.records.strategies import EXAMPLE, codecs, records

from ottla.wire.records.batch import read_header, validate
from ottla.wire.records.builder import build_batch, end_txn_marker
from ottla.wire.records.compression import NAMES
from ottla.wire.records.record import BatchRecord, check_records, iter_records

CLIENTS = {"kafka-python": kafka_python_records, "aiokafka": aiokafka_records}
every_client = pytest.mark.parametrize("client", CLIENTS)
every_codec = pytest.mark.parametrize("codec", NAMES)


def knows(client: str, codec: str) -> bool:
    """Return whether the client has the codec: snappy is optional for kafka-python."""
    return codec != "snappy" or client != "kafka-python" or has_snappy()


def skip_unless_known(client: str, codec: str) -> None:
    if not knows(client, codec):
        pytest.skip("kafka-python has no snappy without python-snappy")


def built_by(client: str, originals: Iterable[BatchRecord], codec: str) -> bytes:
    builder = CLIENTS[client].DefaultRecordBatchBuilder(
        magic=2,
        compression_type=NAMES.index(codec),
        is_transactional=False,
        producer_id=17,
        producer_epoch=2,
        base_sequence=5,
        batch_size=1 << 20,
    )
    for record in originals:
        builder.append(
            record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return bytes(builder.build())


def read_by(client: str, batch: bytes) -> list[BatchRecord]:
    theirs: Any = CLIENTS[client].DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    return [BatchRecord(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]


@every_client
@every_codec
def test_their_batches_are_valid_and_read_the_same_here(client: str, codec: str) -> None:
    skip_unless_known(client, codec)
    batch = built_by(client, EXAMPLE, codec)
    header = read_header(batch)
    validate(batch, 0, header, from_client=True)
    check_records(batch, header, require_keys=False)
    assert header.compression == NAMES.index(codec)
    assert (header.producer_id, header.producer_epoch) == (17, 2)
    assert (header.base_sequence, header.last_sequence) == (5, 8)
    assert list(iter_records(batch, header)) == EXAMPLE


@every_client
@every_codec
def test_our_batches_read_the_same_there(client: str, codec: str) -> None:
    skip_unless_known(client, codec)
    batch = build_batch(EXAMPLE, compression=codec)
    assert read_by(client, batch) == EXAMPLE


def with_known_timestamps(originals: list[BatchRecord]) -> list[BatchRecord]:
    """Replace negative timestamps: kafka-python treats a first timestamp of -1 as not set yet."""
    return [record._replace(timestamp=max(record.timestamp, 0)) for record in originals]


@settings(max_examples=50)
@given(records(), codecs)
def test_any_batch_reads_the_same_in_all_three(originals: list[BatchRecord], codec: str) -> None:
    originals = with_known_timestamps(originals)
    ours = build_batch(originals, compression=codec)
    for client in (client for client in CLIENTS if knows(client, codec)):
        assert read_by(client, ours) == originals
        theirs = built_by(client, originals, codec)
        assert list(iter_records(theirs, read_header(theirs))) == originals


@settings(max_examples=50)
@given(records())
def test_uncompressed_batches_are_the_same_bytes_in_all_three(originals: list[BatchRecord]) -> None:
    originals = with_known_timestamps(originals)
    ours = build_batch(originals, producer_id=17, producer_epoch=2, base_sequence=5)
    for client in CLIENTS:
        theirs = bytearray(built_by(client, originals, "none"))
        theirs[12:16] = b"\xff" * 4  # the leader epoch, which only the broker sets
        assert bytes(theirs) == ours


@every_client
@pytest.mark.parametrize("commit", [True, False])
def test_end_markers_are_control_batches_there_too(client: str, commit: bool) -> None:
    theirs = CLIENTS[client].DefaultRecordBatch(end_txn_marker(17, 2, commit, 9, 1_000))
    assert theirs.is_control_batch
    assert theirs.is_transactional
    (record,) = theirs
    assert record.key == (b"\x00\x00\x00\x01" if commit else b"\x00\x00\x00\x00")

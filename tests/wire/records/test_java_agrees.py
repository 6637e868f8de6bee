"""Batches written by Apache Kafka 4.3's own Java code (`java_batches.json`, in hex) against ours.

All have base offset 50, leader epoch 3 and producer 7. The three compacted ones were made from
the uncompressed batch, when the delete horizon was 1700086900000."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.wire.records.batch import read_header, validate
from ottla.wire.records.builder import build_batch, end_txn_marker, read_end_txn_marker
from ottla.wire.records.compression import NAMES
from ottla.wire.records.record import BatchRecord, iter_records
from ottla.wire.records.rewrite import emptied, retain_records, with_delete_horizon

JAVA = {
    name: bytes.fromhex(batch)
    for name, batch in json.loads(Path(__file__).with_name("java_batches.json").read_text()).items()
}
RECORDS = [
    BatchRecord(
        50, 1_700_000_000_000, b"key", b"value", (("trace", b"1"), ("empty", b""), ("no", None))
    ),
    BatchRecord(51, 1_699_999_999_000, None, b"x" * 300, ()),
    BatchRecord(52, 1_700_000_086_400, b"gone", None, ()),
    BatchRecord(53, 1_700_000_000_000, b"", b"", (("ключ", b"\xff"),)),
]
HORIZON = 1_700_086_900_000


@pytest.mark.parametrize("codec", NAMES)
def test_javas_batches_read_the_same_here(codec: str) -> None:
    batch = JAVA[codec]
    header = read_header(batch)
    validate(batch, 0, header)
    assert header.compression == NAMES.index(codec)
    assert list(iter_records(batch, header)) == RECORDS


def test_an_uncompressed_batch_is_the_same_bytes() -> None:
    ours = build_batch(
        RECORDS,
        base_offset=50,
        leader_epoch=3,
        producer_id=7,
        producer_epoch=1,
        base_sequence=40,
        transactional=True,
    )
    assert ours == JAVA["none"]


def test_compaction_makes_the_same_bytes() -> None:
    batch = JAVA["none"]
    header = read_header(batch)
    assert with_delete_horizon(batch, HORIZON) == JAVA["all kept, delete horizon set"]
    assert retain_records(batch, header, {50, 53}) == JAVA["50 and 53 kept"]
    assert emptied(batch, header) == JAVA["none kept"]


@pytest.mark.parametrize("commit", [True, False])
def test_end_markers_are_the_same_bytes(commit: bool) -> None:
    theirs = JAVA["commit marker" if commit else "abort marker"]
    marker = read_end_txn_marker(theirs)
    assert marker is not None
    assert (marker.commit, marker.coordinator_epoch) == (commit, 9)
    ours = end_txn_marker(7, 1, commit, 9, 1_700_000_000_000, base_offset=50, leader_epoch=3)
    assert ours == theirs

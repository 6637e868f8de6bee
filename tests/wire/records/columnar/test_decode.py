from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.records.strategies import EXAMPLE, codecs, records

from ottla.base.errors import ErrorCode
from ottla.wire.records import batch as b
from ottla.wire.records.batch import iter_headers, seal
from ottla.wire.records.builder import build_batch, encode_record, end_txn_marker
from ottla.wire.records.columnar.decode import COLUMNS, SCHEMA, DecodedRecords, decode_fetch
from ottla.wire.records.columnar.scan import scan_fetch
from ottla.wire.records.compression import NAMES
from ottla.wire.records.errors import BatchError, CorruptBatch, UnsupportedMagic
from ottla.wire.records.fetched import MAX_OFFSET
from ottla.wire.records.record import BatchRecord, iter_records
from ottla.wire.records.varint import encode_varint

SHORT_WAY: list[tuple[int, int]] = []
LONG_WAY = [(12_345, 0)]
"""An aborted transaction of an unknown producer.

It does not change the result, but makes the decoder take its slower, more careful path."""


def decoded(data: bytes | bytearray | memoryview, **options: Any) -> list[DecodedRecords]:
    parts = list(decode_fetch(data, **options))
    for part in parts:
        part.batch.validate(full=True)
    return parts


def as_records(parts: Sequence[DecodedRecords]) -> list[BatchRecord]:
    """Return the rows of all columns in the form of the record-by-record reader."""
    return [
        BatchRecord(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for part in parts
        for row in part.batch.to_pylist()
    ]


def one_by_one(data: bytes | bytearray) -> list[BatchRecord]:
    return [record for header in iter_headers(data) for record in iter_records(data, header)]


def batch_of(section: bytes, count: int) -> bytearray:
    """Build a batch with a valid CRC around arbitrary bytes."""
    batch = bytearray(build_batch(EXAMPLE)[: b.HEADER_SIZE]) + section
    struct.pack_into(">i", batch, b.LAST_OFFSET_DELTA_AT, max(count - 1, 0))
    struct.pack_into(">i", batch, b.RECORD_COUNT_AT, count)
    return seal(batch)


@given(st.lists(st.tuples(records(), codecs), min_size=1, max_size=4), st.integers(0, 2**60))
def test_any_batches_read_as_one_by_one(
    batches: list[tuple[list[BatchRecord], str]], base_offset: int
) -> None:
    data = b""
    for originals, codec in batches:
        data += build_batch(originals, base_offset=base_offset, compression=codec)
        base_offset += len(originals)
    (part,) = decoded(data)
    assert as_records([part]) == one_by_one(data)
    assert (part.next_offset, part.size) == (base_offset, len(data))
    assert part.batch.schema == SCHEMA


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", NAMES)
def test_every_codec_and_every_kind_of_buffer_is_read(codec: str, kind: Any) -> None:
    data = build_batch(EXAMPLE, compression=codec)
    assert as_records(decoded(kind(data))) == EXAMPLE
    assert as_records(decoded(memoryview(bytearray(b"??" + data))[2:])) == EXAMPLE


@settings(max_examples=50)
@given(
    records(),
    codecs,
    st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True),
)
def test_a_projection_is_those_columns_in_that_order(
    originals: list[BatchRecord], codec: str, columns: list[str]
) -> None:
    data = build_batch(originals, compression=codec)
    (whole,), (part,) = decoded(data), decoded(data, columns=columns)
    assert part.batch.equals(whole.batch.select(columns))
    assert part.batch.schema.names == columns


@pytest.mark.parametrize("columns", [[], ["offset", "offset"], ["partition"]])
def test_columns_that_cannot_be_given_are_named(columns: list[str]) -> None:
    with pytest.raises(ValueError, match=r"offset, timestamp|'offset'"):
        next(decode_fetch(b"", columns))


def fetch_of(count: int, per_batch: int, codec: str = "none") -> bytes:
    return b"".join(
        build_batch(
            [(b"%d" % offset, None, (), offset) for offset in range(base, base + per_batch)],
            base_offset=base,
            compression=codec,
        )
        for base in range(0, count, per_batch)
    )


@given(st.integers(0, 45), st.integers(0, 45), st.sampled_from(["none", "lz4"]))
def test_bounds_cut_within_batches(first: int, end: int, codec: str) -> None:
    data = fetch_of(40, 8, codec)
    bounds = {"columns": ["offset", "key"], "first_offset": first, "end_offset": end}
    parts = decoded(data, **bounds)
    assert parts == decoded(data, **bounds, aborted=LONG_WAY)
    offsets = [row["offset"] for part in parts for row in part.batch.to_pylist()]
    assert offsets == list(range(first, min(end, 40)))
    if parts:
        assert parts[-1].next_offset == min(max(first, min(-(-end // 8) * 8, 40)), end)


def test_nothing_is_given_for_no_whole_batch() -> None:
    assert decoded(b"") == []
    assert decoded(build_batch(EXAMPLE)[:-1]) == []


def test_a_part_at_the_end_is_left_for_the_next_fetch() -> None:
    data = fetch_of(16, 8)
    (part,) = decoded(data[:-1])
    assert (part.batch.num_rows, part.next_offset, part.size) == (8, 8, len(fetch_of(8, 8)))


def test_control_batches_give_no_rows_but_an_offset() -> None:
    for aborted in SHORT_WAY, LONG_WAY:
        (part,) = decoded(end_txn_marker(1, 0, True, 0, 0, base_offset=41), aborted=aborted)
        assert (part.batch.num_rows, part.next_offset) == (0, 42)
        assert part.batch.schema == SCHEMA


def test_aborted_transactions_are_left_out() -> None:
    data, offset = b"", 0
    for producer, value in ((7, b"void"), (8, b"good"), (7, b"void")):
        data += build_batch(
            [(None, value, (), 0)] * 3,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        offset += 3
    data += end_txn_marker(7, 0, False, 0, 0, base_offset=offset)
    (part,) = decoded(data, columns=["value"], aborted=[(7, 0)])
    assert part.batch.column(0).to_pylist() == [b"good"] * 3
    assert part.next_offset == offset + 1
    (everything,) = decoded(data, columns=["value"])
    assert everything.batch.num_rows == 9


def test_append_time_overrides_the_records_own() -> None:
    data = build_batch(EXAMPLE, timestamp_type=1, append_time=99) + build_batch(
        EXAMPLE, base_offset=4
    )
    (part,) = decoded(data, columns=["timestamp", "timestamp_type"])
    times = [99] * 4 + [record.timestamp for record in EXAMPLE]
    assert part.batch.to_pydict() == {"timestamp": times, "timestamp_type": [1] * 4 + [0] * 4}


def test_offsets_have_gaps_after_compaction() -> None:
    kept = [EXAMPLE[1], EXAMPLE[3]]
    data = build_batch(kept, preserve_offsets=True, last_offset=9)
    (part,) = decoded(data, columns=["offset"])
    assert part.batch.column(0).to_pylist() == [1, 3]
    assert part.next_offset == 10


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_compaction_emptied_has_no_rows(codec: int) -> None:
    batch = bytearray(build_batch([], last_offset=3))
    batch[b.ATTRIBUTES_AT + 1] |= codec
    (part,) = decoded(seal(batch) + build_batch(EXAMPLE, base_offset=4))
    assert (part.batch.num_rows, part.next_offset) == (4, 8)


def test_header_names_that_are_not_utf8_are_read_as_java_reads_them() -> None:
    section = encode_record(0, 0, None, None, [("xx", b"1"), ("ü", None)])
    (part,) = decoded(batch_of(section.replace(b"xx", b"\xff\xfe"), 1), columns=["headers"])
    assert part.batch.column(0).to_pylist() == [
        [{"key": "\ufffd\ufffd", "value": b"1"}, {"key": "ü", "value": None}]
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_parts_stay_within_their_size(codec: str) -> None:
    data = fetch_of(64, 8, codec)
    *_, last = iter_headers(fetch_of(64, 8))
    parts = decoded(data, max_part_size=2 * (last.size - b.HEADER_SIZE))
    assert [part.batch.num_rows for part in parts] == [16] * 4
    assert [part.next_offset for part in parts] == [16, 32, 48, 64]
    assert as_records(parts) == one_by_one(data)


def test_a_batch_larger_than_a_part_is_one_by_itself() -> None:
    data = fetch_of(64, 8, "lz4")
    parts = decoded(data, max_part_size=1)
    assert [part.batch.num_rows for part in parts] == [8] * 8
    assert [part.size for part in parts] == [header.end for header in iter_headers(data)]


def test_what_one_batch_may_decompress_to_is_bounded() -> None:
    data = build_batch([(None, bytes(1 << 20), (), 0)], compression="zstd")
    with pytest.raises(BatchError) as caught:
        decoded(data, max_size=1 << 19)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_small_columns_do_not_hold_the_memory_of_large_ones() -> None:
    data = build_batch([(b"k", bytes(100_000), (), 0)] * 20)
    (part,) = decoded(data, columns=["key"])
    assert sum(buffer.size for buffer in part.batch.column(0).buffers() if buffer) < 1000


def test_columns_outlive_the_bytes_they_were_read_from() -> None:
    data = bytearray(build_batch(EXAMPLE))
    parts = decoded(data)
    data[:] = bytes(len(data))
    assert as_records(parts) == EXAMPLE


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("damage", ["crc", "records", "codec"])
def test_batches_before_a_damaged_one_are_given_first(damage: str, codec: str) -> None:
    good = build_batch(EXAMPLE, compression=codec)
    bad = bytearray(build_batch(EXAMPLE, base_offset=4, compression=codec))
    if damage == "crc":
        bad[-1] ^= 1
    elif damage == "records":
        struct.pack_into(">i", bad, b.RECORD_COUNT_AT, 3)
        seal(bad)
    else:
        bad[b.ATTRIBUTES_AT + 1] = 4
        bad = seal(bad[: b.HEADER_SIZE] + b"????")
    found = decode_fetch(good + bytes(bad) + good)
    first = next(found)
    assert as_records([first]) == EXAMPLE
    assert (first.next_offset, first.size) == (4, len(good))
    with pytest.raises(BatchError):
        next(found)


def test_the_short_way_is_taken_by_plain_batches_alone() -> None:
    plain = build_batch(EXAMPLE) + end_txn_marker(1, 0, True, 0, 0, base_offset=4)
    short = scan_fetch(plain + build_batch(EXAMPLE, base_offset=5)[:-1], 0, MAX_OFFSET)
    assert short is not None
    assert (len(short.table), short.record_count) == (1, 4)
    assert (short.size, short.next_offset) == (len(plain), 5)
    for other in (build_batch(EXAMPLE, compression="lz4"), bytes(61), bytes(17)):
        assert scan_fetch(plain + other, 0, MAX_OFFSET) is None
    harmed = bytearray(plain)
    harmed[-1] ^= 1
    assert scan_fetch(harmed, 0, MAX_OFFSET) is None


def test_old_formats_are_refused_by_name() -> None:
    old = bytearray(build_batch(EXAMPLE))
    old[b.MAGIC_AT] = 1
    with pytest.raises(UnsupportedMagic, match="message format 1"):
        decoded(old)


GOOD = encode_record(0, 0, b"k", b"v", [("h", b"1")])


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


@pytest.mark.parametrize(
    ("section", "count"),
    [
        (b"", 1),
        (GOOD, 2),
        (GOOD + GOOD, 1),
        (GOOD + b"\x00", 1),
        (GOOD[:-1], 1),
        (bytes(7), 1),
        (b"\x01" * 7, 1),
        (b"\x80" * 11, 1),
        (b"\xfe\xff\xff\xff\x0f" + GOOD, 1),
        (b"\x81\x02" + bytes(300), 1),
        (b"\xff" * 9 + b"\x01" + bytes(20), 1),
        (b"\xfe" + b"\xff" * 8 + b"\x01" + bytes(20), 1),
        (encode_record(-1, 0, None, None), 1),
        (encode_record(1, 0, None, None), 1),
        (encode_record(2**40, 0, None, None), 1),
        (encode_record(0, 2**62, None, None), 1),
        (encode_record(0, -(2**62), None, None), 1),
        (framed(bytes.fromhex("00000003" + "0100")), 1),
        (framed(bytes.fromhex("00000001" + "0300")), 1),
        (framed(bytes.fromhex("000000" + "7e" + "0100")) + GOOD, 2),
        (framed(bytes.fromhex("000000" + "feffffffffffffffff01" + "0100")), 1),
        (framed(bytes.fromhex("00000001" + "feffffffffffffffff01" + "00")), 1),
        (framed(bytes.fromhex("00000001") + bytes(3)) + GOOD, 2),
    ],
)
def test_records_that_do_not_parse_are_corrupt(section: bytes, count: int) -> None:
    batch = batch_of(section, count)
    for columns in (COLUMNS, ("offset",), ("headers",)):
        if columns == ("offset",) and section.endswith(bytes(3) + GOOD):
            continue  # only its headers fail to parse
        with pytest.raises(CorruptBatch) as caught:
            decoded(batch, columns=columns)
        assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "headers",
    [
        "01",
        "02",
        "020100",
        "020003",
        "027e00",
        "02007e",
        "0000",
        "feffffff0f",
        "fe" + "ff" * 8 + "01",
    ],
)
def test_headers_that_do_not_parse_are_corrupt_when_asked_for(headers: str) -> None:
    batch = batch_of(framed(b"\x00\x00\x00\x01\x01" + bytes.fromhex(headers)), 1)
    with pytest.raises(CorruptBatch):
        decoded(batch)
    (part,) = decoded(batch, columns=["offset", "key"])
    assert part.batch.num_rows == 1


def test_record_counts_size_nothing() -> None:
    batch = batch_of(GOOD, 2**31 - 1)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptBatch):
        decoded(batch)
    assert pa.total_allocated_bytes() - before < 1 << 20


def assert_the_same_answer(data: bytes | bytearray) -> None:
    """Assert that both readers return the same rows, or that both raise."""
    expected: list[BatchRecord] | None
    try:
        for header in iter_headers(data):
            b.validate(data, header.position, header)
        expected = [
            record
            for header in iter_headers(data)
            if not header.is_control
            for record in iter_records(data, header, max_size=1 << 20)
        ]
    except BatchError:
        expected = None
    for aborted in SHORT_WAY, LONG_WAY:
        try:
            parts = decoded(data, max_size=1 << 20, aborted=aborted)
            given: list[BatchRecord] | None = as_records(parts)
        except BatchError:
            given = None
        assert given == expected


@settings(max_examples=200)
@given(st.lists(records(max_size=4), min_size=1, max_size=3), codecs, st.data())
def test_damage_under_a_good_crc_is_judged_as_one_by_one(
    batches: list[list[BatchRecord]], codec: str, data: st.DataObject
) -> None:
    fetched = bytearray()
    for originals in batches:
        batch = bytearray(build_batch(originals, compression=codec))
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(b.ATTRIBUTES_AT, len(batch) - 1))
            batch[place] = data.draw(
                st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)) | st.integers(0, 255)
            )
        fetched += seal(batch)
    assert_the_same_answer(fetched)


@settings(max_examples=200)
@given(st.binary(max_size=120), st.integers(0, 8))
def test_random_bytes_as_records_are_judged_as_one_by_one(section: bytes, count: int) -> None:
    assert_the_same_answer(batch_of(section, count))


@given(st.binary(max_size=300))
def test_random_bytes_as_a_fetch_only_ever_raise_batch_errors(data: bytes) -> None:
    try:
        decoded(data)
    except BatchError:
        pass


@pytest.mark.parametrize("first", [0, 1, 7, 8, 9, 30])
def test_keys_and_headers_may_begin_at_any_row(first: int) -> None:
    given = [
        (None if n < first or n % 3 else b"k%d" % n, b"v", [] if n < first else [("h", b"1")], 5)
        for n in range(20)
    ]
    batch = build_batch(given)
    (part,) = decoded(batch)
    assert part.batch.column("key").to_pylist() == [key for key, *_ in given]
    pairs = [[{"key": name, "value": value} for name, value in each[2]] for each in given]
    assert part.batch.column("headers").to_pylist() == pairs


def test_batches_of_both_timestamp_types_keep_each_its_own() -> None:
    fields = (None, b"v", (), 5)
    data = build_batch([fields]) + build_batch([fields], base_offset=1, timestamp_type=1)
    (part,) = decoded(data)
    assert part.batch.column("timestamp_type").to_pylist() == [0, 1]
    (part,) = decoded(data, first_offset=1)
    assert part.batch.column("timestamp_type").to_pylist() == [1]

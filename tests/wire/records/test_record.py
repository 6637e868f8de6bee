from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.records.strategies import EXAMPLE, codecs, records

from ottla.base.errors import ErrorCode
from ottla.wire.records import batch as b
from ottla.wire.records.batch import read_header, seal, validate
from ottla.wire.records.builder import build_batch, encode_record
from ottla.wire.records.errors import BatchError, CorruptBatch, InvalidBatch
from ottla.wire.records.record import (
    MAX_RECORD_ERRORS,
    BatchRecord,
    check_records,
    decode_records,
    iter_keys,
    iter_records,
    read_records,
    record_spans,
)
from ottla.wire.records.varint import encode_varint, read_varint


def batch_of(section: bytes, count: int, last_delta: int | None = None) -> bytearray:
    """Build a batch with a valid CRC around arbitrary bytes."""
    batch = bytearray(build_batch(EXAMPLE)[: b.HEADER_SIZE]) + section
    delta = count - 1 if last_delta is None else last_delta
    struct.pack_into(">i", batch, b.LAST_OFFSET_DELTA_AT, delta)
    struct.pack_into(">i", batch, b.RECORD_COUNT_AT, count)
    return seal(batch)


def read_all(batch: bytes | bytearray) -> list[BatchRecord]:
    return list(iter_records(batch, read_header(batch)))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_come_back(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varint(b"?" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    assert len(encoded) <= 10


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**63 - 1, "fe" + "ff" * 8 + "01"),
    ],
)
def test_varints_are_zigzag_and_seven_bits_a_byte(value: int, encoded: str) -> None:
    assert encode_varint(value) == bytes.fromhex(encoded)
    assert read_varint(bytes.fromhex(encoded), 0)[0] == value


@pytest.mark.parametrize("encoded", [b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02"])
def test_varints_beyond_64_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(CorruptBatch, match="too long"):
        read_varint(encoded, 0)


@given(records(), codecs, st.integers(0, 2**62))
def test_records_come_back_with_every_codec(
    originals: list[BatchRecord], codec: str, base_offset: int
) -> None:
    batch = build_batch(originals, base_offset=base_offset, compression=codec)
    header = read_header(batch)
    validate(batch, 0, header)
    expected = [r._replace(offset=base_offset + r.offset) for r in originals]
    assert list(iter_records(batch, header)) == expected
    assert list(iter_keys(batch, header)) == [
        (r.offset, r.timestamp, r.key, r.value is not None) for r in expected
    ]
    check_records(batch, header, require_keys=False)


@given(records(), codecs)
def test_a_span_is_exactly_one_record(originals: list[BatchRecord], codec: str) -> None:
    batch = build_batch(originals, base_offset=7, compression=codec)
    header = read_header(batch)
    data = read_records(batch, header)
    spans = list(record_spans(data, header))
    assert b"".join(data[span.start : span.end] for span in spans) == data
    for span, record in zip(spans, originals, strict=True):
        assert (span.offset, span.timestamp) == (7 + record.offset, record.timestamp)
        encoded = encode_record(record.offset, 0, *record[2:])
        assert encoded.endswith(data[span.body : span.end])


def test_records_are_read_where_the_header_was() -> None:
    first, second = build_batch(EXAMPLE[:1]), build_batch(EXAMPLE, base_offset=1)
    data = memoryview(first + second)
    read = list(iter_records(data, read_header(data, len(first))))
    assert read == [r._replace(offset=r.offset + 1) for r in EXAMPLE]


def test_append_time_overrides_the_records_own() -> None:
    batch = build_batch(EXAMPLE, timestamp_type=1, append_time=99)
    header = read_header(batch)
    assert {r.timestamp for r in iter_records(batch, header)} == {99}
    assert {timestamp for _, timestamp, _, _ in iter_keys(batch, header)} == {99}
    assert {s.timestamp for s in record_spans(read_records(batch, header), header)} == {99}


def test_a_batch_that_compaction_emptied_has_no_records_whatever_its_codec() -> None:
    for codec in range(5):
        batch = batch_of(b"", 0, last_delta=3)
        batch[b.ATTRIBUTES_AT + 1] |= codec
        assert read_all(seal(batch)) == []


def test_header_names_that_are_not_utf8_are_read_as_java_reads_them() -> None:
    section = encode_record(0, 0, None, None, [("xx", b"1")]).replace(b"xx", b"\xff\xfe")
    assert read_all(batch_of(section, 1))[0].headers == (("\ufffd\ufffd", b"1"),)


GOOD = encode_record(0, 0, b"k", b"v", [("h", b"1")])


@pytest.mark.parametrize(
    ("section", "count"),
    [
        (b"", 1),
        (GOOD, 2),
        (GOOD, 2**31 - 1),
        (GOOD, 0),
        (GOOD, -1),
        (GOOD + GOOD, 1),
        (GOOD + b"\x00", 1),
        (GOOD[:-1], 1),
        (b"\x00", 1),
        (b"\x01", 1),
        (b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", 1),
        (b"\xfe\xff\xff\xff\x0f" + GOOD, 1),
        (b"\x81\x02" + bytes(300), 1),
        (encode_record(-1, 0, None, None), 1),
        (encode_record(1, 0, None, None), 1),
        (encode_record(2**40, 0, None, None), 1),
        (encode_record(0, 2**62, None, None), 1),
    ],
)
def test_records_that_do_not_parse_are_corrupt(section: bytes, count: int) -> None:
    batch = batch_of(section, count)
    header = read_header(batch)
    for walk in (iter_records, iter_keys, lambda data, h: record_spans(read_records(data, h), h)):
        with pytest.raises(CorruptBatch) as caught:
            list(walk(batch, header))
        assert caught.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(CorruptBatch):
        check_records(batch, header, require_keys=False)


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


@pytest.mark.parametrize(
    "headers",
    [
        b"\x01",  # a count of -1
        b"\x02",  # one header without any bytes
        b"\x02\x01\x00",  # a name of length -1
        b"\x02\x00\x03",  # a value of length -2
        b"\x02\x7e\x00",  # a name beyond the record
        b"\x02\x00\x7e",  # a value beyond the record
        b"\x00\x00",  # bytes after the last header
        b"\xfe\xff\xff\xff\x0f",  # two billion headers
    ],
)
def test_headers_that_do_not_parse_are_corrupt(headers: bytes) -> None:
    batch = batch_of(framed(b"\x00\x00\x00\x01\x01" + headers), 1)
    with pytest.raises(CorruptBatch):
        read_all(batch)
    with pytest.raises(CorruptBatch):
        check_records(batch, read_header(batch), require_keys=False)


@pytest.mark.parametrize(
    "body", ["00000003 01 00", "00000001 03 00", "000000 7e 01 00", "00000001"]
)
def test_lengths_that_lead_out_of_a_record_are_corrupt(body: str) -> None:
    section = framed(bytes.fromhex(body.replace(" ", "")))
    with pytest.raises(CorruptBatch):
        read_all(batch_of(section + GOOD, 2))


def test_a_base_timestamp_beyond_all_time_is_corrupt() -> None:
    batch = bytearray(build_batch(EXAMPLE))
    struct.pack_into(">q", batch, b.BASE_TIMESTAMP_AT, 2**63 - 1)
    with pytest.raises(CorruptBatch, match="base timestamp"):
        read_all(seal(batch))


def test_null_keys_are_refused_by_place_where_keys_are_required() -> None:
    batch = build_batch(EXAMPLE)
    header = read_header(batch)
    check_records(batch, header, require_keys=False)
    with pytest.raises(InvalidBatch) as caught:
        check_records(batch, header, require_keys=True)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_the_faulty_records_that_are_named_are_bounded() -> None:
    batch = build_batch([(None, b"", (), 0)] * (MAX_RECORD_ERRORS + 1))
    with pytest.raises(InvalidBatch) as caught:
        check_records(batch, read_header(batch), require_keys=True)
    assert len(caught.value.record_errors) == MAX_RECORD_ERRORS


def test_a_producer_must_number_its_records_in_order() -> None:
    section = encode_record(1, 0, b"a", None) + encode_record(0, 0, b"b", None)
    batch = batch_of(section, 2)
    with pytest.raises(InvalidBatch, match="record 0 has offset delta 1"):
        check_records(batch, read_header(batch), require_keys=False)


def _walk_keys(batch: bytearray) -> Iterator[object]:
    return iter_keys(batch, read_header(batch), max_size=1 << 20)


def _check(batch: bytearray) -> None:
    check_records(batch, read_header(batch), require_keys=True, max_size=1 << 20)


@given(codecs, st.data())
def test_damage_under_a_good_crc_only_ever_raises_batch_errors(
    codec: str, data: st.DataObject
) -> None:
    batch = bytearray(build_batch(EXAMPLE, compression=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(b.ATTRIBUTES_AT, len(batch) - 1))] = data.draw(
            st.integers(0, 255)
        )
    cut = data.draw(st.integers(b.HEADER_SIZE, len(batch)))
    seal(batch)
    for damaged in (batch, seal(batch[:cut])):
        for walk in (read_all, lambda x: list(_walk_keys(x)), _check):
            try:
                walk(damaged)
            except BatchError:
                pass


@given(st.binary(max_size=300), st.integers(-(2**31), 2**31 - 1), codecs)
def test_random_bytes_as_records_only_ever_raise_batch_errors(
    section: bytes, count: int, codec: str
) -> None:
    batch = batch_of(section, count, last_delta=2**31 - 1)
    batch[b.ATTRIBUTES_AT + 1] |= ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    seal(batch)
    try:
        read_all(batch)
    except BatchError:
        pass


@given(records(max_size=4), st.data())
def test_both_walks_over_damaged_records_agree(
    originals: list[BatchRecord], data: st.DataObject
) -> None:
    plain = [record._replace(headers=()) for record in originals]
    batch = bytearray(build_batch(plain))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(b.ATTRIBUTES_AT, len(batch) - 1))
        batch[place] = data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)))
    header = read_header(batch)
    try:
        found = decode_records(batch, header, 1 << 20)
    except BatchError:
        return
    keys = [(offset, time, key, value is not None) for offset, time, key, value, _ in found]
    assert list(iter_keys(batch, header, 1 << 20)) == keys

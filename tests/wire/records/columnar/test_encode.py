from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.records.strategies import EXAMPLE, codecs, records
from tests.wire.records.test_clients_agree import (
    every_client,
    every_codec,
    read_by,
    skip_unless_known,
)

from ottla.base.errors import ErrorCode
from ottla.wire.records.batch import HEADER_SIZE, read_header, stamp_producer, validate
from ottla.wire.records.builder import build_batch
from ottla.wire.records.columnar import encode
from ottla.wire.records.columnar.columns import RecordColumns
from ottla.wire.records.columnar.decode import HEADER_TYPE, decode_fetch
from ottla.wire.records.columnar.encode import EncodedBatch, encode_batches
from ottla.wire.records.errors import InvalidBatch
from ottla.wire.records.record import BatchRecord, check_records, iter_records

BYTES_KINDS = [
    pa.binary(),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.binary()),
]


def columns_of(originals: list[BatchRecord]) -> dict[str, Any]:
    headers = [[{"key": name, "value": value} for name, value in r.headers] for r in originals]
    return {
        "key": pa.array([r.key for r in originals], pa.binary()),
        "value": pa.array([r.value for r in originals], pa.binary()),
        "headers": pa.array(headers, pa.list_(HEADER_TYPE)),
        "timestamp": pa.array([r.timestamp for r in originals], pa.int64()),
    }


def read_back(batches: list[EncodedBatch]) -> list[BatchRecord]:
    """Check each batch as a broker does, and return every record with offsets from 0."""
    found: list[BatchRecord] = []
    for batch in batches:
        header = read_header(batch.data)
        validate(batch.data, 0, header, from_client=True)
        check_records(batch.data, header, require_keys=False)
        assert header.size == len(batch.data)
        assert header.record_count == batch.record_count
        inside = list(iter_records(batch.data, header))
        assert header.max_timestamp == max(r.timestamp for r in inside)
        found += inside
    return [record._replace(offset=index) for index, record in enumerate(found)]


def encoded(rows: Any = None, *, batch_size: int = 1 << 20, **given: Any) -> list[BatchRecord]:
    return read_back(list(encode_batches(RecordColumns(**given), rows, batch_size=batch_size)))


@given(records(), codecs, st.integers(0, 400))
def test_what_is_encoded_reads_back_one_by_one_and_in_columns(
    originals: list[BatchRecord], codec: str, batch_size: int
) -> None:
    columns = RecordColumns(**columns_of(originals))
    batches = list(encode_batches(columns, batch_size=batch_size, compression=codec))
    assert read_back(batches) == originals
    again = [
        row for b in batches for part in decode_fetch(b.data) for row in part.batch.to_pylist()
    ]
    assert [(row["key"], row["value"]) for row in again] == [r[2:4] for r in originals]


@given(records())
def test_one_batch_is_byte_for_byte_what_the_builder_makes(originals: list[BatchRecord]) -> None:
    columns = RecordColumns(**columns_of(originals))
    producer: Any = {"producer_id": 17, "producer_epoch": 2, "base_sequence": 5}
    (batch,) = encode_batches(columns, transactional=True, **producer)
    assert bytes(batch.data) == build_batch(originals, transactional=True, **producer)


@every_client
@every_codec
def test_other_clients_read_our_batches(client: str, codec: str) -> None:
    skip_unless_known(client, codec)
    (batch,) = encode_batches(RecordColumns(**columns_of(EXAMPLE)), compression=codec)
    assert read_by(client, bytes(batch.data)) == EXAMPLE


@settings(max_examples=60)
@given(records(), st.data())
def test_slices_and_chunks_are_read_where_they_lie(
    originals: list[BatchRecord], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(originals)))
    stop = data.draw(st.integers(start, len(originals)))
    cut = data.draw(st.integers(start, stop))
    sliced = {name: c.slice(start, stop - start) for name, c in columns_of(originals).items()}
    chunked = {
        name: pa.chunked_array([c.slice(start, cut - start), c.slice(cut, stop - cut)], c.type)
        for name, c in columns_of(originals).items()
    }
    expected = [r._replace(offset=r.offset - start) for r in originals[start:stop]]
    assert encoded(**sliced) == expected
    assert encoded(**chunked) == expected


@settings(max_examples=60)
@given(records(), st.data())
def test_chosen_rows_come_in_the_order_chosen(
    originals: list[BatchRecord], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(originals) - 1)))
    start = data.draw(st.integers(0, 3))
    padded = originals[:1] * start + originals
    sliced = {name: column.slice(start) for name, column in columns_of(padded).items()}
    found = encoded(np.array(rows, np.int32), batch_size=300, **sliced)
    assert [r[1:] for r in found] == [originals[row][1:] for row in rows]


@pytest.mark.parametrize("kind", BYTES_KINDS, ids=str)
def test_every_kind_of_bytes_is_taken(kind: Any) -> None:
    texts = ["a", None, "", "ü" * 70, "z"]
    column = pa.array([t and t.encode() if t is not None else None for t in texts], pa.binary())
    column = column.cast(kind) if not pa.types.is_dictionary(kind) else column.dictionary_encode()
    expected = [None if t is None else t.encode() for t in texts]
    assert [r.value for r in encoded(value=column)] == expected
    found = encoded(key=column.slice(1), value=column.slice(1))
    assert [r.key for r in found] == [r.value for r in found] == expected[1:]


def test_fixed_sizes_and_columns_of_nulls_are_taken() -> None:
    fixed = pa.array([b"abcd", None, b"wxyz"], pa.binary(4))
    found = encoded(key=fixed, value=pa.nulls(3), headers=pa.nulls(3), timestamp=pa.nulls(3))
    assert [r[2:] for r in found] == [(b"abcd", None, ()), (None, None, ()), (b"wxyz", None, ())]


def test_a_missing_column_is_null_and_missing_times_are_the_default() -> None:
    assert encoded(value=pa.array([b"v"]), default_timestamp_ms=42) == [
        BatchRecord(0, 42, None, b"v", ())
    ]
    times = pa.array([1, None, 3], pa.int64())
    found = encoded(key=pa.array([b"k"] * 3), timestamp=times, default_timestamp_ms=42)
    assert [r.timestamp for r in found] == [1, 42, 3]


@pytest.mark.parametrize(("unit", "scale"), [("s", 1000), ("ms", 1), ("us", 0.001), ("ns", 1e-6)])
@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
def test_timestamps_of_every_unit_become_milliseconds(
    unit: str, scale: float, zone: str | None
) -> None:
    times = pa.array([5_000_000_000, 7_000_000_000], pa.int64()).view(pa.timestamp(unit, zone))
    found = encoded(value=pa.array([b""] * 2), timestamp=times)
    assert [r.timestamp for r in found] == [int(5e9 * scale), int(7e9 * scale)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(HEADER_TYPE),
        pa.large_list(HEADER_TYPE),
        pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=["list", "large_list", "swapped", "map"],
)
def test_every_kind_of_headers_is_taken(kind: Any) -> None:
    rows: list[Any] = [[("a", b"1"), ("b", None)], [], None, [("ü", b"")]]
    if not pa.types.is_map(kind):
        rows = [r and [{"key": key, "value": value} for key, value in r] for r in rows]
    headers = pa.array(rows, kind)
    expected = [(("a", b"1"), ("b", None)), (), (), (("ü", b""),)]
    assert [r.headers for r in encoded(headers=headers)] == expected
    for start in range(1, 4):
        assert [r.headers for r in encoded(headers=headers.slice(start))] == expected[start:]


@pytest.mark.parametrize("missing", [{"key": None, "value": b"1"}, None])
def test_a_header_without_a_key_is_refused_by_row(missing: Any) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[], [{"key": "a", "value": None}, missing]], kind)
    with pytest.raises(InvalidBatch, match="row 1 has no key"):
        encoded(headers=headers)
    with pytest.raises(InvalidBatch, match="row 1 has no key"):
        encoded(np.array([1]), headers=headers)
    assert len(encoded(np.array([0]), headers=headers)) == 1


@pytest.mark.parametrize("batch_size", [0, 100, 1000, 4096])
def test_batches_keep_to_their_size_or_hold_one_record(batch_size: int) -> None:
    values = pa.array([bytes(size % 300) for size in range(0, 3000, 7)])
    batches = list(encode_batches(RecordColumns(value=values), batch_size=batch_size))
    assert len(read_back(batches)) == len(values)
    for batch in batches:
        assert len(batch.data) <= batch_size or batch.record_count == 1
    for one, other in pairwise(batches):
        assert len(one.data) + len(other.data) - HEADER_SIZE > batch_size or batch_size < 100


def test_tables_larger_than_a_chunk_are_encoded_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK_SIZE", 5_000)
    values = pa.array([b"%d" % index * (index % 40) for index in range(2_000)] + [bytes(20_000)])
    columns = RecordColumns(value=values)
    batches = list(encode_batches(columns, batch_size=900, producer_id=1, base_sequence=2**31 - 5))
    assert [r.value for r in read_back(batches)] == values.to_pylist()
    sequence = 2**31 - 5
    for batch in batches:
        assert read_header(batch.data).base_sequence == sequence
        sequence = (sequence + batch.record_count) % 2**31
    whole = list(encode_batches(columns, batch_size=2**40))
    assert len(whole) == 1


def test_large_values_are_whole() -> None:
    value = bytes(range(256)) * 50_000
    assert [r.value for r in encoded(value=pa.array([b"a", value, b"b"]))] == [b"a", value, b"b"]


def test_a_record_that_is_too_large_is_refused_before_any_batch() -> None:
    columns = RecordColumns(value=pa.array([b"a", bytes(1000)]))
    with pytest.raises(InvalidBatch, match=r"row 1 needs up to 1\d+ bytes .* 1000") as caught:
        next(encode_batches(columns, max_record_size=1000))
    with pytest.raises(InvalidBatch, match="row 1 "):
        next(encode_batches(columns, np.array([0, 1, 0]), max_record_size=1000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_no_rows_make_no_batch() -> None:
    assert encoded(value=pa.array([], pa.binary())) == []
    assert encoded(np.array([], np.int64), value=pa.array([b"v"])) == []


@pytest.mark.parametrize("rows", [[1], [-1], [0, 7]])
def test_rows_that_are_not_there_are_refused(rows: list[int]) -> None:
    with pytest.raises(IndexError, match="1 rows"):
        encoded(np.array(rows), value=pa.array([b"v"]))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_producer_is_stamped_when_the_batch_is_sent(codec: str) -> None:
    (batch,) = encode_batches(RecordColumns(**columns_of(EXAMPLE)), compression=codec)
    stamp_producer(batch.data, 17, 2, 5, transactional=True)
    header = read_header(batch.data)
    validate(batch.data, 0, header, from_client=True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (17, 2, 5)
    assert header.is_transactional
    stamp_producer(batch.data, -1, -1, -1)
    assert not read_header(batch.data).is_transactional


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"value": pa.array([1, 2])}, "the value column is int64"),
        ({"key": pa.array([[b"a"]])}, "the key column is list"),
        ({"headers": pa.array(["a"])}, "the headers column is string"),
        ({"headers": pa.array([["a"]])}, "the headers column is list"),
        ({"headers": pa.array([[{"name": "a", "value": b""}]])}, "the headers column is list"),
        (
            {"value": pa.array([b"v"]), "timestamp": pa.array([1.5])},
            "the timestamp column is double",
        ),
        ({"value": [b"v"]}, "not list"),
    ],
)
def test_columns_of_other_kinds_are_named(columns: dict[str, Any], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        RecordColumns(**columns)


def test_columns_of_different_lengths_and_no_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        RecordColumns(key=pa.array([b"a"]), value=pa.array([b"a", b"b"]))
    with pytest.raises(ValueError, match="none at all"):
        RecordColumns()


@pytest.mark.parametrize("timestamp", [2**62, -(2**62), 2**63 - 1])
def test_times_beyond_all_time_are_refused(timestamp: int) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        RecordColumns(value=pa.array([b"v"]), timestamp=pa.array([timestamp]))
    with pytest.raises(ValueError, match="timestamp"):
        RecordColumns(value=pa.array([b"v"]), default_timestamp_ms=timestamp)

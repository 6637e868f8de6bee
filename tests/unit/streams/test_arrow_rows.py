"""Tests of converting Arrow columns to Python values and back, and of record order in packs."""

from __future__ import annotations

import gc
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from ottla.streams.compile import stateful
from ottla.streams.compile.arrow_rows import column_of, values_of

KIND = pa.struct(
    [
        ("name", pa.string()),
        ("sizes", pa.list_(pa.struct([("n", pa.int32())]))),
        ("more", pa.map_(pa.string(), pa.int64())),
    ]
)
VALUES: list[Any] = [
    {"name": "a", "sizes": [{"n": 1}, {"n": None}], "more": [("x", 1)]},
    None,
    {"name": None, "sizes": None, "more": None},
    {"name": "d", "sizes": [], "more": []},
]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_values_have_their_columns_at_every_depth(start: int) -> None:
    found = values_of(pa.array(VALUES, KIND).slice(start))
    expected = VALUES[start:]
    assert [each is None for each in found] == [each is None for each in expected]
    for row, value in zip(found, expected, strict=True):
        if value is not None:
            sizes = row.sizes and [each.n for each in row.sizes]
            assert (row.name, sizes) == (
                value["name"],
                value["sizes"] and [each["n"] for each in value["sizes"]],
            )
            assert row["more"] == (None if value["more"] is None else dict(value["more"]))


def test_numbers_without_and_with_nulls() -> None:
    assert values_of(pa.array([1, 2])) == [1, 2]
    assert type(values_of(pa.array([1, 2]))[0]) is int
    assert values_of(pa.chunked_array([pa.array([1.5]), pa.array([None], pa.float64())])) == [
        1.5,
        None,
    ]


def test_rows_dicts_and_tuples_make_the_same_column() -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.string())])
    (row,) = values_of(pa.array([{"a": 1, "b": "x"}], kind))
    made = column_of([row, {"b": "x", "a": 1, "ignored": 2}, (1, "x"), None], kind, "the value")
    assert made.to_pylist() == [{"a": 1, "b": "x"}] * 3 + [None]
    assert column_of([], kind, "the value").to_pylist() == []


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"a": 1}, "the value has no b"),
        ({"a": "x", "b": "x"}, "the value.a is not of type int32"),
        (3, "the value must have the columns a, b; it is 3"),
    ],
)
def test_what_does_not_fit_is_reported_by_column(value: Any, sentence: str) -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.string())])
    with pytest.raises((TypeError, KeyError), match=sentence):
        column_of([value], kind, "the value")


def pack(task: int, *records: tuple[str, int, int], side: int = 0, number: int = 0) -> list[Any]:
    """Return the rows of a pack, one per bucket; records are (key, value, timestamp in ms)."""
    keys, values, times = zip(*records, strict=True)
    batch = pa.record_batch(
        [
            pa.array(keys),
            pa.array(values),
            pa.array([each * 1000 for each in times]).cast(pa.timestamp("us", "UTC")),
            pa.array([ord(key[0]) % 2 for key in keys], pa.int32()),
        ],
        ["key", "value", "timestamp", "bucket"],
    )
    packed = stateful._pack([batch], side, task, number)
    return list(packed.to_pandas().itertuples(index=False))


def test_a_pack_has_a_row_for_each_bucket_in_the_records_order() -> None:
    even, odd = pack(3, ("b", 1, 5), ("a", 2, 9), ("d", 3, 4), ("b", 4, 1))
    assert [(each.bucket, each.task, each.latest.value // 10**6) for each in (even, odd)] == [
        (0, 3, 5),
        (1, 3, 9),
    ]
    batch = stateful._batch([even])
    assert (batch.keys, batch.values, batch.times_ms) == (["b", "d", "b"], [1, 3, 4], [5, 4, 1])


def test_tasks_are_merged_by_time_and_each_keeps_its_order() -> None:
    packs = [
        *pack(1, ("a", 10, 3), ("a", 11, 2), ("a", 12, 8)),
        *pack(0, ("a", 21, 7), number=1),
        *pack(0, ("a", 20, 1), number=0),
        *pack(0, ("a", 30, 4), side=1),
    ]
    batch = stateful._batch(packs)
    assert list(batch.values) == [20, 10, 11, 30, 21, 12]
    assert list(batch.sides) == [0, 0, 0, 1, 0, 0]


def test_garbage_is_collected_again_after_a_bucket_whatever_became_of_it() -> None:
    def fail() -> None:
        with stateful.gc_disabled():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()

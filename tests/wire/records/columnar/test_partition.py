from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.test_murmur2 import FROM_JAVA

from ottla.wire.murmur2 import partition_for_key
from ottla.wire.records.columnar.partition import group_rows, partition_by_key

LARGEST = 2**31 - 1


def test_hashes_are_those_of_java() -> None:
    chosen = partition_by_key(pa.array(list(FROM_JAVA)), LARGEST)
    assert chosen.dtype == np.int32
    assert chosen.tolist() == [(h & 0x7FFFFFFF) % LARGEST for h in FROM_JAVA.values()]


@given(
    st.lists(st.none() | st.binary(max_size=40), min_size=1),
    st.integers(1, 50),
    st.sampled_from([pa.binary(), pa.large_binary()]),
    st.data(),
)
def test_columns_fall_as_single_keys_do(
    keys: list[bytes | None], count: int, kind: Any, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(keys)))
    chosen = partition_by_key(pa.array(keys, kind).slice(start), count, null_partition=3)
    expected = [3 if key is None else partition_for_key(key, count) for key in keys[start:]]
    assert chosen.tolist() == expected


def test_text_falls_by_its_utf8_and_no_key_is_no_partition() -> None:
    chosen = partition_by_key(pa.chunked_array([["ü"], [None]]), 100)
    assert chosen.tolist() == [partition_for_key("ü".encode(), 100), -1]
    assert partition_by_key(pa.nulls(2), 100, 7).tolist() == [7, 7]


@given(st.lists(st.integers(0, 6)))
def test_groups_keep_the_order_of_rows(partitions: list[int]) -> None:
    groups = group_rows(np.array(partitions, np.int32), 7)
    for partition in range(7):
        rows = [row for row, chosen in enumerate(partitions) if chosen == partition]
        assert groups.rows(partition).tolist() == rows
    assert groups.partitions == sorted(set(partitions))


def test_other_integers_and_arrow_serve_as_partitions() -> None:
    assert group_rows([1, 0, 1], 2).rows(1).tolist() == [0, 2]
    assert group_rows(pa.array([1, 0, 1], pa.int32()).to_numpy(), 2).rows(0).tolist() == [1]


@pytest.mark.parametrize("wrong", [-1, 2, 2**31 - 1])
def test_an_invalid_partition_is_named_with_its_row(wrong: int) -> None:
    with pytest.raises(ValueError, match=f"row 1 has partition {wrong}, but the topic has 2"):
        group_rows(np.array([0, wrong], np.int32), 2)


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_counts_of_partitions_that_cannot_be_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="partitions"):
        partition_by_key(pa.array([b"k"]), count)

"""Tests of the map from keys to their latest offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.compaction_map import NOT_FOUND, OffsetMap
from ottla.wire.records.record import KeyedRecord

KEYS = st.binary(max_size=3)


def keyed(*keys: bytes | None, start: int = 0) -> list[KeyedRecord]:
    return [(start + number, 0, key, True) for number, key in enumerate(keys)]


@given(st.lists(KEYS, max_size=300))
def test_the_map_knows_the_last_offset_of_each_key(keys: list[bytes]) -> None:
    offset_map = OffsetMap(1 << 16, 0.9, max(len(keys), 1))
    assert offset_map.put_all(keyed(*keys), 0)
    expected = {key: offset for offset, key in enumerate(keys)}
    assert {key: offset_map.get(key) for key in expected} == expected
    assert len(offset_map) == len(expected)
    assert offset_map.get(b"never put") == NOT_FOUND


def test_a_full_table_still_finds_every_key_and_misses_the_others() -> None:
    keys = [b"key-%d" % number for number in range(2_000)]
    offset_map = OffsetMap(1, 1.0, 1)
    assert offset_map.capacity == 2
    offset_map = OffsetMap(24 * 2_000, 1.0, 2_000)
    assert offset_map.put_all(keyed(*keys), 0)
    assert offset_map.utilization == 1.0
    assert [offset_map.get(key) for key in keys] == list(range(2_000))
    assert {offset_map.get(b"other-%d" % number) for number in range(2_000)} == {NOT_FOUND}


def test_the_map_takes_as_many_keys_as_kafkas_does_in_the_same_memory() -> None:
    offset_map = OffsetMap(24 * 1_000, 0.9, 1 << 40)
    keys = [b"%d" % number for number in range(1_000)]
    assert not offset_map.put_all(keyed(*keys), 0)
    assert len(offset_map) == 900
    assert offset_map.latest_offset == 899


def test_room_is_only_made_for_what_can_come() -> None:
    offset_map = OffsetMap(1 << 30, 0.9, 10)
    assert offset_map.capacity == 10
    assert len(offset_map._offsets) < 32


def test_records_without_a_key_or_before_the_start_are_passed_over() -> None:
    offset_map = OffsetMap(1 << 10, 0.9, 10)
    assert offset_map.put_all(keyed(b"a", None, b"b", None), 2)
    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (NOT_FOUND, 2)
    assert offset_map.latest_offset == 2

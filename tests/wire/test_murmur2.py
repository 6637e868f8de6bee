from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla.wire.murmur2 import murmur2, partition_for_key

FROM_JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", FROM_JAVA)
def test_hashes_are_those_of_java(key: bytes) -> None:
    assert murmur2(key) == FROM_JAVA[key]


@given(st.binary(max_size=200), st.integers(1, 1000))
def test_any_key_hashes_and_falls_as_in_other_clients(key: bytes, partition_count: int) -> None:
    theirs = kafka_python_murmur2(key)
    assert murmur2(key) & 0xFFFFFFFF == theirs & 0xFFFFFFFF
    assert partition_for_key(key, partition_count) == (theirs & 0x7FFFFFFF) % partition_count

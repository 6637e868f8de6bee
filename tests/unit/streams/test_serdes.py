"""Tests of serdes on Python values, and of keys with windows."""

from __future__ import annotations

from typing import Any

import pytest

import ottla.streams as st
from ottla.streams.serdes import split_windowed_key


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (st.String, "čaj", "čaj".encode()),
        (st.Bytes, b"\x00\xff", b"\x00\xff"),
        (st.Long, -2, b"\xff" * 7 + b"\xfe"),
        (st.Json("item string"), {"item": "tea"}, b'{"item": "tea"}'),
        (st.Json("double"), 2.5, b"2.5"),
        (st.String, None, None),
    ],
)
def test_a_value_is_encoded_and_decoded(serde: st.Serde, value: Any, data: bytes | None) -> None:
    assert serde.encode(value) == data
    assert serde.decode(data) == value


def test_bytes_are_encoded_already_and_nothing_else_becomes_bytes() -> None:
    assert st.Long.encode(b"raw") == b"raw"
    with pytest.raises(st.TopologyError, match="expected bytes, not 'text'"):
        st.Bytes.encode("text")


def test_equal_json_keys_have_one_canonical_form() -> None:
    key = st.Json("a int, b string")
    assert key.canonical(b'{"b": "\\u010d", "a": 1}') == '{"a":1,"b":"č"}'.encode()
    assert st.String.canonical(b'{"b": 2}') == b'{"b": 2}'


def test_a_windowed_key_ends_with_the_numbers_of_its_window() -> None:
    one, two = (number.to_bytes(8, "big") for number in (1, 2))
    assert split_windowed_key(b"tea" + one, is_session=False) == (b"tea", (1,))
    assert split_windowed_key(b"tea" + two + one, is_session=True) == (b"tea", (2, 1))

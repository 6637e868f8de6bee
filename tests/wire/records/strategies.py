"""Hypothesis strategies and examples for the tests of record batches."""

from __future__ import annotations

from hypothesis import strategies as st

from ottla.wire.records.compression import NAMES
from ottla.wire.records.record import BatchRecord, Header

codecs = st.sampled_from(NAMES)
contents = st.binary(max_size=40) | st.integers(64, 20_000).map(lambda size: b"v" * size)
headers: st.SearchStrategy[tuple[Header, ...]] = st.lists(
    st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=100)), max_size=3
).map(tuple)
timestamps = st.integers(-1, 4_102_444_800_000)


@st.composite
def records(draw: st.DrawFn, base_offset: int = 0, max_size: int = 20) -> list[BatchRecord]:
    """Draw records with consecutive offsets."""
    drawn = draw(
        st.lists(
            st.tuples(timestamps, st.none() | contents, st.none() | contents, headers),
            min_size=1,
            max_size=max_size,
        )
    )
    return [BatchRecord(base_offset + index, *fields) for index, fields in enumerate(drawn)]


EXAMPLE = [
    BatchRecord(
        0, 1_700_000_000_000, b"key", b"value", (("trace", b"1"), ("empty", b""), ("no", None))
    ),
    BatchRecord(1, 1_699_999_999_000, None, b"x" * 5_000, ()),
    BatchRecord(2, 1_700_000_086_400, b"gone", None, ()),
    BatchRecord(3, 1_700_000_000_000, b"", b"", (("ключ", b"\xff"),)),
]
"""Nulls, empty values, headers, a long value, and timestamps out of order.

The long value does not fit in one lz4 or snappy literal run."""

"""Parser of JSON values, based on Arrow's reader, that yields exactly one row per value.

Each value is wrapped in an object of its own, {"v": VALUE}. If values were merely joined by
newlines, one value could yield several rows, or several values one row."""

from __future__ import annotations

import io
from typing import Any

from ottla.wire.records.columnar.requirements import numpy as np
from ottla.wire.records.columnar.requirements import pyarrow as pa

MIN_BLOCK_BYTES = 1 << 20
MEMBER = "v"


def parsed(values: Any, kind: Any = None, *, unexpected: str = "infer") -> Any:
    """Return an array of the parsed values; nulls stay null.

    Args:
        values: Array of JSON texts.
        kind: Arrow type of the values, as far as it is known.
        unexpected: Treatment of fields that `kind` lacks: infer, ignore or error.

    Raises:
        pyarrow.ArrowInvalid: A value is not valid JSON, or does not match the type.
    """
    import pyarrow.compute as pc
    import pyarrow.json as arrow_json

    if not len(values):
        return pa.nulls(0, kind or pa.null())
    lines = pc.binary_join_element_wise(
        pa.scalar(b'{"v":'), pc.fill_null(values, b"null"), pa.scalar(b"}"), b""
    )
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text = pc.binary_join(whole, b"\n")[0].as_buffer()
    longest = pc.max(pc.binary_length(lines)).as_py() or 0
    newlines = int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))
    table = arrow_json.read_json(
        io.BytesIO(text),
        read_options=arrow_json.ReadOptions(block_size=max(MIN_BLOCK_BYTES, longest + 2)),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=None if kind is None else pa.schema([(MEMBER, kind)]),
            newlines_in_values=newlines >= len(lines),
            unexpected_field_behavior=unexpected,
        ),
    )
    if table.num_rows != len(values) or table.column_names != [MEMBER]:
        raise pa.ArrowInvalid("a value is empty or contains more than one object")
    try:
        return table.column(0).combine_chunks()
    except pa.ArrowIndexError:
        # For lists that contain only nulls, Arrow's reader builds an invalid array.
        raise pa.ArrowInvalid(
            "the type of a list is unknown, because it contains only nulls in all values"
        ) from None

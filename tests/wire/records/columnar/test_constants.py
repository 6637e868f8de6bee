from __future__ import annotations

import pyarrow as pa
import pytest

from ottla.wire.records.columnar.constants import MAX_KEPT, int32_column, null_column

ROWS = [0, 1, 7, 8, 9, 1000, 1025, MAX_KEPT // 4, MAX_KEPT // 4 + 1]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_number_in_every_row(rows: int, number: int) -> None:
    column = int32_column(number, rows)
    column.validate(full=True)
    assert column.type == pa.int32()
    assert column.null_count == 0
    assert column.to_pylist() == [number] * rows
    assert column.nbytes == 4 * rows


@pytest.mark.parametrize("rows", ROWS)
def test_a_null_in_every_row(rows: int) -> None:
    column = null_column(rows)
    column.validate(full=True)
    assert column.type == pa.binary()
    assert column.null_count == len(column) == rows
    assert column.to_pylist() == [None] * rows

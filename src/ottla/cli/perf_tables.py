"""The option `--columnar` of the performance tools: its libraries, and the tables that it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from ottla.base.errors import UserError
from ottla.base.installation import install_extra

COLUMN = "value"
MAX_TABLE_BYTES = 16 * 1024 * 1024
MAX_ROWS = 100_000
_LETTERS = 26
_FIRST_LETTER = 65


def check_libraries() -> None:
    """Raise UserError with the command to install them if the libraries of Arrow are missing."""
    if not all(find_spec(name) for name in ("pyarrow", "numpy")):
        raise UserError(
            "--columnar requires pyarrow, numpy and numba. Install them with: "
            f"{install_extra('arrow')}"
        )


def tables(
    count: int, size: int | None, payload: Callable[[int], bytes], seed: int
) -> Iterator[tuple[Any, int]]:
    """Yield tables with `count` rows in total, each with the number of bytes of its values.

    Values of a fixed `size` are random letters, generated once and sent repeatedly. Without a size
    they come from `payload`.

    Raises:
        UserError: A required library is not installed.
    """
    check_libraries()
    import numpy
    import pyarrow

    rows = max(1, min(count, MAX_ROWS, MAX_TABLE_BYTES // max(size or 100, 1)))
    if size is None:
        for start in range(0, count, rows):
            values = [payload(number) for number in range(start, min(start + rows, count))]
            table = pyarrow.table({COLUMN: pyarrow.array(values, pyarrow.binary())})
            yield table, sum(map(len, values))
        return
    chance = numpy.random.default_rng(seed)
    letters = chance.integers(_LETTERS, size=rows * size, dtype=numpy.uint8) + _FIRST_LETTER
    offsets = numpy.arange(rows + 1, dtype=numpy.int32) * size
    column = pyarrow.Array.from_buffers(
        pyarrow.binary(),
        rows,
        [None, pyarrow.py_buffer(offsets.astype(numpy.int32)), pyarrow.py_buffer(letters)],
    )
    table = pyarrow.table({COLUMN: column})
    for start in range(0, count, rows):
        left = min(rows, count - start)
        yield table.slice(0, left), left * size

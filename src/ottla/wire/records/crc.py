"""CRC-32C (Castagnoli), the checksum of v2 batches.

The `crc32c` package takes 55 ms to import, because it imports argparse and reads its own metadata.
Its C extension does all the work and loads in a tenth of that time, so it is loaded directly. If
the extension cannot be found, the package is imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview


def _load() -> Callable[[Buffer], int]:
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            return cast(Callable[[Buffer], int], module.crc32c)
    from crc32c import crc32c as packaged

    return packaged


crc32c: Callable[[Buffer], int] = _load()
"""Checksum function for any contiguous buffer. Releases the GIL for large ones."""


_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, with the bits in reverse order."""


def combine(first: int, second: int, second_size: int) -> int:
    """Return the CRC of two pieces of data from the CRC of each, without reading the data.

    Appending a zero byte multiplies a CRC by a matrix over GF(2), so appending many is a product of
    the matrices for powers of two.

    Args:
        first: CRC of the first piece.
        second: CRC of the second piece.
        second_size: Size of the second piece, in bytes.
    """
    power = 0
    while second_size:
        if second_size & 1:
            low, second_byte, third_byte, high = _tables(power)
            first = (
                low[first & 255]
                ^ second_byte[first >> 8 & 255]
                ^ third_byte[first >> 16 & 255]
                ^ high[first >> 24]
            )
        second_size >>= 1
        power += 1
    return first ^ second


@cache
def _tables(power: int) -> tuple[list[int], ...]:
    """Return the products of the matrix for `2**power` zero bytes with each byte of a CRC."""
    matrix = _zero_bytes(power)
    tables: tuple[list[int], ...] = ([0], [0], [0], [0])
    for number, column in enumerate(matrix):
        table = tables[number // 8]
        table += [entry ^ column for entry in table]
    return tables


@cache
def _zero_bytes(power: int) -> tuple[int, ...]:
    """Return the matrix, by columns, that appends `2**power` zero bytes."""
    if power:
        return _square(_zero_bytes(power - 1))
    bit = (_POLYNOMIAL, *(1 << number for number in range(31)))
    return _square(_square(_square(bit)))


def _square(matrix: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_product(matrix, column) for column in matrix)


def _product(matrix: tuple[int, ...], vector: int) -> int:
    found = 0
    for column in matrix:
        if vector & 1:
            found ^= column
        vector >>= 1
    return found

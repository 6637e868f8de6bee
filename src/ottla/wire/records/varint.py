"""Zigzag varints, as used by the records of a v2 batch.

A signed integer is mapped to an unsigned one (0, -1, 1, -2 … become 0, 1, 2, 3 …), which is written
seven bits at a time, lowest first. The top bit of each byte is set if another byte follows. A
64-bit value takes at most ten bytes.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.wire.records.errors import CorruptBatch

_MAX_BYTES = 10
_KEPT = 1 << 14
"""Bound for cached values: unsigned values below it take one or two bytes, as nearly all do."""


class _Encodings(dict[int, bytes]):
    """A mapping of values to encodings, which caches short ones on first use."""

    def __missing__(self, value: int) -> bytes:
        folded = rest = (value << 1) ^ (value >> 63)
        encoded = bytearray()
        while rest > 0x7F:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        result = bytes(encoded)
        if folded < _KEPT:
            self[value] = result
        return result


VARINTS = _Encodings()
"""`VARINTS[value]` is the encoding of any value. A lookup costs a third of a function call."""

SINGLE_BYTES = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
"""The values of all one-byte varints, indexed by that byte."""


def encode_varint(value: int) -> bytes:
    return VARINTS[value]


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read the varint at `position`, and return its value and the position after it.

    Raises:
        IndexError: The data ends before the varint does.
        CorruptBatch: The varint does not fit into 64 bits.
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    folded = byte & 0x7F
    byte = data[position + 1]
    if byte < 0x80:
        folded |= byte << 7
        return (folded >> 1) ^ -(folded & 1), position + 2
    return _read_long(data, position)


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    folded = 0
    for index in range(_MAX_BYTES):
        byte = data[position + index]
        folded |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if folded >> 64:
                break
            return (folded >> 1) ^ -(folded & 1), position + index + 1
    raise CorruptBatch(f"the varint at byte {position} is too long", ErrorCode.INVALID_RECORD)

"""Parsing of COPY … TO STDOUT in the text format.

Columns are separated by tabs, null is `\\N`, and special characters are escaped by a backslash.
"""

from __future__ import annotations

import re

from ottla.connect.connectors.postgres.pgoutput import Row

_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_MEANINGS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def split_line(line: bytes) -> Row:
    """Return the values of a row, with or without its newline."""
    if line.endswith(b"\n"):
        line = line[:-1]
    values: Row = list(line.split(b"\t"))
    if b"\\" in line:
        return [_unescape(each) for each in line.split(b"\t")]
    return values


def _unescape(value: bytes) -> bytes | None:
    if value == b"\\N":
        return None
    if b"\\" not in value:
        return value
    return _ESCAPED.sub(lambda found: _MEANINGS.get(found[1], found[1]), value)

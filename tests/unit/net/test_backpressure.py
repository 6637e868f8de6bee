"""Tests of messages in several parts: a slow peer pauses the protocol, a lost one is no error."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from ottla.net.backpressure import write_pieces

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

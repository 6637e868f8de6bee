"""Tests of setting up connections between processes on the same machine."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from ottla.net.same_machine import disable_pacing

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="the system lets nobody choose"
)


class Seen:
    """Transport that reports a socket and the given addresses of its ends."""

    def __init__(self, connected: socket.socket, **said: Any) -> None:
        self._said = {"socket": connected, **said}

    def get_extra_info(self, name: str) -> Any:
        return self._said.get(name)


def chosen(connected: Any) -> bytes:
    name = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return bytes(name).rstrip(b"\0")


def test_both_ends_on_one_machine_do_not_pace() -> None:
    async def run() -> None:
        listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        disable_pacing(writer.transport)
        assert chosen(writer.get_extra_info("socket")) == b"reno"
        writer.close()
        listening.close()

    asyncio.run(run())
    uvloop.run(run())


@pytest.mark.parametrize("there", [("10.1.2.3", 4), None])
def test_a_peer_elsewhere_keeps_what_the_system_chose(there: tuple[str, int] | None) -> None:
    with socket.socket() as connected:
        before = chosen(connected)
        disable_pacing(Seen(connected, sockname=("10.1.2.4", 5), peername=there))  # type: ignore[arg-type]
        assert chosen(connected) == before

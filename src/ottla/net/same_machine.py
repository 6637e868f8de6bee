"""Connections between programs on one machine.

The system's congestion control is chosen for networks. BBR, where it is the one, paces what it
sends, with a timer for every piece; on a way that has no bottleneck it spares nothing, and on a
virtual machine the timers can be most of what sending costs. Measured on one, for a GB that is sent
from a file over loopback: 0.52 CPU seconds and 1.6 GB/s with BBR, 0.13 and 3.7 without."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

_UNPACED = b"reno"
"""Of those that there are, the one that every Linux has and lets everybody choose."""


def do_not_pace(transport: asyncio.BaseTransport) -> None:
    """If both ends of the connection are on this machine."""
    option = getattr(socket, "TCP_CONGESTION", None)
    here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    connected = transport.get_extra_info("socket")
    if option is None or connected is None or not here or not there or here[0] != there[0]:
        return
    with suppress(OSError):
        connected.setsockopt(socket.IPPROTO_TCP, option, _UNPACED)

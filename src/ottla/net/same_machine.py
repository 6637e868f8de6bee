"""Tuning of connections between processes on one machine.

The system's congestion control is meant for networks. BBR paces what it sends, with a timer per
segment. On a path without a bottleneck that has no benefit, and on a virtual machine the timers can
be most of the cost of sending. Measured on a virtual machine, for 1 GB sent from a file over
loopback: 0.52 CPU seconds and 1.6 GB/s with BBR, 0.13 CPU seconds and 3.7 GB/s without.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

_UNPACED = b"reno"
"""Congestion control without pacing that every Linux has and that any process may choose."""


def disable_pacing(transport: asyncio.BaseTransport) -> None:
    """Turn off pacing if both ends of the connection are on this machine.

    Args:
        transport: The transport of a TCP connection.
    """
    option = getattr(socket, "TCP_CONGESTION", None)
    here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    connected = transport.get_extra_info("socket")
    if option is None or connected is None or not here or not there or here[0] != there[0]:
        return
    with suppress(OSError):
        connected.setsockopt(socket.IPPROTO_TCP, option, _UNPACED)

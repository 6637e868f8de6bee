"""Listening sockets, and error messages that say why one could not be bound.

Options are set on the listening socket; accepted sockets inherit them without further calls."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ottla.base.errors import UserError

KEEPALIVE_IDLE_S = 120
KEEPALIVE_INTERVAL_S = 30
KEEPALIVE_PROBES = 4
"""Together they detect a client whose machine is gone within four minutes."""


class BoundSocket(Protocol):
    """The parts of a bound socket that the server uses."""

    def getsockname(self) -> Any: ...

    def close(self) -> None: ...


BindListener = Callable[[str, int, int, int], Awaitable[Sequence[BoundSocket]]]
"""Signature of `bind_listener`; a simulated network has its own."""

_UNUSABLE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def file_limit() -> int:
    """Raise the soft limit on open files to the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # macOS allows less than the hard limit it reports
            pass
    return 2**31 if soft == resource.RLIM_INFINITY else soft


async def bind_listener(
    host: str, port: int, send_buffer_bytes: int, receive_buffer_bytes: int
) -> list[socket.socket]:
    """Bind a socket to each address of a host, all with the same port.

    Args:
        host: Host name or address; '' for every address of the machine.
        port: Port; 0 for any free one.
        send_buffer_bytes: Size of the send buffer; the kernel's default if not positive.
        receive_buffer_bytes: Size of the receive buffer; the kernel's default if not positive.

    Raises:
        UserError: The host does not resolve, has no usable address, or the port is in use.
    """
    sockets: list[socket.socket] = []
    unusable: OSError | None = None
    try:
        for family, address in await _resolve(host, port):
            try:
                sock = _bind(family, address, port, send_buffer_bytes, receive_buffer_bytes)
            except OSError as error:
                if error.errno not in _UNUSABLE:
                    raise
                unusable = error
                continue
            sockets.append(sock)
            port = sock.getsockname()[1]
        if not sockets and unusable is not None:
            raise unusable
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise UserError(_bind_error_message(host, port, error)) from error
    return sockets


async def _resolve(host: str, port: int) -> list[tuple[int, Any]]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"Cannot listen on {host}:{port}: the host name {host!r} does not resolve; "
            "correct it in 'listeners'."
        ) from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bind(
    family: int, address: Any, port: int, send_buffer_bytes: int, receive_buffer_bytes: int
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _set_options(sock, send_buffer_bytes, receive_buffer_bytes)
        sock.bind((address[0], port, *address[2:]))
    except BaseException:
        sock.close()
        raise
    return sock


def _set_options(sock: socket.socket, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        option = getattr(socket, name, None)  # not every system has all three
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    if send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)


def _bind_error_message(host: str, port: int, error: OSError) -> str:
    where = f"{host or '*'}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"Cannot listen on {where}: the port is in use; stop the program that uses it, "
                "or choose another port in 'listeners'."
            )
        case errno.EACCES:
            return (
                f"Cannot listen on {where}: ports below 1024 require a privilege; choose "
                "another port in 'listeners'."
            )
        case errno.EADDRNOTAVAIL:
            return f"Cannot listen on {where}: this machine has no such address."
        case _:
            return f"Cannot listen on {where}: {error.strerror or error}."

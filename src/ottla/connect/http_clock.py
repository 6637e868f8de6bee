"""A question over HTTP that ends in time.

A socket's own timeout begins anew with each byte: whoever sends one now and then would hold a task
for ever. A clock shuts the connection when the time is over, at whatever point it is: handshake,
headers or body."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
from typing import Any


class Clock:
    """Shuts the connections of one question when its time is over."""

    def __init__(self, timeout_s: float) -> None:
        self.is_over = False
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._timer = threading.Timer(timeout_s, self._shut)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, connection: http.client.HTTPConnection) -> None:
        """Before it is used for the question; it may be open already."""
        if connection.sock is not None:
            self._note(connection.sock)
        # Python's own name for how a connection is opened; there is no other way between its
        # opening and TLS's handshake.
        connection._create_connection = self._connect  # type: ignore[attr-defined]

    def _connect(self, *args: Any, **more: Any) -> socket.socket:
        made = socket.create_connection(*args, **more)
        self._note(made)
        return made

    def _note(self, opened: socket.socket) -> None:
        with self._lock:
            # A second handle: TLS takes the first away, and both are of one connection.
            self._open.append(_second(opened))
        if self.is_over:
            self._shut()

    def _shut(self) -> None:
        self.is_over = True
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._open:
                each.close()
            self._open = []


def _second(opened: socket.socket) -> socket.socket:
    return socket.socket(fileno=os.dup(opened.fileno()))


def late(timeout_s: float) -> str:
    """What is said of one that was not in time."""
    return f"it did not answer in {timeout_s * 1000:.0f} ms"

"""Deadline for a whole HTTP request.

A socket's timeout restarts with every byte, so a server that sends one now and then could block a
task forever. A `Deadline` shuts the connection down when it expires, during the handshake, the
headers or the body.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
from typing import Any


class Deadline:
    """Timer that shuts down the connections of one request at its deadline."""

    def __init__(self, timeout_s: float) -> None:
        self.is_over = False
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._timer = threading.Timer(timeout_s, self._shut)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, connection: http.client.HTTPConnection) -> None:
        """Register a connection, open or not, before the request is sent."""
        if connection.sock is not None:
            self._note(connection.sock)
        # http.client's own hook for opening a connection: the only point between connecting and the
        # TLS handshake.
        connection._create_connection = self._connect  # type: ignore[attr-defined]

    def _connect(self, *args: Any, **more: Any) -> socket.socket:
        made = socket.create_connection(*args, **more)
        self._note(made)
        return made

    def _note(self, opened: socket.socket) -> None:
        with self._lock:
            # Duplicate the descriptor: TLS detaches the original socket, and a shutdown of either
            # descriptor ends the connection.
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


def timeout_message(timeout_s: float) -> str:
    """Return the error message for a request that exceeded its deadline."""
    return f"no response within {timeout_s * 1000:.0f} ms"

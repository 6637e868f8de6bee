"""A schema registry for tests that responds with arbitrary bytes, slowly, or not at all."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

DRIP_S = 0.05


class LyingRegistry:
    """Server that responds to every request with the bytes of `answer`.

    If `answer` is None, it sends nothing and keeps the connection open. With `drips`, it sends the
    bytes one at a time, slowly and forever."""

    def __init__(self, response: bytes | None = None, *, drips: bool = False) -> None:
        self.response, self.drips = response, drips
        self.requests = 0
        self._counted = threading.Condition()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                with self._counted:
                    self.requests += 1
                    self._counted.notify_all()
                if self.response is None:
                    self._closing.wait(60)
                elif self.drips:
                    connection.sendall(self.response)
                    while not self._closing.wait(DRIP_S):
                        connection.sendall(b"x")
                else:
                    connection.sendall(self.response)
            except OSError:
                return

    def requests_after(self, count: int) -> int:
        """Wait for `count` requests, and return how many there have been.

        A client may give up before the server's threads have run."""
        with self._counted:
            self._counted.wait_for(lambda: self.requests >= count, timeout=20)
            return self.requests

    def close(self) -> None:
        self._closing.set()
        self._listener.close()


def http(status: int, body: bytes | Any, *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Any", f"Content-Length: {len(data)}", "Connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + data

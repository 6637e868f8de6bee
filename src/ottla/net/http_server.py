"""HTTP servers, with one thread per connection up to a limit."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ottla.base.errors import UserError

MAX_CONNECTIONS = 64
SLOT_TIMEOUT_S = 1.0
"""How long a connection waits for another one to end before it is closed."""


class HttpServer(ThreadingHTTPServer):
    """A server that listens at once, and answers in threads after `start`.

    Args:
        host: Address to listen on; empty for all.
        port: Port to listen on; 0 for any free one.
        handler: Handler of the requests.
        hint: Sentence that is added to the error if the address cannot be used.

    Raises:
        UserError: The address cannot be used.
    """

    daemon_threads = True

    def __init__(
        self, host: str, port: int, handler: type[BaseHTTPRequestHandler], *, hint: str = ""
    ) -> None:
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), handler)
        except OSError as error:
            reason = (error.strerror or "the address is not available").lower()
            message = f"Cannot listen on {host or '*'}:{port}: {reason}. {hint}"
            raise UserError(message.rstrip()) from error

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, daemon=True, name="http").start()

    def close(self) -> None:
        """Stop listening. Must be called after `start`."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(timeout=SLOT_TIMEOUT_S):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

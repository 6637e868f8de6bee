"""HTTP server for `http_resources`, with one thread per connection up to a limit."""

from __future__ import annotations

import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ottla.base.errors import UserError
from ottla.streams.http_resources import Resources

logger = logging.getLogger(__name__)

IDLE_TIMEOUT_S = 60
MAX_CONNECTIONS = 64


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, or a port of the loopback interface."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise UserError(f"http={text!r} is invalid. Use host:port, or only a port for 127.0.0.1.")
    return host.strip("[]") or "127.0.0.1", int(port)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "ottla-streams"
    timeout = IDLE_TIMEOUT_S
    resources: Resources

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        # A key may contain a slash, written as %2F.
        path = "/".join(unquote(each).replace("/", "\0") for each in address.path.split("/"))
        response = self.resources.get(path, parse_qs(address.query))
        data = response.body.encode()
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        super().__init__(address, handler)
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(timeout=1):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()


class HttpServer:
    def __init__(self, address: str, resources: Resources) -> None:
        """Listen on an address and serve it in a thread.

        Raises:
            UserError: The address cannot be used.
        """
        host, port = parse_address(address)
        handler = type("Handler", (_Handler,), {"resources": resources})
        try:
            self._server = _Server((host, port), handler)
        except OSError as error:
            reason = (error.strerror or "the address is not available").lower()
            raise UserError(f"Cannot listen on {host}:{port}: {reason}.") from error
        thread = threading.Thread(target=self._server.serve_forever, daemon=True, name="rest")
        thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

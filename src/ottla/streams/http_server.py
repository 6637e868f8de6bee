"""HTTP server for `http_resources`."""

from __future__ import annotations

import logging
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ottla.base.errors import UserError
from ottla.net.http_server import HttpServer
from ottla.streams.http_resources import Resources

logger = logging.getLogger(__name__)

IDLE_TIMEOUT_S = 60


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


class ResourceServer:
    def __init__(self, address: str, resources: Resources) -> None:
        """Listen on an address and serve it in a thread.

        Raises:
            UserError: The address cannot be used.
        """
        host, port = parse_address(address)
        handler = type("Handler", (_Handler,), {"resources": resources})
        self._server = HttpServer(host, port, handler)
        self._server.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        self._server.close()

"""HTTP server of the REST API."""

from __future__ import annotations

import json
import logging
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ottla.base.errors import UserError
from ottla.connect.herder import Herder
from ottla.connect.rest.exchange import Request
from ottla.connect.rest.forward import FORWARDED
from ottla.connect.rest.router import handle
from ottla.net.http_server import HttpServer

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 8 * 1024 * 1024
IDLE_S = 60


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "ottla-connect"
    timeout = IDLE_S
    herder: Herder

    def _serve(self) -> None:
        text = self.headers.get("Content-Length") or "0"
        if not text.isdecimal() or int(text) > MAX_BODY_BYTES:
            self.close_connection = True
            self._send(413, {"error_code": 413, "message": "The body is too large"})
            return
        body = self.rfile.read(int(text))
        address = urlsplit(self.path)
        request = Request(
            self.herder,
            parse_qs(address.query),
            body,
            self.path,
            is_forwarded=self.headers.get(FORWARDED) is not None,
        )
        found = handle(request, self.command, unquote(address.path))
        self._send(found.status, found.body, found.location)

    def _send(self, status: int, body: Any, location: str | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if location is not None:
            self.send_header("Location", location)
        if data:
            self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


class RestServer:
    def __init__(self, herder: Herder) -> None:
        self._herder = herder
        self._servers: list[HttpServer] = []

    @property
    def ports(self) -> list[int]:
        return [int(each.server_address[1]) for each in self._servers]

    def start(self) -> None:
        """Listen on all configured addresses; raise UserError if one is unavailable."""
        handler = type("Handler", (_Handler,), {"herder": self._herder})
        for host, port in self._herder.config.listeners:
            try:
                server = HttpServer(
                    host, port, handler, hint="Set listeners to another address for the REST API."
                )
            except UserError:
                self.close()
                raise
            self._servers.append(server)
            server.start()
            logger.info(
                "the REST API listens on http://%s:%d", host or "localhost", server.server_port
            )

    def close(self) -> None:
        for each in self._servers:
            each.close()
        self._servers = []

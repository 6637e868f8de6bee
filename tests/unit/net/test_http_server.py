"""HTTP servers: addresses that cannot be used, and the limit of connections."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from ottla.base.errors import UserError
from ottla.net import http_server
from ottla.net.http_server import HttpServer

TIMEOUT_S = 20


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(http_server, "SLOT_TIMEOUT_S", 0.01)
    server = HttpServer("127.0.0.1", 0, Handler)
    server.start()
    yield server
    server.close()


def connection(server: HttpServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=TIMEOUT_S)


def status(client: http.client.HTTPConnection) -> int:
    client.request("GET", "/")
    response = client.getresponse()
    response.read()
    return response.status


def test_a_connection_above_the_limit_is_closed(server: HttpServer) -> None:
    first, second, third = (connection(server) for _ in range(3))
    assert [status(first), status(second)] == [200, 200]
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        status(third)
    first.close()
    second.close()


def test_a_connection_that_ends_makes_room(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "SLOT_TIMEOUT_S", TIMEOUT_S)
    first, second, third = (connection(server) for _ in range(3))
    assert [status(first), status(second)] == [200, 200]
    first.close()
    assert status(third) == 200
    second.close()
    third.close()


def test_an_address_in_use_is_reported(server: HttpServer) -> None:
    with pytest.raises(UserError, match=r"Cannot listen on 127\.0\.0\.1:\d+: .+\. Choose another"):
        HttpServer("127.0.0.1", server.server_port, Handler, hint="Choose another port.")


def test_a_host_that_is_not_of_this_machine_is_reported() -> None:
    with pytest.raises(UserError, match=r"Cannot listen on 192\.0\.2\.1:80: .+\.$"):
        HttpServer("192.0.2.1", 80, Handler)

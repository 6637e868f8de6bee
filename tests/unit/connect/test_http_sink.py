"""Tests of the HTTP sink against a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.unit.connect.lying_registry import LyingRegistry

from ottla.base.errors import UserError
from ottla.connect.api import RetriableError
from ottla.connect.data import ConnectRecord, DataError
from ottla.testing.connectors import SinkKit


class Server:
    """HTTP server that keeps its requests and responds with the result of `answer`."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.response: Callable[[bytes], tuple[int, dict[str, str]]] = lambda body: (200, {})
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append((self.path, dict(self.headers), body))
                status, headers = server.response(body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"text")

            do_PUT = do_POST  # noqa: N815

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("localhost", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://localhost:{self._server.server_port}"

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def sink(server: Server, *, tolerates: bool = False, **given: str) -> SinkKit:
    properties = {"http.url": f"{server.url}/in", "retry.backoff.ms": "1"}
    properties |= {name.replace("_", "."): value for name, value in given.items()}
    return SinkKit("HttpSink", properties, tolerates=tolerates)


def test_each_record_is_a_request(server: Server) -> None:
    sink(server).put({"a": 1}, '"text"', None)
    assert server.bodies == [{"a": 1}, "text", None]
    path, headers, _ = server.requests[0]
    assert (path, headers["Content-Type"]) == ("/in", "application/json")


def test_many_records_are_one_request(server: Server) -> None:
    sink(server, batching_enabled="true", batch_max_size="2").put(1, 2, 3)
    assert server.bodies == [[1, 2], [3]]
    given = {"batch_prefix": "", "batch_suffix": "", "batch_separator": "\\n"}
    sink(server, batching_enabled="true", **given).put(1, 2)
    assert server.requests[-1][2] == b"1\n2"


def test_topics_can_have_addresses_of_their_own(server: Server) -> None:
    kit = sink(server, batching_enabled="true", http_url=f"{server.url}/${{topic}}?q=1")
    kit.put(ConnectRecord("a b", 1), ConnectRecord("a b", 2), ConnectRecord("c", 3))
    assert [(path, json.loads(body)) for path, _, body in server.requests] == [
        ("/a%20b?q=1", [1, 2]),
        ("/c?q=1", [3]),
    ]


def test_headers_and_credentials_go_with_it(server: Server) -> None:
    given = {
        "http_authorization_type": "basic",
        "http_basic_user": "me",
        "http_basic_password": "secret",
        "http_headers_additional": "X-A: 1,X-B:2",
        "http_method": "PUT",
    }
    sink(server, **given).put(1)
    headers = server.requests[0][1]
    assert (headers["Authorization"], headers["X-A"], headers["X-B"]) == (
        "Basic bWU6c2VjcmV0",
        "1",
        "2",
    )


def test_a_batch_that_comes_again_is_the_same_requests(server: Server) -> None:
    kit = sink(server, batching_enabled="true")
    kit.put(1, 2)
    kit.repeat(1, 2)
    first, again = (headers["Idempotency-Key"] for _, headers, _ in server.requests)
    assert first == again
    kit.put(1, 2)
    assert server.requests[-1][1]["Idempotency-Key"] != first


def test_what_may_pass_is_sent_again(server: Server) -> None:
    responses = [503, 429, 200]
    server.response = lambda body: (responses.pop(0), {"Retry-After": "0"})
    sink(server).put(1)
    assert server.bodies == [1, 1, 1]
    server.response = lambda body: (500, {})
    with pytest.raises(RetriableError, match="/in did not accept the records: 500 text"):
        sink(server, max_retries="2").put(1)
    assert len(server.requests) == 6
    server.close()
    with pytest.raises(RetriableError, match="did not accept the records"):
        sink(server, max_retries="0").put(1)


def test_a_refused_record_is_found_and_the_others_are_sent(server: Server) -> None:
    server.response = lambda body: (422 if b"13" in body else 200, {})
    kit = sink(server, tolerates=True, batching_enabled="true")
    kit.put(*range(10, 30))
    ((record, error),) = kit.reported
    assert record.value == 13
    assert str(error).endswith("/in responded with 422 text")
    taken = [value for body in server.bodies if 13 not in body for value in body]
    assert sorted(taken) == [value for value in range(10, 30) if value != 13]
    with pytest.raises(DataError, match="422"):
        sink(server).put(13)


def test_what_is_not_for_a_records_sake_fails_the_task(server: Server) -> None:
    server.response = lambda body: (401, {})
    with pytest.raises(UserError, match="/in responded with 401 text"):
        sink(server, tolerates=True).put(1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"http_url": "ftp://x"}, "http.url must look like"),
        ({"http_url": "http://me:pw@x/"}, "http.basic.user"),
        ({"http_authorization_type": "static"}, "needs http.headers.authorization"),
        ({"http_headers_additional": "nothing"}, "must look like name:value"),
    ],
)
def test_wrong_settings_are_reported(server: Server, given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        sink(server, **given)


@pytest.mark.parametrize(
    "begun", [b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["header", "body"]
)
def test_a_server_that_answers_byte_by_byte_does_not_hold_the_task(begun: bytes) -> None:
    slow = LyingRegistry(begun, drips=True)
    try:
        given = {"http.url": slow.url, "http.timeout": "1", "max.retries": "0"}
        with pytest.raises(RetriableError, match="no response within 1000 ms"):
            SinkKit("HttpSink", given).put("x")
    finally:
        slow.close()

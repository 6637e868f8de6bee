"""A scripted broker: a socket, Kafka's frames, and a script in Python.

Each connection runs the script in a thread of its own and is closed when the script returns.
`serve` is a script that answers what every client needs first: ApiVersions, and metadata that
lists the fake broker as the only one."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from ottla.base.errors import ErrorCode
from ottla.wire import codec, schema
from ottla.wire.api import Api

NODE_ID = 7


class Asked(NamedTuple):
    api: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any


class Stream:
    """One connection from the broker's point of view."""

    def __init__(self, connection: socket.socket, broker: FakeBroker) -> None:
        self.socket = connection
        self.broker = broker

    def receive(self) -> Asked | None:
        """Return the next request, or None when the client has closed the connection."""
        head = self._exactly(4)
        if head is None:
            return None
        frame = self._exactly(struct.unpack(">i", head)[0])
        if frame is None:
            return None
        api, version, correlation_id, client_id, position = codec.decode_request_header(
            memoryview(frame)
        )
        body = None
        if version in schema.versions(api):
            body = codec.decode_request(api, version, memoryview(frame), position)
        asked = Asked(api, version, correlation_id, client_id, body)
        self.broker.asked.append(asked)
        return asked

    def answer(self, asked: Asked, *, version: int | None = None, **body: Any) -> None:
        version = asked.version if version is None else version
        self.send(b"".join(codec.encode_response(asked.api, version, asked.correlation_id, body)))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer_versions(self, asked: Asked, versions: dict[int, tuple[int, int]]) -> None:
        self.answer(asked, **versions_body(versions))

    def open(self, versions: dict[int, tuple[int, int]] | None = None) -> None:
        """Answer the first request, which must be ApiVersions."""
        asked = self.receive()
        assert asked is not None
        assert asked.api == Api.API_VERSIONS
        self.answer_versions(asked, versions or KNOWN)

    def serve(self, versions: dict[int, tuple[int, int]] | None = None) -> None:
        """Answer ApiVersions and Metadata, and return at any other request or at the end."""
        while (asked := self.receive()) is not None:
            if asked.api == Api.API_VERSIONS:
                self.answer_versions(asked, versions or KNOWN)
            elif asked.api == Api.METADATA:
                self.answer(asked, **self.broker.metadata())
            else:
                return

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                return None
            data += part
        return bytes(data)


KNOWN = {int(api): (schema.versions(api)[0], schema.versions(api)[-1]) for api in Api}
Script = Callable[[Stream], object]


def versions_body(versions: dict[int, tuple[int, int]]) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "api_keys": [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in versions.items()
        ],
    }


class FakeBroker:
    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        """Every request received so far, on any connection."""
        self.connections = 0
        self.host = "127.0.0.1"
        self._script = script
        self._tls = tls
        self._open: list[socket.socket] = []
        self._listener = socket.create_server((self.host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def metadata(self) -> dict[str, Any]:
        node = {"node_id": NODE_ID, "host": self.host, "port": self.port, "rack": None}
        return {"brokers": [node], "cluster_id": "fake", "controller_id": NODE_ID, "topics": []}

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            self._script(Stream(connection, self))
        except OSError:
            pass  # the client has closed the connection
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake accept()
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(10)

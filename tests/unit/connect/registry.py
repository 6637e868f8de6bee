"""A small schema registry for tests, with Confluent's HTTP API."""

from __future__ import annotations

import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeRegistry:
    def __init__(self) -> None:
        self.schemas: list[tuple[str, str]] = []
        """Pairs of schema type and text. The ID of a schema is its position, counted from 1."""
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        self.failures = 0
        """Number of requests to answer with 503 before requests succeed."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._respond(self, None)

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                registry._respond(self, json.loads(self.rfile.read(size)))

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("localhost", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://localhost:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _respond(self, request: BaseHTTPRequestHandler, asked: Any) -> None:
        self.requests.append(f"{request.command} {request.path}")
        self.authorizations.add(request.headers["Authorization"])
        if self.failures:
            self.failures -= 1
            status, document = 503, {"error_code": 50301, "message": "busy"}
        else:
            path = urllib.parse.urlsplit(request.path).path
            parts = [urllib.parse.unquote(each) for each in path.strip("/").split("/")]
            status, document = self._reply(request.command, parts, asked)
        data = json.dumps(document).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _reply(self, method: str, parts: list[str], asked: Any) -> tuple[int, Any]:
        missing = {"error_code": 40403, "message": "Schema not found"}
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                if not 0 < int(number) <= len(self.schemas):
                    return 404, missing
                kind, text = self.schemas[int(number) - 1]
                return 200, {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})}
            case "GET", ["subjects", subject, "versions", "latest"]:
                if subject not in self.subjects:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                number = self.subjects[subject][-1]
                return 200, {"id": number, "schema": self.schemas[number - 1][1]}
            case "POST", ["subjects", subject, "versions"]:
                document = (asked.get("schemaType", "AVRO"), asked["schema"])
                if document not in self.schemas:
                    self.schemas.append(document)
                number = self.schemas.index(document) + 1
                self.subjects.setdefault(subject, []).append(number)
                return 200, {"id": number}
            case "POST", ["subjects", subject]:
                document = (asked.get("schemaType", "AVRO"), asked["schema"])
                known = self.schemas.index(document) + 1 if document in self.schemas else 0
                if known in self.subjects.get(subject, []):
                    return 200, {"id": known, "subject": subject, "version": 1}
                return 404, missing
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

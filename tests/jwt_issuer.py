"""An issuer of tokens for tests: keys, tokens, and an HTTP server with the key set."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

ISSUER = "https://issuer.example"
AUDIENCE = "kafka"

_MAKERS: dict[str, Callable[[], Any]] = {
    "RS": lambda: rsa.generate_private_key(65537, 2048),
    "PS": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


class SigningKey:
    """A private key with its ID and algorithm."""

    def __init__(self, key_id: str, algorithm: str = "ES256") -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        maker = _MAKERS.get(algorithm) or _MAKERS[algorithm[:2]]
        self.private = maker()

    def public_jwk(self, **changes: Any) -> dict[str, Any]:
        found = get_default_algorithms()[self.algorithm].to_jwk(
            self.private.public_key(), as_dict=True
        )
        assert isinstance(found, dict)
        found.pop("key_ops", None)
        return {**found, "kid": self.key_id, "use": "sig", "alg": self.algorithm, **changes}


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a valid token; a change to `...` removes a claim."""
    now = time.time()
    found: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": now - 1,
        "exp": now + 300,
    }
    found.update(changes)
    return {name: value for name, value in found.items() if value is not ...}


def sign(
    key: SigningKey,
    payload: dict[str, Any] | None = None,
    headers: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    """Return a token."""
    content = claims(**changes) if payload is None else payload
    found = {"kid": key.key_id, **(headers or {})}
    found = {name: value for name, value in found.items() if value is not ...}
    return jwt.encode(content, key.private, key.algorithm, headers=found)


def key_set(*keys: SigningKey | dict[str, Any]) -> bytes:
    """Return a JSON Web Key Set."""
    entries = [each if isinstance(each, dict) else each.public_jwk() for each in keys]
    return json.dumps({"keys": entries}).encode()


class KeyServer(AbstractContextManager["KeyServer"]):
    """An HTTP server on the loopback interface with a key set, which counts the requests."""

    def __init__(self, document: bytes = b"{}", tls: ssl.SSLContext | None = None) -> None:
        self.document = document
        self.status = 200
        self.location: str | None = None
        self.requests = 0
        self.hold = threading.Event()
        """Cleared by a test to make requests wait."""
        self.hold.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                outer.hold.wait(10)
                self.send_response(outer.status)
                if outer.location is not None:
                    self.send_header("Location", outer.location)
                self.send_header("Content-Length", str(len(outer.document)))
                self.end_headers()
                self.wfile.write(outer.document)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/jwks"

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class TokenEndpoint(AbstractContextManager["TokenEndpoint"]):
    """An HTTP server that issues tokens for client credentials."""

    def __init__(self, key: SigningKey, subject: str = "app") -> None:
        self.forms: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                outer.forms.append(self.rfile.read(size).decode())
                now = int(time.time())
                token = sign(key, sub=subject, iat=now, exp=now + 300)
                body = json.dumps(
                    {"access_token": token, "expires_in": 300, "token_type": "Bearer"}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.close()

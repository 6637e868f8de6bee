"""The client's side of SASL DIGEST-MD5 (RFC 2831), as ZooKeeper's server expects it.

    client: (empty)
    server: realm="zk-sasl-md5",nonce="…",charset=utf-8,algorithm=md5-sess,…
    client: username="…",realm="…",nonce="…",cnonce="…",response=…,…
    server: rspauth=…

The password is not sent. `rspauth` proves that the server knows it as well. The obsolete hash is
ZooKeeper's choice: it has no other mechanism with passwords. Use TLS to protect the exchange.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

SERVICE = "zookeeper/zk-sasl-md5"
"""Service and server name that ZooKeeper's servers use, whatever their host names are."""
QOP = "auth"
FIRST_COUNT = "00000001"
MAX_BUFFER = 65536

_DIRECTIVE = re.compile(rb'\s*([A-Za-z0-9-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')


class DigestMd5Error(Exception):
    """The server's messages do not follow the mechanism, or it does not know the password."""


class DigestMd5Client:
    """One authentication.

    Args:
        user: Name of the user.
        password: Password of the user.
        client_nonce: A value that is never used twice; None for a random one.
        service: Service and name of the server.
    """

    def __init__(
        self,
        user: str,
        password: str,
        client_nonce: str | None = None,
        service: str = SERVICE,
    ) -> None:
        self._user = user
        self._password = password
        self._client_nonce = client_nonce or secrets.token_urlsafe(24)
        self._service = service
        self._expected = b""

    def respond(self, challenge: bytes) -> bytes:
        """Return the response to the server's challenge.

        Raises:
            DigestMd5Error: The challenge cannot be answered.
        """
        found = _parse(challenge)
        nonce = found.get("nonce", b"")
        if found.get("algorithm", b"") != b"md5-sess" or not nonce:
            raise DigestMd5Error("the challenge is not one of DIGEST-MD5")
        if QOP.encode() not in [each.strip() for each in found.get("qop", b"auth").split(b",")]:
            raise DigestMd5Error("the server requires a security layer")
        realm = found.get("realm", b"")
        secret = _md5(b":".join([_encoded(self._user), realm, _encoded(self._password)]))
        session = b":".join([secret, nonce, self._client_nonce.encode()])
        response = self._response(session, nonce, b"AUTHENTICATE:")
        self._expected = self._response(session, nonce, b":")
        return b",".join(
            [
                b"charset=utf-8",
                b'username="' + _quoted(self._user.encode()) + b'"',
                b'realm="' + _quoted(realm) + b'"',
                b'nonce="' + _quoted(nonce) + b'"',
                f'cnonce="{self._client_nonce}"'.encode(),
                f"nc={FIRST_COUNT}".encode(),
                f"qop={QOP}".encode(),
                f'digest-uri="{self._service}"'.encode(),
                f"maxbuf={MAX_BUFFER}".encode(),
                b"response=" + response,
            ]
        )

    def check(self, final: bytes) -> None:
        """Check the server's proof that it knows the password.

        Raises:
            DigestMd5Error: The proof is wrong or missing.
        """
        proof = _parse(final).get("rspauth", b"")
        if not self._expected or not hmac.compare_digest(proof, self._expected):
            raise DigestMd5Error("the server did not prove that it knows the password")

    def _response(self, session: bytes, nonce: bytes, action: bytes) -> bytes:
        parts = (
            *(_hex(session), nonce, FIRST_COUNT.encode(), self._client_nonce.encode()),
            *(QOP.encode(), _hex(action + self._service.encode())),
        )
        return _hex(b":".join(parts))


def _parse(message: bytes) -> dict[str, bytes]:
    """Return the directives of a message, by name in lower case."""
    found: dict[str, bytes] = {}
    position = 0
    while position < len(message):
        match = _DIRECTIVE.match(message, position)
        if match is None:
            raise DigestMd5Error("the server sent a malformed message")
        quoted, plain = match[2], match[3]
        value = plain if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted)
        found.setdefault(match[1].decode().lower(), value)
        position = match.end()
    return found


def _encoded(text: str) -> bytes:
    """Return the bytes to hash: ISO 8859-1 if possible, otherwise UTF-8 (RFC 2831, 2.1.2.1)."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> bytes:
    return _md5(data).hex().encode()

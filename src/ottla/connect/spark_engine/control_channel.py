"""Authenticated messages between the driver and the process of a task, over TCP.

Each run of a task has a random key, which Spark sends to the executor with the task. Both ends
prove that they know it, and every message carries a code that only a holder of the key can compute:

    length (4 bytes) | HMAC-SHA256 of direction, number and payload (32 bytes) | payload (JSON)

Messages are authenticated, not encrypted. They contain states, source offsets and log messages, but
neither records nor properties of connectors.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
from typing import Any

Message = dict[str, Any]

HEARTBEAT_S = 1.0
SILENCE_S = 10.0
"""Time without a message after which the peer is considered lost."""
HANDSHAKE_S = 10.0
MAX_HELLO_BYTES = 4_096
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_MAC_BYTES = 32
_NO_KEY = b""


class ChannelClosed(ConnectionError):
    """The peer closed the channel, sent no message for too long, or is not authentic."""

    def __init__(self, reason: str, *, is_timeout: bool = False) -> None:
        super().__init__(reason)
        self.is_timeout = is_timeout
        """Whether the peer neither sent nor took a message in time."""


class ControlChannel:
    """One end of a channel. `send` may be called by several threads, `receive` by one."""

    def __init__(self, sock: socket.socket, *, is_driver: bool) -> None:
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(HANDSHAKE_S)
        self._ours, self._theirs = (b"driver", b"task") if is_driver else (b"task", b"driver")
        self._key = _NO_KEY
        self._sent = self._received = 0
        self._sending = threading.Lock()
        self._nonce = ""

    # ------------------------------------------------------------------------------- messages

    def send(self, message: Message) -> None:
        """Send a message; raise ChannelClosed if the peer does not take it."""
        payload = json.dumps(message, separators=(",", ":")).encode()
        with self._sending:
            code = self._code(self._ours, self._sent, payload)
            self._sent += 1
            try:
                self._socket.sendall(_LENGTH.pack(len(payload)) + code + payload)
            except OSError as error:
                raise _closed(error) from None

    def receive(self, limit_bytes: int = MAX_MESSAGE_BYTES) -> Message:
        """Return the next message; raise ChannelClosed if none arrives in time."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > limit_bytes:
            raise ChannelClosed(f"a message of {length} bytes is too large")
        code, payload = self._read(_MAC_BYTES), self._read(length)
        if not hmac.compare_digest(code, self._code(self._theirs, self._received, payload)):
            raise ChannelClosed("a message is not authentic")
        self._received += 1
        message = json.loads(payload)
        if not isinstance(message, dict):
            raise ChannelClosed("a message is not an object")
        return message

    def close(self) -> None:
        """Close the channel; a thread in `receive` raises ChannelClosed."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer has closed it
        self._socket.close()

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(min(count - len(parts), 1 << 20))
            except OSError as error:
                raise _closed(error) from None
            if not part:
                raise ChannelClosed("the peer closed the channel")
            parts += part
        return bytes(parts)

    def _code(self, direction: bytes, number: int, payload: bytes) -> bytes:
        text = direction + number.to_bytes(8, "big") + payload
        return hmac.digest(self._key, text, hashlib.sha256) if self._key else bytes(_MAC_BYTES)

    # ----------------------------------------------------------------------------- handshake

    def challenge(self) -> tuple[str, str]:
        """Send the driver's nonce; return the run ID and the nonce of the peer."""
        self._nonce = secrets.token_hex(16)
        self.send({"nonce": self._nonce})
        hello = self.receive(MAX_HELLO_BYTES)
        return str(hello.get("run")), str(hello.get("nonce"))

    def authenticate(self, key: bytes, nonce: str) -> Message:
        """Prove to know the key, and return the peer's first message, which proves it too."""
        self._use(key, self._nonce, nonce)
        return self.receive(MAX_HELLO_BYTES)

    @classmethod
    def connect(cls, host: str, port: int, run: str, key: bytes) -> ControlChannel:
        """Connect to the driver on behalf of a run."""
        made = cls(socket.create_connection((host, port), HANDSHAKE_S), is_driver=False)
        theirs, ours = str(made.receive(MAX_HELLO_BYTES).get("nonce")), secrets.token_hex(16)
        made.send({"run": run, "nonce": ours})
        made._use(key, theirs, ours)
        return made

    def _use(self, key: bytes, driver_nonce: str, task_nonce: str) -> None:
        nonces = f"{driver_nonce}/{task_nonce}".encode()
        self._key = hmac.digest(key, nonces, hashlib.sha256)
        self._sent = self._received = 0
        self._socket.settimeout(SILENCE_S)


def _closed(error: OSError) -> ChannelClosed:
    return ChannelClosed(str(error), is_timeout=isinstance(error, TimeoutError))

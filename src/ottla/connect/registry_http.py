"""One question over HTTP that is answered in time, or not at all.

A socket's own timeout begins anew with each byte: whoever sends one now and then would hold a task
for ever. Here the connection is shut when the time is over, at whatever point it is: handshake,
headers or body. An answer has a size that it must not exceed, and no answer sends us on, with our
credentials, to another host."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import urlsplit

MAX_ANSWER_BYTES = 16 * 1024 * 1024


class NoAnswer(Exception):
    """None in time, or none that can be read; the reason, as half a sentence."""


class Answered(NamedTuple):
    status: int
    body: bytes


def ask(request: urllib.request.Request, timeout_s: float) -> Answered:
    """Raises NoAnswer."""
    clock = _Clock(timeout_s)
    try:
        answered = _ask(request, clock, timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if clock.is_over or isinstance(error, TimeoutError):
            raise NoAnswer(_late(timeout_s)) from None
        reason = getattr(error, "reason", error)
        raise NoAnswer(
            _late(timeout_s) if isinstance(reason, TimeoutError) else str(reason)
        ) from None
    finally:
        clock.stop()
    if clock.is_over:
        # The end of an answer without a length looks as if it had been shut.
        raise NoAnswer(_late(timeout_s))
    if len(answered.body) > MAX_ANSWER_BYTES:
        raise NoAnswer(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
    return answered


def _ask(request: urllib.request.Request, clock: _Clock, timeout_s: float) -> Answered:
    opener = urllib.request.build_opener(_Http(clock), _Https(clock), _SameHost())
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return Answered(response.status, response.read(MAX_ANSWER_BYTES + 1))
    except urllib.error.HTTPError as error:
        with error:
            return Answered(error.code, error.read(MAX_ANSWER_BYTES + 1))


def _late(timeout_s: float) -> str:
    return f"it did not answer in {timeout_s * 1000:.0f} ms"


class _Clock:
    """Shuts the connections of one question when its time is over."""

    def __init__(self, timeout_s: float) -> None:
        self.is_over = False
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._timer = threading.Timer(timeout_s, self._shut)
        self._timer.daemon = True
        self._timer.start()

    def connect(self, *args: Any, **more: Any) -> socket.socket:
        made = socket.create_connection(*args, **more)
        with self._lock:
            # A second handle: TLS takes the first away, and both are of one connection.
            self._open.append(made.dup())
        if self.is_over:
            self._shut()
        return made

    def _shut(self) -> None:
        self.is_over = True
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._open:
                each.close()
            self._open = []


class _Http(urllib.request.HTTPHandler):
    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPConnection, self._clock), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPSConnection, self._clock), req)


def _watched(kind: Any, clock: _Clock) -> Any:
    def make(host: str, **more: Any) -> Any:
        made = kind(host, **more)
        made._create_connection = clock.connect
        return made

    return make


class _SameHost(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        here, there = urlsplit(req.full_url), urlsplit(newurl)
        if here.hostname != there.hostname or there.scheme not in ("https", here.scheme):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)

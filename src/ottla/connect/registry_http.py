"""HTTP requests to a schema registry, with limits on time and size.

Redirects to another host are not followed, because they would carry our credentials.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ottla.connect.http_deadline import Deadline, timeout_message

MAX_RESPONSE_BYTES = 16 * 1024 * 1024


class NoResponse(Exception):
    """No response in time, or none that can be read. The message completes a sentence."""


class HttpResponse(NamedTuple):
    status: int
    body: bytes


def send_request(request: urllib.request.Request, timeout_s: float) -> HttpResponse:
    """Send a request and return the response; raise NoResponse on failure."""
    clock = Deadline(timeout_s)
    try:
        response = _send(request, clock, timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if clock.is_over or isinstance(error, TimeoutError):
            raise NoResponse(timeout_message(timeout_s)) from None
        reason = getattr(error, "reason", error)
        raise NoResponse(
            timeout_message(timeout_s) if isinstance(reason, TimeoutError) else str(reason)
        ) from None
    finally:
        clock.stop()
    if clock.is_over:
        # A response without a length ends the same way when the clock shuts its connection down.
        raise NoResponse(timeout_message(timeout_s))
    if len(response.body) > MAX_RESPONSE_BYTES:
        raise NoResponse(f"the response has more than {MAX_RESPONSE_BYTES} bytes")
    return response


def _send(request: urllib.request.Request, clock: Deadline, timeout_s: float) -> HttpResponse:
    opener = urllib.request.build_opener(_Http(clock), _Https(clock), _SameHost())
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return HttpResponse(response.status, response.read(MAX_RESPONSE_BYTES + 1))
    except urllib.error.HTTPError as error:
        with error:
            return HttpResponse(error.code, error.read(MAX_RESPONSE_BYTES + 1))


class _Http(urllib.request.HTTPHandler):
    def __init__(self, clock: Deadline) -> None:
        super().__init__()
        self._clock = clock

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPConnection, self._clock), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, clock: Deadline) -> None:
        super().__init__()
        self._clock = clock

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPSConnection, self._clock), req)


def _watched(kind: Any, clock: Deadline) -> Any:
    def make(host: str, **more: Any) -> Any:
        made = kind(host, **more)
        clock.watch(made)
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

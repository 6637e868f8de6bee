"""HTTP requests to other services, such as schema registries, with limits on time and size.

Redirects to another host are not followed, because they would carry our credentials.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ottla.net.http_deadline import Deadline, timeout_message

MAX_RESPONSE_BYTES = 16 * 1024 * 1024


class NoResponse(Exception):
    """No response in time, or none that can be read. The message completes a sentence."""


class HttpResponse(NamedTuple):
    status: int
    body: bytes


def send_request(
    request: urllib.request.Request,
    timeout_s: float,
    *,
    tls: ssl.SSLContext | None = None,
    max_bytes: int | None = None,
) -> HttpResponse:
    """Send a request and return the response. Blocks the thread.

    Args:
        request: The request.
        timeout_s: Maximum time of the whole request, in seconds.
        tls: TLS context for https; None trusts the authorities of the operating system.
        max_bytes: Maximum size of the response; MAX_RESPONSE_BYTES by default.

    Raises:
        NoResponse: The server cannot be reached, or its response is late or too large.
    """
    clock = Deadline(timeout_s)
    limit = MAX_RESPONSE_BYTES if max_bytes is None else max_bytes
    try:
        response = _send(request, clock, timeout_s, tls, limit)
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
    if len(response.body) > limit:
        raise NoResponse(f"the response has more than {limit} bytes")
    return response


def _send(
    request: urllib.request.Request,
    clock: Deadline,
    timeout_s: float,
    tls: ssl.SSLContext | None,
    max_bytes: int,
) -> HttpResponse:
    opener = urllib.request.build_opener(_Http(clock), _Https(clock, tls), _SameHost())
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return HttpResponse(response.status, response.read(max_bytes + 1))
    except urllib.error.HTTPError as error:
        with error:
            return HttpResponse(error.code, error.read(max_bytes + 1))


class _Http(urllib.request.HTTPHandler):
    def __init__(self, clock: Deadline) -> None:
        super().__init__()
        self._clock = clock

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPConnection, self._clock), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, clock: Deadline, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._clock = clock
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connect = _watched(http.client.HTTPSConnection, self._clock)
        return self.do_open(connect, req, context=self._tls)


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

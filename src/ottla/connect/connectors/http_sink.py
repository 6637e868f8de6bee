"""Sink that sends records as HTTP requests (at least once).

Values are sent in their text form, structs and maps as JSON. With `batching.enabled` a request
holds many records, as a JSON array. Depending on the status of the response, the task

- accepts it: 2xx;
- repeats the request: 408, 425, 429, 5xx or no response. It tries `max.retries` times, with
  pauses that double or follow Retry-After. Then the worker retries for `errors.retry.timeout`,
  and the task fails;
- splits the request in halves and sends each: 400, 409, 413, 422. A single record that is still
  rejected is reported, and goes to the dead letter queue if the connector has one;
- fails: any other status, because no record is the cause.

A batch that is redelivered after a crash is sent as the same requests. Each has an
`Idempotency-Key` derived from the records' topics, partitions and offsets, by which a server can
recognize duplicates.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import logging
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, NonEmpty, OneOf
from ottla.base.errors import UserError
from ottla.connect.api import RetriableError, SinkConnector, SinkTask
from ottla.connect.converters import as_text
from ottla.connect.data import ConnectRecord, DataError
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.json_converter import JsonConverter
from ottla.net.http_deadline import Deadline, timeout_message

logger = logging.getLogger(__name__)

AGAIN = (408, 425, 429)
REFUSED = (400, 409, 413, 422)
MAX_PAUSE_S = 60.0
MAX_RESPONSE_BYTES = 1024 * 1024
_STRING, _INT, _BOOLEAN = ConfigType.STRING, ConfigType.INT, ConfigType.BOOLEAN


class HttpSink(SinkConnector):
    definition = Definition(
        [
            key("http.url", _STRING, None,
                "URL to send records to; ${topic} is replaced by the record's topic.", NonEmpty(),
                Importance.HIGH),
            key("http.method", _STRING, "POST", "HTTP method of the requests.",
                OneOf(("POST", "PUT", "PATCH"))),
            key("http.headers.content.type", _STRING, "application/json",
                "Value of the Content-Type header."),
            key("http.headers.additional", ConfigType.LIST, [],
                "Additional headers, as name:value."),
            key("http.authorization.type", _STRING, "none", "Authorization of the requests.",
                OneOf(("none", "static", "basic"))),
            key("http.headers.authorization", _STRING, "",
                "Value of the Authorization header, with http.authorization.type=static."),
            key("http.basic.user", _STRING, "", "User name, with http.authorization.type=basic."),
            key("http.basic.password", ConfigType.PASSWORD, "",
                "Password, with http.authorization.type=basic."),
            key("http.timeout", _INT, 30, "Maximum time to wait for a response, in seconds.",
                AtLeast(1)),
            key("http.ssl.trust.all.certs", _BOOLEAN, False,
                "Whether to accept any certificate of the server."),
            key("batching.enabled", _BOOLEAN, False,
                "Whether to send several records in one request."),
            key("batch.max.size", _INT, 500, "Maximum number of records per request.", AtLeast(1)),
            key("batch.prefix", _STRING, "[",
                "Text before the first record of a request, with batching."),
            key("batch.suffix", _STRING, "]",
                "Text after the last record of a request, with batching."),
            key("batch.separator", _STRING, ",",
                "Text between two records, with batching; \\n is a newline."),
            key("max.retries", _INT, 3, "Maximum number of retries of a request.", AtLeast(0)),
            key("retry.backoff.ms", _INT, 1_000,
                "Time before the first retry, in milliseconds; it doubles with each retry.",
                AtLeast(0)),
        ],
        required=["http.url"],
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        parts = urllib.parse.urlsplit(settings["http.url"].replace("${topic}", "t"))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("http.url must look like http://host/path or https://host/path")
        if parts.username:
            raise ValueError("http.url must not contain a user name; set http.basic.user instead")
        is_static = settings["http.authorization.type"] == "static"
        if is_static and not settings["http.headers.authorization"]:
            raise ValueError("http.authorization.type=static needs http.headers.authorization")
        for each in settings["http.headers.additional"]:
            if not each.partition(":")[1]:
                raise ValueError(f"http.headers.additional must look like name:value, not {each!r}")

    def make_task(self, settings: Settings) -> SinkTask:
        return HttpSinkTask(settings)


class HttpSinkTask(SinkTask):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._json = JsonConverter({"schemas.enable": False, "decimal.format": "NUMERIC"})
        self._connections: dict[tuple[str, str], http.client.HTTPConnection] = {}
        self._headers = _headers(settings)
        self._stopping = threading.Event()

    def start(self, directory: Path) -> None:
        return

    def stop(self) -> None:
        self._stopping.set()
        for each in self._connections.values():
            each.close()
        self._connections = {}

    def begin(self, batch: int) -> None:
        return

    def put(self, records: Sequence[ConnectRecord]) -> None:
        for group in self._groups(records):
            self._deliver(group)

    def end(self) -> None:
        return

    def _groups(self, records: Sequence[ConnectRecord]) -> Iterator[Sequence[ConnectRecord]]:
        """Yield the records of each request, all of one topic if the URL contains the topic."""
        limit = self._settings["batch.max.size"] if self._settings["batching.enabled"] else 1
        by_topic = "${topic}" in self._settings["http.url"]
        group: list[ConnectRecord] = []
        for record in records:
            if len(group) >= limit or (by_topic and group and group[0].topic != record.topic):
                yield group
                group = []
            group.append(record)
        if group:
            yield group

    def _deliver(self, records: Sequence[ConnectRecord]) -> None:
        bodies, kept = [], []
        for record in records:
            try:
                bodies.append(self._body(record))
                kept.append(record)
            except DataError as error:
                self.report(record, error)
        if not kept:
            return
        if self._settings["batching.enabled"]:
            prefix, separator, suffix = (
                self._settings[f"batch.{each}"].replace("\\n", "\n").encode()
                for each in ("prefix", "separator", "suffix")
            )
            body = prefix + separator.join(bodies) + suffix
        else:
            body = bodies[0]
        refusal = self._send(kept, body)
        if refusal is None:
            return
        if len(kept) == 1:
            self.report(kept[0], DataError(refusal))
            return
        half = len(kept) // 2
        self._deliver(kept[:half])
        self._deliver(kept[half:])

    def _body(self, record: ConnectRecord) -> bytes:
        value = record.value
        if isinstance(value, str | bytes | bytearray | memoryview):
            return as_text(record.value_schema, value).encode()
        written = self._json.from_connect(record.topic, record.value_schema, value)
        return b"null" if written is None else written

    # ----------------------------------------------------------------------------------- HTTP

    def _send(self, records: Sequence[ConnectRecord], body: bytes) -> str | None:
        """Send a request; return None, or the reason if the server rejects the records.

        Raises:
            RetriableError: The server is unavailable.
            UserError: The server rejects the request for another reason than its records.
        """
        url = self._settings["http.url"].replace(
            "${topic}", urllib.parse.quote(records[0].topic, safe="")
        )
        headers = {**self._headers, "Idempotency-Key": _identity(records)}
        pause_s = self._settings["retry.backoff.ms"] / 1000
        reason = ""
        for attempt in range(self._settings["max.retries"] + 1):
            if attempt:
                logger.warning("%s: retrying the request: %s", _plain(url), reason)
                if self._stopping.wait(min(pause_s, MAX_PAUSE_S)):
                    break
                pause_s *= 2
            try:
                status, data, later_s = self._post(url, body, headers)
            except (OSError, http.client.HTTPException) as error:
                reason = str(error) or type(error).__name__
                continue
            if 200 <= status < 300:
                return None
            reason = f"{status} {data}".strip()
            if status in REFUSED:
                return f"{_plain(url)} responded with {reason}"
            if status not in AGAIN and status < 500:
                raise UserError(f"{_plain(url)} responded with {reason}")
            pause_s = max(pause_s, later_s)
        raise RetriableError(f"{_plain(url)} did not accept the records: {reason}")

    def _post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, float]:
        """Return the status, the beginning of the response, and the seconds of Retry-After."""
        parts = urllib.parse.urlsplit(url)
        connection = self._connection(parts)
        target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        clock = Deadline(self._settings["http.timeout"])
        clock.watch(connection)
        try:
            connection.request(self._settings["http.method"], target, body, headers)
            response = connection.getresponse()
            data = response.read(MAX_RESPONSE_BYTES)
            if not response.isclosed():
                connection.close()
        except BaseException as error:
            connection.close()
            if clock.is_over and isinstance(error, OSError | http.client.HTTPException):
                raise TimeoutError(timeout_message(self._settings["http.timeout"])) from None
            raise
        finally:
            clock.stop()
        if clock.is_over:
            connection.close()
            raise TimeoutError(timeout_message(self._settings["http.timeout"]))
        later = response.headers.get("Retry-After", "")
        message = data[:200].decode("utf-8", "replace").strip() or response.reason
        return response.status, message, float(later) if later.isdecimal() else 0.0

    def _connection(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        place = (parts.scheme, parts.netloc)
        if place not in self._connections:
            host, port = parts.hostname or "", parts.port
            timeout = self._settings["http.timeout"]
            if parts.scheme == "https":
                context = ssl.create_default_context()
                if self._settings["http.ssl.trust.all.certs"]:
                    context.check_hostname = False
                    context.verify_mode = ssl.CERT_NONE
                made: http.client.HTTPConnection = http.client.HTTPSConnection(
                    host, port, timeout=timeout, context=context
                )
            else:
                made = http.client.HTTPConnection(host, port, timeout=timeout)
            self._connections[place] = made
        return self._connections[place]


def _headers(settings: Settings) -> dict[str, str]:
    found = {"Content-Type": settings["http.headers.content.type"]}
    if settings["http.authorization.type"] == "static":
        found["Authorization"] = settings["http.headers.authorization"]
    elif settings["http.authorization.type"] == "basic":
        who = f"{settings['http.basic.user']}:{settings['http.basic.password']}"
        found["Authorization"] = f"Basic {base64.b64encode(who.encode()).decode()}"
    for each in settings["http.headers.additional"]:
        name, _, value = each.partition(":")
        found[name.strip()] = value.strip()
    return found


def _identity(records: Sequence[ConnectRecord]) -> str:
    data = "".join(f"{each.topic}-{each.partition}@{each.offset}\n" for each in records)
    return hashlib.sha256(data.encode()).hexdigest()[:32]


def _plain(url: str) -> str:
    """Return a URL without credentials and query, for the log."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()

"""Client of Confluent's schema registry, and the wire format that refers to its schemas.

    byte 0   0
    1 - 4    schema ID, big endian
    5 …      data

A schema is registered under a subject, by default TOPIC-key or TOPIC-value. IDs and their schemas
never change, so the client requests each of them once. If the registry is unavailable, fails, or
returns an unexpected response, the client retries a few times and then raises RetriableError:
the record is not at fault, so `errors.tolerance` must not drop it. If the registry rejects a
request, the client raises a DataError with the registry's message. A request takes at most
`request.timeout.ms` for each attempt and address, plus the pauses between attempts.
"""

from __future__ import annotations

import base64
import json
import struct
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import AtLeast, NonEmpty, OneOf
from ottla.connect.api import RetriableError
from ottla.connect.data import DataError
from ottla.connect.definition import Definition, Settings, key
from ottla.net.http_request import HttpResponse, NoResponse, send_request

MAGIC = 0
MAX_MESSAGE_LENGTH = 200
"""Maximum length of a registry's message in our errors."""
MAX_ID = 2**31 - 1
T = TypeVar("T")
MAX_KNOWN = 10_000
"""Maximum number of cached IDs and schemas; the cache is cleared when it is full."""
STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_JAVA_STRATEGIES = "io.confluent.kafka.serializers.subject."
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_STRING, _BOOLEAN, _INT = ConfigType.STRING, ConfigType.BOOLEAN, ConfigType.INT
_STRATEGY = OneOf((*STRATEGIES, *(_JAVA_STRATEGIES + each for each in STRATEGIES)))

REGISTRY = Definition(
    [
        key("schema.registry.url", ConfigType.LIST, None,
            "URLs of the schema registry's servers, tried in order.", NonEmpty()),
        key("basic.auth.credentials.source", _STRING, "URL",
            "Origin of the credentials: URL for user:password@ in the URL, USER_INFO for "
            "basic.auth.user.info.", OneOf(("URL", "USER_INFO"))),
        key("basic.auth.user.info", _STRING, "",
            "User name and password, as user:password, with USER_INFO."),
        key("bearer.auth.token", _STRING, "",
            "Bearer token to authenticate with, instead of a password."),
        key("auto.register.schemas", _BOOLEAN, True, "Whether to register new schemas."),
        key("use.latest.version", _BOOLEAN, False,
            "Whether to write with the subject's newest schema. Requires "
            "auto.register.schemas=false."),
        key("normalize.schemas", _BOOLEAN, False, "Whether the registry normalizes schemas."),
        key("key.subject.name.strategy", _STRING, "TopicNameStrategy",
            "Strategy that names the subjects of keys.", _STRATEGY),
        key("value.subject.name.strategy", _STRING, "TopicNameStrategy",
            "Strategy that names the subjects of values.", _STRATEGY),
        key("schemas.cache.size", _INT, 1000, "Maximum number of cached schemas.", AtLeast(0)),
        key("request.timeout.ms", _INT, 10_000,
            "Maximum time to wait for a response, in milliseconds.", AtLeast(1)),
        key("max.retries", _INT, 3, "Maximum number of retries if no server responds.", AtLeast(0)),
        key("retries.wait.ms", _INT, 500, "Time before each retry, in milliseconds.", AtLeast(0)),
    ],
    required=["schema.registry.url"],
)  # fmt: skip


class Registered(NamedTuple):
    id: int
    text: str


@dataclass(frozen=True)
class Address:
    url: str
    authorization: str | None


def subject_of(strategy: str, topic: str, record_name: str | None, *, is_key: bool) -> str:
    strategy = strategy.removeprefix(_JAVA_STRATEGIES)
    if strategy == "TopicNameStrategy":
        return f"{topic}-{'key' if is_key else 'value'}"
    if record_name is None:
        raise DataError(f"{strategy} requires a schema with a name")
    return record_name if strategy == "RecordNameStrategy" else f"{topic}-{record_name}"


def framed(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">bI", MAGIC, schema_id) + data


def unframed(data: bytes) -> tuple[int, bytes]:
    if len(data) < 5 or data[0] != MAGIC:
        raise DataError(
            "bytes do not begin with a schema ID, so they were not written with a schema registry"
        )
    return struct.unpack_from(">I", data, 1)[0], data[5:]


class SchemaRegistry:
    def __init__(self, settings: Settings) -> None:
        self._addresses = [_address(each, settings) for each in settings["schema.registry.url"]]
        self._timeout_s = settings["request.timeout.ms"] / 1000
        self._retries = settings["max.retries"]
        self._wait_s = settings["retries.wait.ms"] / 1000
        self._normalize = "?normalize=true" if settings["normalize.schemas"] else ""
        self._ids: dict[tuple[str, str], int] = {}
        self._texts: dict[int, tuple[str, str]] = {}

    def register(self, subject: str, text: str, kind: str) -> int:
        """Return the schema's ID, after registering the schema if it is new."""
        return self._id("register", subject, text, kind)

    def lookup(self, subject: str, text: str, kind: str) -> int:
        """Return the ID under which the subject has the schema."""
        return self._id("lookup", subject, text, kind)

    def latest(self, subject: str) -> Registered:
        return self._request("GET", f"/subjects/{_quoted(subject)}/versions/latest", _registered)

    def by_id(self, schema_id: int) -> tuple[str, str]:
        """Return the type (AVRO or JSON) and the text of a schema."""
        if schema_id not in self._texts:
            found = self._request("GET", f"/schemas/ids/{schema_id}", _schema)
            if found.has_references:
                raise DataError(
                    f"schema {schema_id} refers to other subjects, which is not supported"
                )
            if len(self._texts) >= MAX_KNOWN:
                self._texts.clear()
            self._texts[schema_id] = (found.kind, found.text)
        return self._texts[schema_id]

    def _id(self, how: str, subject: str, text: str, kind: str) -> int:
        known = self._ids.get((subject, text))
        if known is None:
            request: dict[str, Any] = {"schema": text}
            if kind != "AVRO":
                request["schemaType"] = kind
            versions = "/versions" if how == "register" else ""
            path = f"/subjects/{_quoted(subject)}{versions}{self._normalize}"
            known = self._request("POST", path, _id_in, request)
            if len(self._ids) >= MAX_KNOWN:
                self._ids.clear()
            self._ids[subject, text] = known
        return known

    # ------------------------------------------------------------------------------------ HTTP

    def _request(self, method: str, path: str, read: Callable[[Any], T], body: Any = None) -> T:
        """Send a request to the first registry that responds and parse the response with `read`.

        Raises:
            DataError: The registry rejected the request.
            RetriableError: No registry gave a usable response, or it denied access.
        """
        reason = ""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(self._wait_s)
            for address in self._addresses:
                try:
                    document = self._request_one(address, method, path, body)
                    return read(document)
                except (NoResponse, _InvalidResponse) as error:
                    reason = f"{address.url}: {_single_line(str(error))}"
        raise RetriableError(f"no schema registry responded; {reason}")

    def _request_one(self, address: Address, method: str, path: str, body: Any) -> Any:
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json", "Content-Type": _CONTENT_TYPE}
        if address.authorization:
            headers["Authorization"] = address.authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address.url + path, data, headers, method=method)
        response = send_request(request, self._timeout_s)
        if response.status >= 300:
            raise _error_from(response, address, path)
        try:
            return json.loads(response.body)
        except (ValueError, RecursionError):
            raise NoResponse("the response is not valid JSON") from None


def _error_from(response: HttpResponse, address: Address, path: str) -> Exception:
    message = f"{response.status} {_message(response.body)}".strip()
    if response.status in (401, 403):
        # The credentials are wrong, not the record: every other record would fail as well.
        return RetriableError(f"the schema registry {address.url} responded with {message}")
    if response.status < 400 or response.status == 429 or response.status >= 500:
        return NoResponse(message)
    return DataError(f"the schema registry responded to {path} with {message}")


# ----------------------------------------------------------------------------------- responses


class _InvalidResponse(Exception):
    """A JSON response that is not the expected one."""


class _Schema(NamedTuple):
    kind: str
    text: str
    has_references: bool


def _id_in(document: Any) -> int:
    found = document.get("id") if isinstance(document, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= MAX_ID:
        raise _InvalidResponse("the response contains no schema ID")
    return found


def _schema(document: Any) -> _Schema:
    text = document.get("schema") if isinstance(document, dict) else None
    kind = (document.get("schemaType") or "AVRO") if isinstance(document, dict) else None
    if not isinstance(text, str) or not isinstance(kind, str):
        raise _InvalidResponse("the response contains no schema")
    return _Schema(kind, text, bool(document.get("references")))


def _registered(document: Any) -> Registered:
    return Registered(_id_in(document), _schema(document).text)


def _message(document: bytes) -> str:
    try:
        message = str(json.loads(document)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        message = document[:MAX_MESSAGE_LENGTH].decode("utf-8", "replace")
    return _single_line(message)


def _single_line(message: str) -> str:
    """Collapse a message to one line of limited length, as statuses require."""
    return " ".join(message.split())[:MAX_MESSAGE_LENGTH]


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _address(url: str, settings: Settings) -> Address:
    parts = urllib.parse.urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"schema.registry.url must look like http://host:port, not {url!r}")
    user = ""
    if settings["basic.auth.credentials.source"] == "USER_INFO":
        user = settings["basic.auth.user.info"]
    elif parts.username:
        user = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}")
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    if settings["bearer.auth.token"]:
        return Address(plain, f"Bearer {settings['bearer.auth.token']}")
    return Address(plain, f"Basic {base64.b64encode(user.encode()).decode()}" if user else None)

"""HTTP interface of a running application, without sockets: a path and a query to a response.

Only GET is supported.

| path | |
|---|---|
| / | the application, its queries and stores |
| /status | every query, with the metrics of its operators |
| /metrics | the same, for Prometheus |
| /topology, /topology.svg, /explain | as text, as a picture, with the engine of each operator |
| /stores/NAME | entries; `from`, `to` (keys), `limit` (100), `reverse=true` |
| /stores/NAME/KEY | entry of a key; `at` selects the window by its start, in ms |
| /stores/NAME/KEY/windows | all windows of a key; `since`, `until` in ms |

Keys are text: the digits of a number (`st.Long`), the JSON of a JSON key. Keys and values that are
bytes but not UTF-8 are returned in base64. Errors are {"error": …}. See `http_server` for the
sockets.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import KafkaError, UserError
from ottla.streams.application import Application
from ottla.streams.plan.explain import explain, topology
from ottla.streams.plan.picture import picture
from ottla.streams.progress import QueryStatus, prometheus
from ottla.streams.serdes import Serde
from ottla.streams.store import Stores, store_names

if TYPE_CHECKING:
    from ottla.streams.store import Entry, Store

logger = logging.getLogger(__name__)

DEFAULT_ENTRIES = 100
MAX_ENTRIES = 10_000
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
SVG = "image/svg+xml"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class NotFound(UserError):
    """Resource that does not exist; answered with 404."""


class Response(NamedTuple):
    status: int
    content_type: str
    body: str


class Resources:
    """Resources of an application, for GET requests."""

    def __init__(
        self, app: Application, stores: Stores, statuses: Callable[[], list[QueryStatus]]
    ) -> None:
        self._app = app
        self._stores = stores
        self._statuses = statuses

    def get(self, path: str, query: Mapping[str, list[str]]) -> Response:
        """Return the response to a GET request; never raises.

        A slash inside a path segment is a NUL."""
        try:
            segments = [each.replace("\0", "/") for each in path.split("/") if each]
            return self._route(segments, _Query(query))
        except NotFound as error:
            return _json(404, {"error": str(error)})
        except UserError as error:
            return _json(400, {"error": str(error)})
        except KafkaError as error:
            return _json(503, {"error": str(error)})
        except Exception as error:
            logger.exception("GET %s failed", path)
            return _json(500, {"error": f"{type(error).__name__}: {error}"})

    def _route(self, segments: list[str], query: _Query) -> Response:
        match segments:
            case []:
                return _json(200, self._summary())
            case ["status"]:
                return _json(200, [asdict(each) for each in self._statuses()])
            case ["metrics"]:
                return Response(200, PROMETHEUS, prometheus(self._app.name, self._statuses()))
            case ["topology"]:
                return Response(200, TEXT, topology(self._app.sinks) + "\n")
            case ["topology.svg"]:
                return Response(200, SVG, picture(self._app.sinks))
            case ["explain"]:
                return Response(200, TEXT, explain(self._app.sinks) + "\n")
            case ["stores"]:
                return _json(200, store_names(self._app))
            case ["stores", name]:
                return _json(200, list(map(_entry, self._range(self._store(name), query))))
            case ["stores", name, key]:
                return self._single_entry(self._store(name), key, query)
            case ["stores", name, key, "windows"]:
                store = self._store(name)
                found = store.windows(
                    _key(store.key_serde, key), query.number("since"), query.number("until")
                )
                return _json(200, [_entry(each) for each in found])
        raise NotFound(f"'/{'/'.join(segments)}' does not exist")

    def _summary(self) -> dict[str, Any]:
        queries = [
            {"topic": each.topic, "is_active": each.is_active, "batch": each.batch, "lag": each.lag}
            for each in self._statuses()
        ]
        return {"app": self._app.name, "queries": queries, "stores": store_names(self._app)}

    def _store(self, name: str) -> Store:
        if name not in store_names(self._app):
            raise NotFound(f"store {name!r} does not exist")
        return self._stores.open(self._app, name)

    def _range(self, store: Store, query: _Query) -> Iterator[Entry]:
        first, last = (
            None if text is None else _key(store.key_serde, text)
            for text in (query.text("from"), query.text("to"))
        )
        limit = query.number("limit")
        limit = DEFAULT_ENTRIES if limit is None else limit
        if not 0 < limit <= MAX_ENTRIES:
            raise UserError(f"limit must be between 1 and {MAX_ENTRIES}")
        return islice(store.range(first, last, reverse=query.text("reverse") == "true"), limit)

    def _single_entry(self, store: Store, key: str, query: _Query) -> Response:
        found = store.entry(_key(store.key_serde, key), query.number("at"))
        if found is None:
            raise NotFound(f"store {store.name!r} has no key {key!r}")
        return _json(200, _entry(found))


class _Query:
    def __init__(self, parameters: Mapping[str, list[str]]) -> None:
        self._parameters = parameters

    def text(self, name: str) -> str | None:
        found = self._parameters.get(name)
        return found[-1] if found else None

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise UserError(f"{name} must be a number, not {text!r}") from None


def _key(serde: Serde, text: str) -> Any:
    try:
        match serde.name:
            case "long":
                return int(text)
            case "json":
                return json.loads(text)
            case "bytes":
                return text.encode()
    except ValueError:
        raise UserError(f"{text!r} is not a valid key; keys are {serde} {serde.shape}") from None
    return text


def _entry(entry: Entry) -> dict[str, Any]:
    fields = {"key": entry.key, "value": entry.value, "timestamp": entry.timestamp_ms}
    if entry.window_ms is not None:
        fields["window"] = {"start": entry.window_ms[0], "end": entry.window_ms[1]}
    return fields


def _json(status: int, value: Any) -> Response:
    return Response(status, JSON, json.dumps(value, default=_plain, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    return str(value)

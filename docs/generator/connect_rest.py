"""The page of Connect's REST API: every route of the worker, with its handler's docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from generator.docstrings import markdown, summary

HEAD = """\
# Connect REST API

Workers answer Kafka Connect's REST API, on `http://localhost:8083` unless the worker's property
`listeners` says otherwise. Bodies and answers are JSON. In a group of workers any of them answers:
one that is not the leader forwards changes to the leader. There is no authentication, so listen on
`localhost` or protect the port. [Connect](../connect.md) describes workers and their properties.

```console
$ curl localhost:8083/connectors
["local-file-source"]
$ curl localhost:8083/connectors/local-file-source/status
{"name": "local-file-source",
 "connector": {"state": "RUNNING", "worker_id": "localhost:8083"},
 "tasks": [{"id": 0, "state": "RUNNING", "worker_id": "localhost:8083"}],
 "type": "source"}
```

An error is `{"error_code": 404, "message": "…"}` with the same status as the response:

| status | meaning |
|---|---|
| 400 | The body is not JSON, or a property is missing or invalid. The message names all of them. |
| 404 | The connector, the task, the plugin, the logger or the path does not exist. |
| 405 | The path exists, but not with this method. |
| 409 | The connector exists already or is not stopped, or the group is rebalancing: retry then. |
| 413 | The body is larger than 8 MiB. |
| 500 | The worker could not carry out the request; the message says why. |
| 503 | The worker is still starting. |

"""
GROUPS = {"worker": "Worker", "connectors": "Connectors", "plugins": "Plugins"}
_PLACES = {"connectors": "NAME", "tasks": "TASK", "connector-plugins": "CLASS", "loggers": "NAME"}


class Route(NamedTuple):
    method: str
    path: str
    handler: Any
    group: str

    @property
    def title(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "root"


def routes() -> Iterator[Route]:
    """Yield the routes of the worker, in the order of its table."""
    from ottla.connect.rest.router import ROUTES

    for method, pattern, handler in ROUTES:
        module = handler.__module__.rpartition(".")[2]
        yield Route(method, _shown(pattern.pattern), handler, GROUPS[module])


def _shown(pattern: str) -> str:
    """Return the path of a route with a word for each of its parameters."""
    parts = pattern.split("/([^/]+)")
    shown = parts[0]
    for each in parts[1:]:
        shown += f"/{_PLACES[shown.rpartition('/')[2]]}{each}"
    return shown


def page() -> str:
    found = list(routes())
    lines = [HEAD, "## All requests\n", "| request | what it does |", "|---|---|"]
    lines += [
        f"| [`{each.title}`](#{each.anchor}) | {summary(each.handler.__doc__ or '')} |"
        for each in found
    ]
    for group in GROUPS.values():
        lines.append(f"\n## {group}\n")
        for each in found:
            if each.group == group:
                lines += [f"### `{each.title}` {{: #{each.anchor} }}\n"]
                lines += markdown(inspect.getdoc(each.handler) or "")
    return "\n".join(lines) + "\n"

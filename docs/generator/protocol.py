"""The page of Kafka's APIs and versions that the broker serves, from its routing table.

The description of an API is the module docstring of its handler."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

HEAD = """\
# Protocol

The APIs of Kafka's protocol that brokers serve, from their routing table. Every version of a listed
API that Kafka 4's schema defines is served. ApiVersions reports the same list to clients.
"""
_LIST_BEGINS = re.compile(r"^(?![-\s])(.+)\n(?=- )", re.MULTILINE)


def page() -> str:
    keys = served()
    lines = [HEAD, "## Served\n", "| key | API | versions |", "|--:|---|---|"]
    lines += [
        f"| {key} | [{api_name(key)}](#{api_name(key).lower()}) | {_versions(key)} |"
        for key in keys
    ]
    lines += ["", *_missing(), "", "## What each does\n"]
    for key in keys:
        lines += [f"### {api_name(key)}\n", _about(key), ""]
    return "\n".join(lines) + "\n"


def served() -> list[int]:
    from ottla.broker.router import HANDLERS
    from ottla.wire.api import Api

    return sorted({*HANDLERS, Api.API_VERSIONS})


def api_name(key: int) -> str:
    from kio.index import api_key_map

    return "".join(part.capitalize() for part in api_key_map[key].split("_"))


def _versions(key: int) -> str:
    from ottla.broker.router import ADVERTISED_FROM_ZERO
    from ottla.wire import schema

    versions = schema.versions(key)
    text = f"{versions[0]} – {versions[-1]}" if len(versions) > 1 else str(versions[0])
    return f"{text} (advertised from 0)" if key in ADVERTISED_FROM_ZERO else text


def _missing() -> Iterator[str]:
    from kio.index import api_key_map

    yield "## Not served\n"
    yield "| key | API |"
    yield "|--:|---|"
    for key in sorted(set(api_key_map) - set(served())):
        yield f"| {key} | {api_name(key)} |"


def _about(key: int) -> str:
    from kio.index import api_key_map

    module = importlib.import_module(f"ottla.broker.handlers.{api_key_map[key]}")
    words = _LIST_BEGINS.sub(r"\1\n\n", (module.__doc__ or "").strip())
    return words.replace("<", "&lt;")

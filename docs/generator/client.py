"""The client's classes: what each has, with its signature and its own words."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

CHAPTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Clients": ("ottla", ("Producer", "Consumer", "Admin")),
    "Clients for asyncio": ("ottla", ("AsyncProducer", "AsyncConsumer", "AsyncAdmin")),
    "Tables": ("ottla", ("read_table", "read_batches")),
    "What they take and give": (
        "ottla",
        (
            "TopicPartition", "Record", "OffsetAndMetadata", "OffsetAndTimestamp", "GroupMetadata",
            "SubscriptionPattern", "RebalanceListener", "NewTopic", "RecordFuture",
            "RecordMetadata", "TableFuture", "TableMetadata", "PriorityPartitioner",
            "RoundRobinPartitioner",
        ),
    ),
    "Spark": ("ottla.spark", ("session", "register", "table")),
    "Streams": ("ottla.streams.app", ("App",)),
    "Streams: what applications are made of": (
        "ottla.streams.dsl", ("Stream", "Grouped", "Table"),
    ),
    "Streams: running": ("ottla.streams.run", ("Running",)),
    "Brokers for tests": ("ottla.testing.broker_thread", ("BrokerThread",)),
}  # fmt: skip
HEAD = """\
# Client API

Made from the code. `import ottla` loads nothing until a name is used; every class of a client is a
context manager. Properties that a client takes as keywords are in [Configuration](configs.md).
"""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def page() -> str:
    lines = [HEAD]
    for title, (module, names) in CHAPTERS.items():
        lines.append(f"\n## {title}\n")
        for name in names:
            lines += _described(name, getattr(importlib.import_module(module), name))
    lines += ["\n## Errors\n", "| | |", "|---|---|"]
    lines += _errors()
    return "\n".join(lines) + "\n"


def _described(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not inspect.isclass(thing):
        yield from _signature(name, thing)
        yield from _words(thing)
        return
    if not issubclass(thing, enum.Enum):
        yield from _signature(name, thing)
    yield from _words(thing)
    members = [(each, member) for each, member in _members(thing) if not each.startswith("_")]
    for each, member in members:
        if isinstance(member, property):
            yield f"**`{each}`** *(property)*\n"
            yield from _words(member)
        else:
            yield from _signature(f"{name}.{each}", member, without_self=True)
            yield from _words(member)


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """In the order of the code, those of its bases that are ours after its own."""
    seen = set()
    for base in thing.__mro__:
        if not base.__module__.startswith("ottla"):
            continue
        for name, member in vars(base).items():
            if name in seen:
                continue
            seen.add(name)
            if isinstance(member, staticmethod | classmethod):
                member = member.__func__
            if inspect.isfunction(member) or isinstance(member, property):
                yield name, member


def _signature(name: str, thing: Callable[..., Any], *, without_self: bool = False) -> list[str]:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return []
    parameters = list(signature.parameters.values())
    if without_self and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    shown = [_parameter(each) for each in parameters]
    if any(each.kind is each.KEYWORD_ONLY for each in parameters) and not any(
        each.kind is each.VAR_POSITIONAL for each in parameters
    ):
        first = next(i for i, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY)
        shown.insert(first, "*")
    returned = ""
    if signature.return_annotation not in (inspect.Signature.empty, None, "None"):
        returned = f" -> {signature.return_annotation}"
    prefix = "async " if inspect.iscoroutinefunction(thing) else ""
    line = f"{prefix}{name}({', '.join(shown)}){returned}"
    if len(line) > 96:
        inside = "".join(f"    {each},\n" for each in shown)
        line = f"{prefix}{name}(\n{inside}){returned}"
    return ["```text", line, "```", ""]


def _parameter(parameter: inspect.Parameter) -> str:
    """As it is written, without the quotes of annotations that are not evaluated."""
    text = str(parameter)
    if isinstance(parameter.annotation, str):
        text = text.replace(repr(parameter.annotation), parameter.annotation, 1)
    return _ADDRESS.sub("", text)


def _words(thing: Any) -> list[str]:
    words = inspect.getdoc(thing)
    if not words or (inspect.isclass(thing) and words.startswith(f"{thing.__name__}(")):
        return []
    return [words, ""]


def _errors() -> Iterator[str]:
    import ottla
    from ottla.base.errors import UserError

    for name in sorted(ottla.__all__):
        thing = getattr(ottla, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            words = " ".join((inspect.getdoc(thing) or "").split())
            base = thing.__bases__[0].__name__
            told = words or ("a sentence for a person" if thing is UserError else "")
            yield f"| `{name}` | {told} *Is a* `{base}`. |"

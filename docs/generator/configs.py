"""The pages of broker, topic, group and client properties, from the tables that the code uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

HEAD = """\
# Configuration

Names, defaults and meanings are Apache Kafka's. Brokers read properties from a file
(`ottla broker --config server.properties`) or from the command line (`--override name=value`).
Clients take them as keywords with underscores for dots (`linger_ms=20`), or from a file
(`profile="client.properties"`).

The word below a broker's property says how it is changed: *read-only* properties need a restart;
`kafka-configs` sets *per-broker* ones for one running broker, *cluster-wide* ones for all.
"""
HEADER = ["| property | default | meaning |", "|---|---|---|"]
BREAKS = (".", ",", "_")
"""Characters after which a long name or value may continue on the next line."""


def page() -> str:
    from ottla.base.config.broker_table import BROKER
    from ottla.base.config.group import GROUP
    from ottla.base.config.topic_table import TOPIC
    from ottla.base.config.unused_properties import (
        NO_EFFECT,
        NOT_NEEDED,
        NOT_RELEASED,
        REFUSED,
        SHOWN,
    )
    from ottla.client.admin.config import AdminConfig
    from ottla.client.consumer.config import ConsumerConfig
    from ottla.client.producer.config import ProducerConfig

    lines = [HEAD]
    brokers = (_broker_row(key) for key in sorted(BROKER, key=_name) if not key.internal)
    topics = (_topic_row(key) for key in sorted(TOPIC, key=_name) if not key.internal)
    groups = (_row(key, "groups") for key in sorted(GROUP, key=_name))
    for title, rows in (("Brokers", brokers), ("Topics", topics), ("Groups", groups)):
        lines += [f"\n## {title}\n", *_table(rows)]
    for title, config in (
        ("Producers", ProducerConfig),
        ("Consumers", ConsumerConfig),
        ("Admin", AdminConfig),
    ):
        lines += [f"\n## {title}\n", *_table(_client_rows(config, title.lower()))]
    lines.append("\n## Not honoured by brokers\n")
    lines.append("A `server.properties` may contain them; the broker logs each when it starts.\n")
    rows = (
        f"| {_code(name)} | {what} | {_text(why)} |"
        for table, what in (
            (REFUSED, "refused"),
            (NOT_NEEDED, "not needed"),
            (SHOWN | NOT_RELEASED | NO_EFFECT, "no effect"),
        )
        for name, why in sorted(table.items())
    )
    lines += _table(rows, ["| property | effect | reason |", "|---|---|---|"], "effects")
    return "\n".join(lines) + "\n"


def _table(rows: Iterable[str], header: Sequence[str] = HEADER, kind: str = "") -> Iterator[str]:
    """Yield a table that is laid out for its width: see `.properties` in assets/site.css."""
    yield f'<div class="properties {kind}" markdown>\n'
    yield from header
    yield from rows
    yield "\n</div>"


def _name(key: Any) -> str:
    return str(key.name)


def _broker_row(key: Any) -> str:
    return _row(key, "brokers", key.mode.value)


def _topic_row(key: Any) -> str:
    about = _about(key.doc, key.validator)
    if key.synonyms:
        about += f" Broker's default: {', '.join(_code(each.name) for each in key.synonyms)}."
    return _cells("topics", key.name, key.type, key.default, about)


def _row(key: Any, group: str, note: str = "") -> str:
    return _cells(group, key.name, key.type, key.default, _about(key.doc, key.validator), note)


def _client_rows(config: Any, group: str) -> Iterator[str]:
    for field in sorted(dataclasses.fields(config), key=_name):
        if "type" not in field.metadata:  # an argument, not a property
            continue
        has_factory = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if has_factory else field.default
        about = _about(field.metadata["doc"], field.metadata["validator"])
        yield _cells(group, field.name.replace("_", "."), field.metadata["type"], default, about)


def _about(doc: str, validator: Any) -> str:
    allowed = getattr(validator, "allowed", "")
    return _text(f"{doc} *{allowed[0].upper()}{allowed[1:]}.*" if allowed else doc)


def _default(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or '""'
    return str(value) if value != "" else '""'


def _cells(group: str, name: str, kind: Any, default: Any, about: str, note: str = "") -> str:
    notes = ", ".join(filter(None, (kind.name.lower(), note)))
    named = f'<span id="{group}.{name}">{_code(name)}</span><br><small>{notes}</small>'
    return f"| {named} | {_breakable(_text(_default(default)))} | {about} |"


def _code(name: str) -> str:
    return f"<code>{_breakable(name)}</code>"


def _breakable(text: str) -> str:
    """Allow a line break between the parts of a name or a list, and nowhere else."""
    for each in BREAKS:
        text = text.replace(each, f"{each}<wbr>")
    return text


def _text(cell: object) -> str:
    return " ".join(str(cell).split()).replace("|", "\\|").replace("<", "&lt;")

"""Properties: of brokers, topics, groups and clients, from the tables that the code itself uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

HEAD = """\
# Configuration

Made from the code. Names, defaults and meanings are Apache Kafka's; where nothing is said of a
value, what Kafka allows is allowed. Clients take properties as keywords with underscores
(`linger_ms=20`), or from a file (`profile="client.properties"`).
"""


def page() -> str:
    from ottla.base.config.broker_table import BROKER
    from ottla.base.config.group import GROUP
    from ottla.base.config.not_honoured import NO_EFFECT, NOT_NEEDED, REFUSED
    from ottla.base.config.topic_table import TOPIC
    from ottla.client.admin.config import AdminConfig
    from ottla.client.consumer.config import ConsumerConfig
    from ottla.client.producer.config import ProducerConfig

    lines = [HEAD]
    lines += [
        "\n## Brokers\n",
        "| property | type | default | changes | |",
        "|---|---|---|---|---|",
    ]
    lines += (_broker_row(key) for key in sorted(BROKER, key=_name) if not key.internal)
    lines += ["\n## Topics\n", "| property | type | default | from the broker's | |"]
    lines += ["|---|---|---|---|---|"]
    lines += (_topic_row(key) for key in sorted(TOPIC, key=_name) if not key.internal)
    lines += ["\n## Groups\n", "| property | type | default | |", "|---|---|---|---|"]
    lines += (_row(key) for key in sorted(GROUP, key=_name))
    for title, config in (
        ("Producers", ProducerConfig),
        ("Consumers", ConsumerConfig),
        ("Admin", AdminConfig),
    ):
        lines += [f"\n## {title}\n", "| property | type | default | |", "|---|---|---|---|"]
        lines += _client_rows(config)
    lines.append("\n## Not honoured by brokers\n")
    lines.append("A `server.properties` may have them; the broker says so when it starts.\n")
    lines += ["| property | what becomes of it |", "|---|---|"]
    for table, what in ((REFUSED, "refused"), (NOT_NEEDED, "not needed"), (NO_EFFECT, "no effect")):
        for name, why in sorted(table.items()):
            lines.append(f"| `{name}` | {what}: {_text(why)} |")
    return "\n".join(lines) + "\n"


def _name(key: Any) -> str:
    return str(key.name)


def _broker_row(key: Any) -> str:
    words = (f"`{key.name}`", key.type.name.lower(), _default(key.default), key.mode.value)
    return _cells(*words, _about(key.doc, key.validator))


def _topic_row(key: Any) -> str:
    synonyms = ", ".join(f"`{each.name}`" for each in key.synonyms)
    words = (f"`{key.name}`", key.type.name.lower(), _default(key.default), synonyms)
    return _cells(*words, _about(key.doc, key.validator))


def _row(key: Any) -> str:
    words = (f"`{key.name}`", key.type.name.lower(), _default(key.default))
    return _cells(*words, _about(key.doc, key.validator))


def _client_rows(config: Any) -> Iterator[str]:
    for field in sorted(dataclasses.fields(config), key=_name):
        if "doc" not in field.metadata:
            continue
        has_factory = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if has_factory else field.default
        name = field.name.replace("_", ".")
        about = _about(field.metadata["doc"], field.metadata["validator"])
        yield _cells(f"`{name}`", field.metadata["type"].name.lower(), _default(default), about)


def _about(doc: str, validator: Any) -> str:
    allowed = getattr(validator, "allowed", "")
    return f"{doc} *{allowed[0].upper()}{allowed[1:]}.*" if allowed else doc


def _default(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or '""'
    return str(value) if value != "" else '""'


def _cells(*cells: str) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(cell: object) -> str:
    return " ".join(str(cell).split()).replace("|", "\\|").replace("<", "&lt;")

"""The properties of a worker, by Kafka's names; those of its session on Spark are ours.

`spark.*` goes to Spark's session, `producer.*`, `consumer.*` and `admin.*` to clients, and whatever
every client knows (security above all) to all. A value that is wrong is an error, all of them at
once; a name that nobody knows is a warning that names the nearest, as files are shared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import AtLeast, NonEmpty
from ottla.base.errors import UserError
from ottla.client.config import CommonConfig, table_of
from ottla.connect.definition import Definition, key, with_prefix

STRING, INT, LIST, BOOLEAN = ConfigType.STRING, ConfigType.INT, ConfigType.LIST, ConfigType.BOOLEAN

WORKER = Definition(
    [
        key("bootstrap.servers", LIST, ["localhost:9092"], "Brokers to ask first.", NonEmpty()),
        key("key.converter", STRING, None, "How keys become bytes.", NonEmpty()),
        key("value.converter", STRING, None, "How values become bytes.", NonEmpty()),
        key("header.converter", STRING, "SimpleHeaderConverter", "How headers become bytes."),
        key("offset.storage.file.filename", STRING, None,
            "Where offsets are kept; what Spark needs to resume is beside it.", NonEmpty()),
        key("offset.flush.interval.ms", INT, 60_000, "How often that file is written.", AtLeast(1)),
        key("listeners", LIST, ["http://:8083"], "Where REST listens."),
        key("task.restart.backoff.ms", INT, 1_000,
            "Pause before a failed connector is started again; doubles each time.", AtLeast(0)),
        key("task.restart.backoff.max.ms", INT, 60_000, "The longest such pause.", AtLeast(0)),
        key("task.restart.max.attempts", INT, -1,
            "So many starts without success, then it stays failed; 0: never; -1: no end.",
            AtLeast(-1)),
    ],
    required=["key.converter", "value.converter", "offset.storage.file.filename"],
)  # fmt: skip

PREFIXES = ("key.converter.", "value.converter.", "header.converter.", "producer.", "consumer.",
            "admin.", "spark.")  # fmt: skip
NOT_HONOURED = {
    "plugin.path": "connectors are Python packages, found by their entry points",
    "plugin.discovery": "connectors are Python packages, found by their entry points",
    "offset.flush.timeout.ms": "offsets are part of each batch",
    "exactly.once.source.support": "sources are always exactly-once",
    "connector.client.config.override.policy": "all overrides are allowed",
}
_LISTENER = re.compile(r"http://(?P<host>\[[^\]]*\]|[^:/]*):(?P<port>\d{1,5})/?", re.IGNORECASE)


@dataclass(frozen=True)
class WorkerConfig:
    settings: Mapping[str, Any]
    given: Mapping[str, str]
    """As it was written."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WorkerConfig:
        """Raises UserError with all that is wrong."""
        problems = WORKER.problems(given)
        if problems:
            raise UserError("\n".join(problems.values()))
        made = cls(WORKER.settings(given), dict(given))
        made.listeners  # noqa: B018 - raises for those that cannot be
        return made

    def notices(self) -> list[str]:
        """Properties that have no effect, each in a sentence."""
        found = []
        common = table_of(CommonConfig)
        for name in self.given:
            if name in NOT_HONOURED:
                found.append(f"{name} has no effect here: {NOT_HONOURED[name]}.")
            elif name not in WORKER.table and name not in common and not name.startswith(PREFIXES):
                nearest = WORKER.table.nearest(name) or common.nearest(name)
                instead = f"; did you mean {nearest}?" if nearest else "."
                found.append(f"There is no worker property {name}{instead}")
        return found

    @property
    def listeners(self) -> list[tuple[str, int]]:
        """Hosts and ports; empty: no REST."""
        found = []
        for each in self.settings["listeners"]:
            match = _LISTENER.fullmatch(each.strip())
            if match is None or int(match["port"]) > 65535:
                raise UserError(f"{each!r} in listeners must look like http://host:port.")
            found.append((match["host"].strip("[]"), int(match["port"])))
        return found

    def client(self, kind: str) -> dict[str, str]:
        """Properties of the worker's clients; `kind`: producer, consumer or admin."""
        common = table_of(CommonConfig)
        shared = {name: value for name, value in self.given.items() if name in common}
        shared["bootstrap.servers"] = ",".join(self.settings["bootstrap.servers"])
        return shared | with_prefix(self.given, f"{kind}.")

    @property
    def spark(self) -> dict[str, str]:
        return {name: value for name, value in self.given.items() if name.startswith("spark.")}

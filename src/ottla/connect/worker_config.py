"""Properties of a worker, with Kafka's names; those of the Spark session are Ottla's own.

`spark.*` properties go to the Spark session; `producer.*`, `consumer.*` and `admin.*` to those
clients; properties common to all clients, such as security settings, to every client. Invalid
values raise one error that lists them all. Unknown names only cause a warning with the most
similar name, because property files are shared with other tools.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.validator import AtLeast, NonEmpty
from ottla.base.errors import UserError
from ottla.client.config import CommonConfig, table_of
from ottla.connect.definition import Definition, key, with_prefix
from ottla.connect.topic_creation import ENABLE

STRING, INT, LIST, LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LIST, ConfigType.LONG
SHORT = ConfigType.SHORT

COMMON = Definition(
    [
        key("bootstrap.servers", LIST, ["localhost:9092"], "Brokers to ask first.", NonEmpty()),
        key("key.converter", STRING, None, "How keys become bytes.", NonEmpty()),
        key("value.converter", STRING, None, "How values become bytes.", NonEmpty()),
        key("header.converter", STRING, "SimpleHeaderConverter", "How headers become bytes."),
        key("offset.flush.interval.ms", INT, 60_000, "How often that file is written.", AtLeast(1)),
        key("listeners", LIST, ["http://:8083"], "Where REST listens."),
        key("rest.advertised.host.name", STRING, "", "The host that other workers find REST at."),
        key("rest.advertised.port", INT, 0, "The port of that; 0: as listeners.", AtLeast(0)),
        key("task.shutdown.graceful.timeout.ms", LONG, 5_000,
            "How long a task may take to end.", AtLeast(0)),
        key("task.restart.backoff.ms", INT, 1_000,
            "Pause before a failed task is started again; doubles each time.", AtLeast(0)),
        key("task.restart.backoff.max.ms", INT, 60_000, "The longest such pause.", AtLeast(0)),
        key("task.restart.max.attempts", INT, -1,
            "So many starts without success, then it stays failed; 0: never; -1: no end.",
            AtLeast(-1)),
        key(ENABLE, ConfigType.BOOLEAN, True,
            "Whether tasks of sources make the topics that they need; else brokers may."),
    ],
    required=["key.converter", "value.converter"],
)  # fmt: skip
STANDALONE = COMMON + Definition(
    [
        key("offset.storage.file.filename", STRING, None,
            "Which connectors there were, and where they are.", NonEmpty()),
        key("offset.storage.topic", STRING, "connect-standalone-offsets",
            "Where offsets are kept, with the records.", NonEmpty()),
    ],
    required=["offset.storage.file.filename"],
)  # fmt: skip
DISTRIBUTED = COMMON + Definition(
    [
        key("group.id", STRING, None, "Workers of one group share connectors.", NonEmpty()),
        key("config.storage.topic", STRING, None, "Where configurations are kept.", NonEmpty()),
        key("config.storage.replication.factor", SHORT, -1, "Of that topic; -1: the brokers'."),
        key("offset.storage.topic", STRING, None, "Where offsets are kept.", NonEmpty()),
        key("offset.storage.replication.factor", SHORT, -1, "Of that topic; -1: the brokers'."),
        key("offset.storage.partitions", INT, 25, "Of that topic."),
        key("status.storage.topic", STRING, None, "Where states are kept.", NonEmpty()),
        key("status.storage.replication.factor", SHORT, -1, "Of that topic; -1: the brokers'."),
        key("status.storage.partitions", INT, 5, "Of that topic."),
        key("session.timeout.ms", INT, 10_000, "Silent for so long, a worker is dead.", AtLeast(1)),
        key("heartbeat.interval.ms", INT, 1_000, "Between two signs of life.", AtLeast(1)),
        key("rebalance.timeout.ms", INT, 60_000,
            "How long a worker may take to give back its tasks.", AtLeast(1)),
        key("scheduled.rebalance.max.delay.ms", INT, 2_000,
            "How long a dead worker's connectors wait for it to come back.", AtLeast(0)),
        key("state.dir", STRING, "/tmp/kafka-connect",
            "Where tasks keep what is their own; for sinks of files that move, one for all."),
    ],
    required=["group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic"],
)  # fmt: skip

PREFIXES = ("key.converter.", "value.converter.", "header.converter.", "producer.", "consumer.",
            "admin.", "spark.")  # fmt: skip
NOT_HONOURED = {
    "plugin.path": "connectors are Python packages, found by their entry points",
    "plugin.discovery": "connectors are Python packages, found by their entry points",
    "offset.flush.timeout.ms": "offsets are written with the records",
    "exactly.once.source.support": "sources are always exactly-once",
    "connect.protocol": "workers share out connectors incrementally",
    "inter.worker.key.generation.algorithm": "workers do not sign what they pass on",
    "connector.client.config.override.policy": "all overrides are allowed",
}
_LISTENER = re.compile(r"http://(?P<host>\[[^\]]*\]|[^:/]*):(?P<port>\d{1,5})/?", re.IGNORECASE)


@dataclass(frozen=True)
class WorkerConfig:
    settings: Mapping[str, Any]
    given: Mapping[str, str]
    """Properties as they were given."""
    definition: Definition = STANDALONE

    @classmethod
    def of(cls, properties: Mapping[str, str], definition: Definition = STANDALONE) -> WorkerConfig:
        """Parse the properties; raise UserError that lists all invalid ones."""
        problems = definition.problems(properties)
        if problems:
            raise UserError("\n".join(problems.values()))
        made = cls(definition.settings(properties), dict(properties), definition)
        made.listeners  # noqa: B018 - raises if one is invalid
        if definition is DISTRIBUTED:
            heartbeat, session = "heartbeat.interval.ms", "session.timeout.ms"
            if made.settings[heartbeat] >= made.settings[session]:
                raise UserError(f"{heartbeat} must be less than {session}.")
        return made

    def notices(self) -> list[str]:
        """Return a sentence for each property that has no effect."""
        found = []
        common = table_of(CommonConfig)
        for name in self.given:
            if name in NOT_HONOURED:
                found.append(f"{name} has no effect here: {NOT_HONOURED[name]}.")
            elif not (name in self.definition.table or name in common or name.startswith(PREFIXES)):
                nearest = self.definition.table.nearest(name) or common.nearest(name)
                instead = f"; did you mean {nearest}?" if nearest else "."
                found.append(f"There is no worker property {name}{instead}")
        return found

    @property
    def listeners(self) -> list[tuple[str, int]]:
        """Hosts and ports of the REST API; empty disables it."""
        found = []
        for each in self.settings["listeners"]:
            match = _LISTENER.fullmatch(each.strip())
            if match is None or int(match["port"]) > 65535:
                raise UserError(f"{each!r} in listeners must look like http://host:port.")
            found.append((match["host"].strip("[]"), int(match["port"])))
        return found

    @property
    def worker_id(self) -> str:
        """Worker ID in statuses: `host:port`."""
        listeners = self.listeners
        host, port = listeners[0] if listeners else ("", 0)
        host = self.settings["rest.advertised.host.name"] or host
        if host in ("", "0.0.0.0", "::"):
            host = "localhost" if self.definition is STANDALONE else socket.gethostname()
        return f"{host}:{self.settings['rest.advertised.port'] or port}"

    def client(self, kind: str) -> dict[str, str]:
        """Return the properties of a client; `kind` is producer, consumer or admin."""
        common = table_of(CommonConfig)
        shared = {name: value for name, value in self.given.items() if name in common}
        shared["bootstrap.servers"] = ",".join(self.settings["bootstrap.servers"])
        return shared | with_prefix(self.given, f"{kind}.")

    @property
    def spark(self) -> dict[str, str]:
        return {name: value for name, value in self.given.items() if name.startswith("spark.")}

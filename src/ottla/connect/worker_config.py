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
from dataclasses import dataclass, field
from typing import Any

from ottla.base.config.definition import ConfigType
from ottla.base.config.providers import resolved, without_providers
from ottla.base.config.validator import AtLeast, Between, NonEmpty, one_of
from ottla.base.errors import UserError
from ottla.client.config import CommonConfig, table_of
from ottla.client.inlined_files import with_inlined_files
from ottla.client.profile import layered
from ottla.connect.definition import Definition, key, with_prefix
from ottla.connect.spark_engine.settings import session_settings as for_tasks
from ottla.connect.topic_creation import ENABLE

STRING, INT, LIST, LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LIST, ConfigType.LONG
SHORT = ConfigType.SHORT

THREAD_ENGINE, SPARK_ENGINE = "threads", "spark"

COMMON = Definition(
    [
        key("bootstrap.servers", LIST, ["localhost:9092"],
            "Brokers for the initial connection, as host:port.", NonEmpty()),
        key("key.converter", STRING, None, "Default converter of keys.", NonEmpty()),
        key("value.converter", STRING, None, "Default converter of values.", NonEmpty()),
        key("header.converter", STRING, "SimpleHeaderConverter", "Default converter of headers."),
        key("offset.flush.interval.ms", INT, 60_000,
            "Interval between writes of offset.storage.file.filename, in milliseconds.",
            AtLeast(1)),
        key("listeners", LIST, ["http://:8083"], "Addresses of the REST API."),
        key("rest.advertised.host.name", STRING, "",
            "Host name under which other workers reach the REST API."),
        key("rest.advertised.port", INT, 0,
            "Port under which other workers reach the REST API; 0 for that of listeners.",
            AtLeast(0)),
        key("task.shutdown.graceful.timeout.ms", LONG, 5_000,
            "Maximum time for a task to stop, in milliseconds.", AtLeast(0)),
        key("task.engine", STRING, None,
            "Engine of the tasks: threads of the worker (threads), or long-lived tasks of a Spark "
            "application (spark). The default of distributed workers is spark; that of standalone "
            "workers is threads, or spark if spark.master is set.",
            one_of(THREAD_ENGINE, SPARK_ENGINE)),
        key("task.control.port", INT, 0,
            "Port of the driver that tasks on Spark connect to; 0 for any free port.",
            Between(0, 65535)),
        key("plugin.path", LIST, [],
            "Directories, zip files and wheels with Python packages of connectors. They are sent "
            "to the executors of task.engine=spark."),
        key("task.restart.backoff.ms", INT, 1_000,
            "Time before a failed task is restarted, in milliseconds; it doubles with each "
            "failure.", AtLeast(0)),
        key("task.restart.backoff.max.ms", INT, 60_000,
            "Maximum time before a failed task is restarted, in milliseconds.", AtLeast(0)),
        key("task.restart.max.attempts", INT, -1,
            "Maximum number of consecutive restarts of a failing task; 0 for none, -1 for no "
            "limit.", AtLeast(-1)),
        key(ENABLE, ConfigType.BOOLEAN, True,
            "Whether the tasks of sources create the topics that they write to. Otherwise the "
            "brokers may create them."),
    ],
    required=["key.converter", "value.converter"],
)  # fmt: skip
STANDALONE = COMMON + Definition(
    [
        key("offset.storage.file.filename", STRING, None,
            "File that lists the connectors and their source offsets.", NonEmpty()),
        key("offset.storage.topic", STRING, "connect-standalone-offsets",
            "Topic for source offsets, which are written in the same transaction as the records.",
            NonEmpty()),
    ],
    required=["offset.storage.file.filename"],
)  # fmt: skip
DISTRIBUTED = COMMON + Definition(
    [
        key("group.id", STRING, None, "ID of the worker group, which shares its connectors.",
            NonEmpty()),
        key("config.storage.topic", STRING, None, "Topic for the configurations of connectors.",
            NonEmpty()),
        key("config.storage.replication.factor", SHORT, -1,
            "Replication factor of config.storage.topic; -1 for the brokers' default."),
        key("offset.storage.topic", STRING, None, "Topic for source offsets.", NonEmpty()),
        key("offset.storage.replication.factor", SHORT, -1,
            "Replication factor of offset.storage.topic; -1 for the brokers' default."),
        key("offset.storage.partitions", INT, 25, "Number of partitions of offset.storage.topic."),
        key("status.storage.topic", STRING, None, "Topic for the states of connectors and tasks.",
            NonEmpty()),
        key("status.storage.replication.factor", SHORT, -1,
            "Replication factor of status.storage.topic; -1 for the brokers' default."),
        key("status.storage.partitions", INT, 5, "Number of partitions of status.storage.topic."),
        key("session.timeout.ms", INT, 10_000,
            "Time without a heartbeat after which a worker is removed from the group, in "
            "milliseconds.", AtLeast(1)),
        key("heartbeat.interval.ms", INT, 1_000, "Interval between heartbeats, in milliseconds.",
            AtLeast(1)),
        key("rebalance.timeout.ms", INT, 60_000,
            "Maximum time for a worker to stop revoked tasks during a rebalance, in milliseconds.",
            AtLeast(1)),
        key("scheduled.rebalance.max.delay.ms", INT, 2_000,
            "Time before the tasks of a lost worker are reassigned, in milliseconds.", AtLeast(0)),
        key("state.dir", STRING, "/tmp/kafka-connect",
            "Directory for local files of tasks. File sinks that move between workers need a "
            "shared one."),
    ],
    required=["group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic"],
)  # fmt: skip

PREFIXES = ("key.converter.", "value.converter.", "header.converter.", "producer.", "consumer.",
            "admin.", "spark.", "config.providers")  # fmt: skip
NOT_HONOURED = {
    "plugin.discovery": "connectors are Python packages, found by their entry points",
    "offset.flush.timeout.ms": "offsets are written with the records",
    "exactly.once.source.support": "sources are always exactly-once",
    "connect.protocol": "workers always rebalance incrementally",
    "inter.worker.key.generation.algorithm": "workers do not sign forwarded requests",
    "connector.client.config.override.policy": "all overrides are allowed",
}
_LISTENER = re.compile(r"http://(?P<host>\[[^\]]*\]|[^:/]*):(?P<port>\d{1,5})/?", re.IGNORECASE)


@dataclass(frozen=True)
class WorkerConfig:
    settings: Mapping[str, Any] = field(repr=False)
    given: Mapping[str, str] = field(repr=False)
    """Properties, with the values of the variables of config providers."""
    definition: Definition = STANDALONE

    @classmethod
    def of(cls, properties: Mapping[str, str], definition: Definition = STANDALONE) -> WorkerConfig:
        """Parse the properties; raise UserError that lists all invalid ones."""
        properties = resolved(properties)
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
                found.append(f"Worker property {name} does not exist{instead}")
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
        return layered(shared, with_prefix(self.given, f"{kind}."))

    def for_executors(self) -> dict[str, str]:
        """Return the properties for other machines, which have neither files nor variables.

        Raises:
            UserError: A key or certificate file cannot be used.
        """
        common = table_of(CommonConfig)
        found = without_providers(self.given)
        for kind in ("", "producer.", "consumer.", "admin."):
            own = with_prefix(self.given, kind) if kind else self.given
            if not any(name.endswith(".location") and name in common for name in own):
                continue
            whole = self.client(kind.removesuffix(".")) if kind else own
            shared = {name: text for name, text in whole.items() if name in common}
            inlined = with_inlined_files(CommonConfig, shared)
            found = {
                name: text
                for name, text in found.items()
                if not (name.startswith(kind) and name.removeprefix(kind) in common)
            } | {f"{kind}{name}": text for name, text in inlined.items()}
        return found

    @property
    def spark(self) -> dict[str, str]:
        return {name: value for name, value in self.given.items() if name.startswith("spark.")}

    @property
    def session_settings(self) -> dict[str, str]:
        """Settings of the worker's Spark session, which depend on the engine of the tasks."""
        return for_tasks(self.spark) if self.engine == SPARK_ENGINE else self.spark

    @property
    def engine(self) -> str:
        """Engine of the tasks: THREAD_ENGINE or SPARK_ENGINE."""
        given = self.settings["task.engine"]
        if given is not None:
            return str(given)
        is_spark = self.definition is DISTRIBUTED or "spark.master" in self.given
        return SPARK_ENGINE if is_spark else THREAD_ENGINE

"""Description of an application, for the modules that run it, look into its tables and reset it.

`App` builds a topology and may still change; an `Application` is what it has become at the moment
of a start, a look-up or a reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.streams.errors import TopologyError
from ottla.streams.operators.topics import Sink


@dataclass(frozen=True)
class Application:
    """Name, settings and sinks of an application."""

    name: str
    bootstrap: str
    client: Mapping[str, str] = field(repr=False)
    """Further properties of the connection."""
    master: str | None
    spark_settings: Mapping[str, str]
    state_dir: str
    max_records_per_batch: int | None
    operator_metrics: bool
    sinks: tuple[Sink, ...]
    commit_interval: str | None = None
    """Interval between the commits of a real-time application; None for micro-batches."""

    def require_sinks(self) -> tuple[Sink, ...]:
        """Return the sinks.

        Raises:
            TopologyError: The application writes no topic.
        """
        if not self.sinks:
            raise TopologyError(f"App {self.name!r} writes no topic. End a stream with to(topic).")
        return self.sinks

    def group_of(self, sink: Sink) -> str:
        """Return the consumer group that shows the progress of a sink's query."""
        return self.name if len(self.sinks) == 1 else f"{self.name}-{sink.topic}"

    @property
    def connection_options(self) -> dict[str, str]:
        """Options of `format("ottla")` that connect to the cluster."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            **{f"kafka.{name}": value for name, value in self.client.items()},
        }

"""A source connector as a Structured Streaming query: a Python data source into `format("ottla")`.

The planner, one process for as long as the query runs, has the tasks: it polls them, transforms and
converts their records and spools the rows (`spool`). Executors read rows and write them to topics,
each batch in transactions. The offset of a batch in Spark's log is

    {"spool": polls so far, "offsets": [{"partition": …, "offset": …}], "topics": names so far}

so resuming, rows and source offsets are one thing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from ottla.base.errors import UserError
from ottla.connect.api import Json, SourceConnector, SourceTask
from ottla.connect.config import ConnectorConfig
from ottla.connect.data import Record
from ottla.connect.offsets import from_json, merged, to_json
from ottla.connect.pipeline import Row, StageFailed
from ottla.connect.spool import SPARK_SCHEMA, Spool, from_arrow

logger = logging.getLogger(__name__)

FORMAT = "ottla-connect"
MAX_TASKS = 64
WAIT_S = 0.1
"""How long a trigger waits for something to come, if there is nothing."""


class ConnectorSource(DataSource):
    """`given`: the connector's properties; `worker`: the worker's; `start`: offsets; `spool`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SPARK_SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return ConnectorReader(dict(self.options))


class SpooledRows(InputPartition):
    """One task's rows of a batch."""


class ConnectorReader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._tasks: list[SourceTask] | None = None
        self._spool = Spool(options["spool"])
        self._end: Json = {}
        """What was told last."""

    def initialOffset(self) -> Json:  # noqa: N802
        return {"spool": 0, "offsets": json.loads(self._options["start"]), "topics": []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        if self._tasks is None:
            self._begin(start)
        if start != self._end and self._end["spool"] > start["spool"]:
            return self._end
        self._end = self._poll(start)
        return self._end

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        found: list[InputPartition] = []
        for number in range(start["spool"] + 1, end["spool"] + 1):
            found += [SpooledRows(data) for data in self._spool.read(number, MAX_TASKS)]
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return from_arrow(partition.value)

    def commit(self, end: Json) -> None:
        self._spool.remove_until(end["spool"])
        for task in self._tasks or ():
            task.commit(from_json(end["offsets"]))

    def stop(self) -> None:
        for task in self._tasks or ():
            task.stop()
        self._tasks = None

    def __getstate__(self) -> dict[str, Any]:
        # To executors: `read` needs nothing.
        return {}

    # --------------------------------------------------------------------------------- tasks

    def _begin(self, start: Json) -> None:
        given, worker = json.loads(self._options["given"]), json.loads(self._options["worker"])
        self._config = ConnectorConfig.of(given, worker)
        connector = self._config.connector
        if not isinstance(connector, SourceConnector):
            raise UserError(f"Connector {self._config.name} is no source.")
        limit = min(self._config.settings["tasks.max"], MAX_TASKS)
        self._tasks = [connector.make_task(each) for each in connector.task_settings(limit)]
        for task in self._tasks:
            task.start(from_json(start["offsets"]))
        self._end = start

    def _poll(self, start: Json) -> Json:
        assert self._tasks is not None
        number = start["spool"] + 1
        offsets, topics = from_json(start["offsets"]), set(start["topics"])
        has_moved = False
        wait_s = WAIT_S / max(len(self._tasks), 1)
        for index, task in enumerate(self._tasks):
            polled = task.poll(0 if has_moved else wait_s)
            if not polled:
                continue
            if not has_moved:
                self._spool.remove(number, MAX_TASKS)
            has_moved = True
            rows = self._rows(polled.records)
            if rows:
                self._spool.write(number, index, rows)
                topics |= {each.topic for each in rows}
            offsets = merged(offsets, polled.offsets)
        if not has_moved:
            return start
        return {"spool": number, "offsets": to_json(offsets), "topics": sorted(topics)}

    def _rows(self, records: Sequence[Record]) -> list[Row]:
        rows = []
        for record in records:
            try:
                done = self._config.chain.apply(record)
                if done is not None:
                    rows.append(self._config.conversion.to_row(done))
            except StageFailed as failure:
                self._failed(failure, record)
        return rows

    def _failed(self, failure: StageFailed, record: Record) -> None:
        policy = self._config.policy
        said = policy.describe(self._config.name, failure, record)
        if not policy.tolerates:
            raise UserError(f"{said}; errors.tolerance=all would go on without it.")
        if policy.logs:
            logger.error("%s", said)


def source_reader(
    spark: Any,
    config: ConnectorConfig,
    worker: Mapping[str, str],
    directory: str,
    start: list[Json],
) -> Any:
    """The rows of a source, as a stream."""
    spark.dataSource.register(ConnectorSource)
    return (
        spark.readStream.format(FORMAT)
        .option("given", json.dumps(dict(config.given)))
        .option("worker", json.dumps(dict(worker)))
        .option("spool", f"{directory}/spool")
        .option("start", json.dumps(start))
        .load()
    )

"""Topics as Spark tables and streams: `spark.read.format("ottla")`, without a JAR.

    session     creates a well-tuned Spark session that has the format
    register    adds the format to a session created elsewhere (Spark finds it by itself if Ottla is
                installed for the driver's Python: see `pyspark_ottla`)
    table       reads a topic as a table of columns
    pipelines   runs declarative pipelines: `python -m ottla.spark.pipelines run`

Modules: `options` and `offsets` parse the user's options; `plan` and `pushdown` decide what to read
(pure); `source`, `batch_source` and `stream_source` implement Spark's interfaces; on executors,
`range_partition` reads a task's rows: `range_reader` fetches records and `schema` converts them;
`sink`, `record_writer` and `exactly_once` write; `decisions` stores which batches are committed.
`spark_session` starts Spark, with `java_runtime` and `java_cache`; `spark_connect` connects to it.
Needs the `spark` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.spark.spark_session import register, session
    from ottla.spark.topic_table import table

_MODULES = {
    "register": "ottla.spark.spark_session",
    "session": "ottla.spark.spark_session",
    "table": "ottla.spark.topic_table",
}
__all__ = ["register", "session", "table"]

__getattr__ = lazy_names(__name__, _MODULES)

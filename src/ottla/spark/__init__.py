"""Topics as Spark tables and streams: `spark.read.format("ottla")`, with no jar.

    session     a well-tuned Spark session in which the format is there
    register    the format in a session made elsewhere (Spark finds it by itself where Ottla is
                installed for the driver's Python: see `pyspark_ottla`)
    table       a topic as a table of columns

The modules: `options` and `offsets` read what a user says; `plan` and `pushdown` decide what is
read (pure); `source` and `stream_source` are Spark's contracts; `range_reader` fetches and `schema`
makes rows on executors; `sink`, `record_writer` and `exactly_once` write; `decisions` is what they
leave behind. Needs the `spark` extra."""

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

"""A topic as a table of columns: `ottla.spark.table("orders")`.

    value_format   json      objects, whose fields become the columns
                   string    one column value of text
                   raw       one column value of bytes
                   auto      json if the newest values are all objects, otherwise string, otherwise
                             raw; if only some are objects, a warning names the first that is not
    schema         schema of JSON values, as DDL or a StructType; by default inferred from the
                   newest SAMPLE_ROWS values of each partition
    mode           handling of a value that cannot be parsed:
                   fail          fail the query
                   drop          omit the row
                   dead-letter   omit the row, and write its record to the topic `dead_letter` with
                                 headers that name its origin; at least once, each time that the
                                 row is read

A null value (a tombstone) becomes a row of nulls. With `metadata=True` there are also the columns
_key, _topic, _partition, _offset and _timestamp; otherwise only values are read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ottla.client.errors import InvalidConfig
from ottla.client.profile import default_bootstrap
from ottla.spark.option_keywords import SourceKeywords
from ottla.spark.options import from_keywords, sink_options
from ottla.spark.topic_snapshot import TopicSnapshot, ValueSample

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

FORMATS = ("auto", "json", "string", "raw")
MODES = ("fail", "drop", "dead-letter")
METADATA = ("key", "topic", "partition", "offset", "timestamp")
CORRUPT = "_corrupt_value"


def table(
    topic: str,
    *,
    bootstrap: str | None = None,
    profile: str | None = None,
    spark: SparkSession | None = None,
    streaming: bool = False,
    value_format: str = "auto",
    schema: str | StructType | None = None,
    mode: str = "fail",
    dead_letter: str | None = None,
    metadata: bool = False,
    **options: Unpack[SourceKeywords],
) -> DataFrame:
    """Read a topic as a DataFrame of columns.

    A null value (a tombstone) is a row of nulls.

    Args:
        topic: Topic to read.
        bootstrap: Broker addresses; `localhost:9092` by default.
        profile: Path of a properties file for the connection.
        spark: Spark session; `session()` by default.
        streaming: Return a streaming DataFrame.
        value_format: `json` makes the fields of objects the columns; `string` and `raw` make one
            column `value` of text or bytes. `auto` chooses from the newest values.
        schema: Schema of JSON values, as DDL or a StructType. None infers it from the newest
            values of each partition.
        mode: Handling of a value that does not parse: `fail` the query, `drop` the row, or
            write its record to the topic `dead_letter` with `dead-letter`, at least once.
        dead_letter: Topic for values that do not parse.
        metadata: Add the columns _key, _topic, _partition, _offset and _timestamp.
        options: Options of the source in snake case, with underscores for dots.

    Raises:
        InvalidConfig: An argument is invalid.

    Example:
        orders = table("orders", ending_offsets="latest", kafka_isolation_level="read_committed")
    """
    _check(value_format, mode, dead_letter)
    if spark is None:
        from ottla.spark.spark_session import session

        spark = session()
    source_options = from_keywords(options)
    source_options["subscribe"] = topic
    if profile is not None:
        source_options["profile"] = profile
    if bootstrap is None and profile is None:
        bootstrap = default_bootstrap()
    if bootstrap is not None:
        source_options.setdefault("kafka.bootstrap.servers", bootstrap)
    if value_format == "auto" or (value_format == "json" and schema is None):
        sample = TopicSnapshot(source_options).sample()
        if value_format == "auto" and sample.is_mixed:
            logger.warning(
                "%s Use table(…, value_format='json', mode='drop') to skip the other values.",
                sample.why_not_json(),
            )
        value_format, schema = chosen_format(spark, sample, value_format, schema)
    needs_all = metadata or mode == "dead-letter"
    rows = _load(spark, source_options, streaming=streaming, only_values=not needs_all)
    return parsed(rows, source_options, value_format, schema, mode, dead_letter, metadata=metadata)


def parsed(
    rows: DataFrame,
    source_options: Mapping[str, str],
    value_format: str,
    schema: str | StructType | None,
    mode: str,
    dead_letter: str | None = None,
    *,
    metadata: bool,
) -> DataFrame:
    """Return rows of the source with their values parsed into columns."""
    if value_format == "json":
        assert schema is not None
        made = _from_json(rows, schema, mode, dead_letter, source_options)
    else:
        made = _from_text(rows, value_format, mode, dead_letter, source_options)
    return _select(made, value_format, metadata=metadata)


def _check(value_format: str, mode: str, dead_letter: str | None) -> None:
    if value_format not in FORMATS:
        raise InvalidConfig(
            f"value_format must be one of {', '.join(FORMATS)}, not {value_format!r}."
        )
    if mode not in MODES:
        raise InvalidConfig(f"mode must be one of {', '.join(MODES)}, not {mode!r}.")
    if (mode == "dead-letter") != (dead_letter is not None):
        raise InvalidConfig(
            "mode='dead-letter' needs the topic dead_letter, and only this mode uses it."
        )


def _load(
    spark: SparkSession, source_options: Mapping[str, str], *, streaming: bool, only_values: bool
) -> DataFrame:
    reader = spark.readStream if streaming else spark.read
    reader = reader.format("ottla").options(**source_options)
    return (reader.schema("value BINARY") if only_values else reader).load()


# -------------------------------------------------------------------------------------- inference


def chosen_format(
    spark: SparkSession, sample: ValueSample, value_format: str, schema: str | StructType | None
) -> tuple[str, str | StructType | None]:
    """Return the format of a topic's values and, for JSON, their schema.

    Raises:
        InvalidConfig: The format is JSON, and there is no object to infer a schema from.
    """
    if value_format == "auto":
        value_format = sample.format
    if value_format != "json" or schema is not None:
        return value_format, schema
    if not sample.objects:
        raise InvalidConfig(
            f"Cannot infer the schema of topic '{sample.topic}': none of its {sample.size} newest "
            "values is a JSON object. Pass a schema."
        )
    return value_format, _inferred_schema(spark, sample.objects)


def _inferred_schema(spark: SparkSession, objects: list[str]) -> StructType:
    import pyarrow

    # A DataFrame created from Arrow stays in the JVM; an RDD would start Python workers.
    texts = pyarrow.table({"value": pyarrow.array(objects, pyarrow.string())})
    return spark.read.json(spark.createDataFrame(texts)).schema


# ---------------------------------------------------------------------------------------- parsing


def _from_json(
    rows: DataFrame,
    schema: str | StructType,
    mode: str,
    dead_letter: str | None,
    source_options: Mapping[str, str],
) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(fields, StructType), "DDL of columns is a struct"
    text = f.col("value").cast("string")
    if mode == "fail":
        return rows.withColumn("parsed", f.from_json(text, fields, {"mode": "FAILFAST"}))
    marked = StructType([*fields.fields]).add(CORRUPT, StringType())
    keep = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = rows.withColumn("parsed", f.from_json(text, marked, keep))
    parsed = parsed.withColumn("is_bad", false_if_null(f.col(f"parsed.{CORRUPT}").isNotNull()))
    parsed = parsed.withColumn("parsed", f.col("parsed").dropFields(CORRUPT))
    return _without_bad(parsed, dead_letter, source_options)


def false_if_null(condition: Column) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(condition, f.lit(False))


def _from_text(
    rows: DataFrame,
    value_format: str,
    mode: str,
    dead_letter: str | None,
    source_options: Mapping[str, str],
) -> DataFrame:
    from pyspark.sql import functions as f

    if value_format == "raw":
        return rows
    valid = f.is_valid_utf8(f.col("value"))
    if mode == "fail":
        return rows.withColumn("value", f.validate_utf8(f.col("value")))
    marked = rows.withColumn("is_bad", false_if_null(~valid))
    kept = _without_bad(marked, dead_letter, source_options)
    return kept.withColumn("value", f.col("value").cast("string"))


def _without_bad(
    rows: DataFrame, dead_letter: str | None, source_options: Mapping[str, str]
) -> DataFrame:
    """Remove the rows marked `is_bad`, and write them to `dead_letter` if it is set."""
    if dead_letter is None:
        return rows.where("not is_bad").drop("is_bad")
    writer = DeadLetterWriter({**_sink_options(source_options), "topic": dead_letter})
    return rows.mapInArrow(writer, rows.schema).drop("is_bad")


def _sink_options(source_options: Mapping[str, str]) -> dict[str, str]:
    from ottla.client.config import table_of
    from ottla.client.producer.config import ProducerConfig

    known = table_of(ProducerConfig)
    return {
        name: text
        for name, text in source_options.items()
        if name == "profile" or name.removeprefix("kafka.") in known
    }


class DeadLetterWriter:
    """Function for executors that writes bad rows to a topic and passes on the others."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = sink_options(options, is_streaming=False)
        self.__name__ = "dead_letters"

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow.compute as pc

        from ottla.spark.sink import write_at_least_once

        for batch in batches:
            is_bad = batch.column("is_bad")
            bad = batch.filter(is_bad)
            if bad.num_rows:
                letters = _dead_letter_records(bad)
                write_at_least_once(self._options, letters.schema.names, iter([letters]))
            good = batch.filter(pc.invert(is_bad))
            if good.num_rows:
                yield good


def _dead_letter_records(bad: Any) -> Any:
    import pyarrow as pa

    origin = ["topic", "partition", "offset"]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    pairs = [
        [{"key": f"ottla.source.{name}", "value": str(row[name]).encode()} for name in origin]
        for row in bad.select(origin).to_pylist()
    ]
    return pa.record_batch(
        [bad.column("key"), bad.column("value"), pa.array(pairs, kind)],
        ["key", "value", "headers"],
    )


def _select(rows: DataFrame, value_format: str, *, metadata: bool) -> DataFrame:
    from pyspark.sql import functions as f

    columns = ["parsed.*"] if value_format == "json" else ["value"]
    more = [f.col(name).alias(f"_{name}") for name in METADATA] if metadata else []
    return rows.select(*columns, *more)

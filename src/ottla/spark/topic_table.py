"""A topic as a table of columns: `ottla.spark.table("orders")`.

    value_format   json      objects; their fields are the columns
                   string    one column value of text
                   raw       one column value of bytes
                   auto      json if the newest values are objects, else string, else raw
    schema         of json values, as DDL or a StructType; without it, inferred from the newest
                   SAMPLE_ROWS values of each partition
    mode           what becomes of a value that does not parse:
                   fail          the query fails
                   drop          the row is left out
                   dead-letter   the row is left out, and its record goes to the topic `dead_letter`
                                 with headers that say where it came from; at least once, each time
                                 that the row is read

A null value (a tombstone) is a row of nulls. With `metadata=True` the columns _key, _topic,
_partition, _offset and _timestamp come too; without, only values are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.client.errors import InvalidConfig
from ottla.spark.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

SAMPLE_ROWS = 1_000
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
    **options: Any,
) -> DataFrame:
    """`options` are those of the source, dots written as two underscores:
    `table("orders", startingOffsets="latest", kafka__isolation__level="read_committed")`."""
    _check(value_format, mode, dead_letter)
    if spark is None:
        from ottla.spark.spark_session import session

        spark = session()
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    given["subscribe"] = topic
    if profile is not None:
        given["profile"] = profile
    if bootstrap is not None or profile is None:
        given.setdefault("kafka.bootstrap.servers", bootstrap or "localhost:9092")
    if value_format == "auto" or (value_format == "json" and schema is None):
        value_format, schema = _inferred(spark, given, topic, value_format, schema)
    needs_all = metadata or mode == "dead-letter"
    rows = _load(spark, given, streaming=streaming, only_values=not needs_all)
    if value_format == "json":
        assert schema is not None
        made = _from_json(rows, schema, mode, dead_letter, given)
    else:
        made = _from_text(rows, value_format, mode, dead_letter, given)
    return _select(made, value_format, metadata=metadata)


def _check(value_format: str, mode: str, dead_letter: str | None) -> None:
    if value_format not in FORMATS:
        raise InvalidConfig(f"value_format is {', '.join(FORMATS)}, not {value_format!r}.")
    if mode not in MODES:
        raise InvalidConfig(f"mode is {', '.join(MODES)}, not {mode!r}.")
    if (mode == "dead-letter") != (dead_letter is not None):
        raise InvalidConfig("mode='dead-letter' and dead_letter, the topic for it, go together.")


def _load(
    spark: SparkSession, given: Mapping[str, str], *, streaming: bool, only_values: bool
) -> DataFrame:
    reader = spark.readStream if streaming else spark.read
    reader = reader.format("ottla").options(**given)
    return (reader.schema("value BINARY") if only_values else reader).load()


# -------------------------------------------------------------------------------------- inference


def _inferred(
    spark: SparkSession, given: Mapping[str, str], topic: str, value_format: str, schema: Any
) -> tuple[str, Any]:
    """A format and, for json, a schema, from the newest values."""
    texts = _newest(given)
    if value_format == "auto":
        value_format = _format_of(texts)
    if value_format != "json" or schema is not None:
        return value_format, schema
    objects = [text for text in texts if isinstance(text, str)]
    if not objects:
        raise InvalidConfig(
            f"{topic} has no values from which its columns could be inferred: give a schema."
        )
    return value_format, spark.read.json(spark.sparkContext.parallelize(objects, 1)).schema


def _newest(given: Mapping[str, str]) -> list[str | bytes]:
    """The newest values: texts, or bytes where they are none."""
    from ottla.client.consumer.config import ConsumerConfig
    from ottla.spark.cluster_offsets import ClusterOffsets
    from ottla.spark.offsets import Earliest, Latest
    from ottla.spark.options import source_options
    from ottla.spark.plan import OffsetRange
    from ottla.spark.range_reader import RangeReader
    from ottla.spark.shared_client import shared_client

    wanted = ("subscribe", "profile", "kafka.")
    options = source_options(
        {name: text for name, text in given.items() if name.lower().startswith(wanted)},
        is_streaming=False,
    )
    offsets = ClusterOffsets(options)
    partitions = offsets.partitions()
    first = offsets.offsets("startingOffsets", Earliest(), partitions)
    end = offsets.offsets("endingOffsets", Latest(), partitions)
    found: list[str | bytes] = []
    for tp in partitions:
        part = OffsetRange(*tp, max(first[tp], end[tp] - SAMPLE_ROWS), end[tp])
        reader = RangeReader(
            shared_client(ConsumerConfig, options.client), options.config(), part, ["value"],
            fail_on_data_loss=False, timeout_ms=options.poll_timeout_ms,
        )  # fmt: skip
        for records in reader:
            found += [
                _text_of(value) for value in records.column(0).to_pylist() if value is not None
            ]
    return found


def _text_of(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _format_of(values: list[str | bytes]) -> str:
    if not all(isinstance(value, str) for value in values):
        return "raw"
    return "json" if values and all(_is_object(value) for value in values) else "string"


def _is_object(text: str | bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


# ---------------------------------------------------------------------------------------- parsing


def _from_json(
    rows: DataFrame,
    schema: str | StructType,
    mode: str,
    dead_letter: str | None,
    given: Mapping[str, str],
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
    parsed = parsed.withColumn("is_bad", is_bad_or(f.col(f"parsed.{CORRUPT}").isNotNull()))
    parsed = parsed.withColumn("parsed", f.col("parsed").dropFields(CORRUPT))
    return _without_bad(parsed, dead_letter, given)


def is_bad_or(condition: Column) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(condition, f.lit(False))


def _from_text(
    rows: DataFrame, value_format: str, mode: str, dead_letter: str | None, given: Mapping[str, str]
) -> DataFrame:
    from pyspark.sql import functions as f

    if value_format == "raw":
        return rows
    valid = f.is_valid_utf8(f.col("value"))
    if mode == "fail":
        return rows.withColumn("value", f.validate_utf8(f.col("value")))
    marked = rows.withColumn("is_bad", is_bad_or(~valid))
    kept = _without_bad(marked, dead_letter, given)
    return kept.withColumn("value", f.col("value").cast("string"))


def _without_bad(rows: DataFrame, dead_letter: str | None, given: Mapping[str, str]) -> DataFrame:
    """Rows without those marked `is_bad`, which go to `dead_letter` if there is one."""
    if dead_letter is None:
        return rows.where("not is_bad").drop("is_bad")
    sender = DeadLetters({**_sink_options(given), "topic": dead_letter})
    return rows.mapInArrow(sender, rows.schema).drop("is_bad")


def _sink_options(given: Mapping[str, str]) -> dict[str, str]:
    from ottla.client.config import table_of
    from ottla.client.producer.config import ProducerConfig

    known = table_of(ProducerConfig)
    return {
        name: text
        for name, text in given.items()
        if name == "profile" or name.removeprefix("kafka.") in known
    }


class DeadLetters:
    """On executors: bad rows to their topic, good ones on."""

    def __init__(self, options: dict[str, str]) -> None:
        sink_options(options, is_streaming=False)
        self._options = options
        self.__name__ = "dead_letters"

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow.compute as pc

        from ottla.spark.sink import write_at_least_once

        options = sink_options(self._options, is_streaming=False)
        for batch in batches:
            is_bad = batch.column("is_bad")
            bad = batch.filter(is_bad)
            if bad.num_rows:
                letters = _letters(bad)
                write_at_least_once(options, letters.schema.names, iter([letters]))
            good = batch.filter(pc.invert(is_bad))
            if good.num_rows:
                yield good


def _letters(bad: Any) -> Any:
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

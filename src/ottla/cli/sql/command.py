"""`ottla sql`: options, notes and output. The package docstring explains the execution."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option, table
from ottla.cli.tool import Tool

if TYPE_CHECKING:
    from ottla.cli.sql.on_spark import ParseOptions, Source

EXAMPLES = """
ottla sql "select count(*) from orders"
ottla sql "select region, sum(price) from orders group by region" --bootstrap-server broker1:9092
ottla sql 'select value from `web-logs` where _offset > 1000' --value-format string
"""
DEFAULT_MASTER = "local[*]"


@click.command("sql", cls=Tool, examples=EXAMPLES)
@click.argument("statement")
@cluster_options()
@click.option(
    "--value-format",
    type=click.Choice(["auto", "json", "string", "raw"]),
    default="auto",
    show_default=True,
    help="Format of the values. auto selects json if the newest values are all JSON objects, "
    "otherwise string or raw, and notes the reason on standard error.",
)
@click.option(
    "--schema", metavar="DDL", help="Schema of JSON values.  [default: inferred from the values]"
)
@click.option(
    "--mode",
    type=click.Choice(["fail", "drop"]),
    default="fail",
    show_default=True,
    help="Treatment of values that cannot be parsed: fail the query, or drop the rows.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Maximum number of rows to print.",
)
@click.option(
    "--master",
    default=DEFAULT_MASTER,
    show_default=True,
    help="Spark master. With a value other than the default, every statement runs on Spark.",
)
@click.option(
    "--spark-log",
    metavar="FILE",
    help="File for Spark's log. Every statement runs on Spark.  [default: the log is discarded]",
)
@output_option
def sql(
    statement: str,
    cluster: ClusterOptions,
    value_format: str,
    schema: str | None,
    mode: str,
    max_rows: int,
    master: str,
    spark_log: str | None,
    output: Output,
) -> None:
    """Query topics with SQL.

    Every topic is a table. Its columns are the fields of the JSON values, or one column `value`,
    followed by _key, _topic, _partition, _offset and _timestamp. Quote names that are not plain
    words with backticks. Simple statements (columns, count(*), WHERE, LIMIT) are evaluated without
    Spark; all others run on Spark.
    """
    from ottla.cli.sql.on_spark import ParseOptions

    with cluster.admin() as admin:
        topics = sorted(admin.list_topics())
    reading = ParseOptions(value_format, schema, mode)
    columns, rows = _execute(
        statement, topics, cluster, reading, max_rows + 1, master, spark_log, output
    )
    shown = [[_cell(value) for value in row] for row in rows[:max_rows]]
    output.show(
        [dict(zip(columns, row, strict=True)) for row in rows[:max_rows]],
        lambda: table(columns, shown),
    )
    if len(rows) > max_rows:
        output.note(f"Only the first {max_rows} rows are shown. Show more rows with --max-rows.")


def _execute(
    statement: str,
    topics: list[str],
    cluster: ClusterOptions,
    reading: ParseOptions,
    max_rows: int,
    master: str,
    spark_log: str | None,
    output: Output,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    from ottla.cli.sql import direct, error_messages, on_spark
    from ottla.cli.sql.json_rows import NeedsSpark
    from ottla.cli.sql.statement import parse

    simple = parse(statement)
    if simple is not None and simple.topic not in topics:
        raise error_messages.no_topic(simple.topic, topics)
    names = named_topics(statement, topics) if simple is None else [simple.topic]
    sources = [_source(name, cluster) for name in names]
    if simple is not None and _may_be_direct(reading, master, spark_log):
        with contextlib.suppress(NeedsSpark):
            result = direct.execute(simple, sources[0].snapshot, reading.value_format, max_rows)
            if result.value_format is not None:
                _note_formats(sources, reading, output)
            return result.columns, result.rows
    _note_formats(sources, reading, output)
    return on_spark.run(
        statement, sources, reading, topics, master=master, max_rows=max_rows, log=spark_log
    )


def _may_be_direct(reading: ParseOptions, master: str, spark_log: str | None) -> bool:
    is_default = master == DEFAULT_MASTER and spark_log is None
    return is_default and reading.schema is None and reading.mode == "fail"


def _note_formats(sources: Iterable[Source], reading: ParseOptions, output: Output) -> None:
    from ottla.cli.sql.error_messages import not_json

    if reading.value_format != "auto":
        return
    for each in sources:
        note = not_json(each.snapshot)
        if note is not None:
            output.note(note)


def _source(topic: str, cluster: ClusterOptions) -> Source:
    from ottla.cli.sql.on_spark import Source
    from ottla.client.profile import default_bootstrap
    from ottla.spark.topic_snapshot import TopicSnapshot

    options = {"subscribe": topic}
    if cluster.config_file is not None:
        options["profile"] = cluster.config_file
    bootstrap = cluster.bootstrap
    if bootstrap is None and cluster.config_file is None:
        bootstrap = default_bootstrap()
    if bootstrap is not None:
        options["kafka.bootstrap.servers"] = bootstrap
    return Source(TopicSnapshot(options), options)


def named_topics(statement: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that occur in the statement as a word or in backticks."""
    return [
        name
        for name in topics
        if re.search(rf"(?<![\w.\-`]){re.escape(name)}(?![\w.\-`])|`{re.escape(name)}`", statement)
    ]


def _cell(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return value
